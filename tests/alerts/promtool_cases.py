"""Say what a rule does in a world, and let promtool judge many such cases in one process.

What an alert must say is filled into the rule's text here, independently of the two template languages; the words
themselves are pinned in ``test_rules_text.py``.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import yaml
from tests.alerts.world import STEP_SECONDS, World

from lastgood_alerts.prometheus import rule_groups
from lastgood_alerts.rule import Rule
from lastgood_alerts.rules import BY_NAME, RECORDED

CONSOLE: Final = "http://localhost:8490"
REMEMBERED_SECONDS: Final = 300
"""How long an evaluation is remembered."""
LAST_GOOD: Final = "Last good checkpoint to resume from: step 50."


@dataclass(frozen=True)
class Alert:
    """One alert that fires: the rule's labels, the value, what the side values say."""

    labels: Mapping[str, str]
    value: float
    sides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """A world, and the alerts of one rule that fire in it after ``at`` seconds."""

    rule: str
    name: str
    world: World
    fires: tuple[Alert, ...] = ()
    at: int = 900

    @property
    def id(self) -> str:
        return f"{self.rule}: {self.name}"


def expected(rule: Rule, alert: Alert) -> dict[str, Any]:
    """Return an alert as promtool expects it, with full labels and every annotation."""
    assert set(alert.labels) == set(rule.labels), (rule.name, alert.labels)
    return {
        "exp_labels": {**alert.labels, "severity": rule.severity, "component": "lastgood"},
        "exp_annotations": {
            "summary": filled(rule, rule.summary, alert),
            "description": filled(rule, rule.description, alert),
            "console_url": CONSOLE + path_of(rule, alert.labels),
            "runbook_url": f"{CONSOLE}/runbook?name={rule.name}",
        },
    }


def filled(rule: Rule, text: str, alert: Alert) -> str:
    """Return the rule's text with the alert's labels and values."""
    resume = f"Resume from step {alert.value:.0f}." if alert.value >= 0 else "There is no checkpoint to resume from."
    sides = {"last_good": LAST_GOOD, **alert.sides}
    named = "rank {rank} on node {node} (GPU {gpu_uuid})".format_map(defaultdict(str, alert.labels))
    who = "no rank is named" if alert.labels.get("rank") == "unknown" else named
    known = {**alert.labels, "who": who, "value": f"{alert.value:.{rule.digits}f}", "resume": resume, **sides}
    return re.sub(r"\{(\w+)\}", lambda match: known[match[1]], text)


def path_of(rule: Rule, labels: Mapping[str, str]) -> str:
    """Return the path of the console's page."""
    said = {name: quote_plus(value) for name, value in labels.items()}
    if rule.link == "incident":
        which = f"&incident={said['incident']}" if "incident" in said else ""
        return f"/incident?run={said['run']}{which}"
    if rule.link == "node" and said["node"] != "several":
        return f"/nodes?node={said['node']}"
    return "/alerts" if rule.link == "alerts" else f"/?run={said['run']}"


@cache
def rule_file(name: str) -> dict[str, Any]:
    """Return one alert of the real rule file and the recordings it uses, in one group: evaluated in order."""
    groups: list[Any] = rule_groups(console_url=CONSOLE)
    rules = [rule for group in groups for rule in group["rules"]]
    alert = next(rule for rule in rules if rule.get("alert") == name)
    wanted = [rule for rule in rules if rule.get("record") in recorded(str(alert))]
    return {"groups": [{"name": "case", "rules": [*wanted, alert]}]}


def recorded(text: str) -> set[str]:
    """Return the recordings that a text names, and those that these name."""
    named = {name for name in RECORDED if re.search(rf"{re.escape(name)}(?![\w:])", text)}
    return named.union(*(recorded(RECORDED[name]) for name in named))


def test_group(case: Case) -> dict[str, Any]:
    """Return a case as a group of promtool's test file."""
    alerts = [expected(BY_NAME[case.rule], alert) for alert in case.fires]
    return {
        "name": case.id,
        "interval": f"{STEP_SECONDS}s",
        "input_series": [{"series": one.text(), "values": one.values} for one in case.world],
        "alert_rule_test": [{"eval_time": f"{case.at}s", "alertname": case.rule, "exp_alerts": alerts}],
    }


test_group.__test__ = False  # type: ignore[attr-defined]


def judge(folder: Path, jobs: Sequence[tuple[Mapping[str, Any], Sequence[Case]]]) -> list[dict[str, str]]:
    """Run promtool once over all jobs. Returns, for each, what failed: the case's id -> what promtool said."""
    files: list[tuple[int, Path, tuple[Case, ...]]] = []
    for number, (rules, cases) in enumerate(jobs):
        (folder / f"rules-{number}.yml").write_text(yaml_text(rules), encoding="utf-8")
        for interval, together in by_interval(cases).items():
            path = folder / f"test-{number}-{interval}.yml"
            head = {"rule_files": [f"rules-{number}.yml"], "evaluation_interval": f"{interval}s"}
            path.write_text(yaml_text(head) + _cases_yaml(together), encoding="utf-8")
            files.append((number, path, together))
    said = promtool([path for _, path, _ in files])
    found: list[dict[str, str]] = [{} for _ in jobs]
    for number, path, together in files:
        found[number] |= _failures(said.get(str(path), ""), together)
    return found


def by_interval(cases: Sequence[Case]) -> dict[int, tuple[Case, ...]]:
    """Return the cases by how often rules must be evaluated: as rarely as their times allow, for speed."""
    found: dict[int, tuple[Case, ...]] = {}
    for case in cases:
        rule = BY_NAME[case.rule]
        remembered = REMEMBERED_SECONDS if looks_back(rule.name) else 0
        interval = math.gcd(case.at, rule.for_seconds, rule.keep_firing_seconds, remembered)
        found[interval] = (*found.get(interval, ()), case)
    return found


@cache
def looks_back(name: str) -> bool:
    """Tell whether a rule reads what was recorded some time ago."""
    return any(re.search(r"lastgood:\S+ offset", entry["expr"]) for entry in rule_file(name)["groups"][0]["rules"])


def promtool(files: Sequence[Path]) -> dict[str, str]:
    """Return what promtool says of each test file."""
    program = shutil.which("promtool")
    assert program, "promtool is missing: make programs"
    done = subprocess.run(
        [program, "test", "rules", *map(str, files)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
    )  # fmt: skip
    said = re.split(r"^Unit Testing:  (.*)$", done.stdout, flags=re.MULTILINE)
    return dict(zip(said[1::2], said[2::2], strict=True))


@cache
def _cases_yaml(cases: tuple[Case, ...]) -> str:
    return yaml_text({"tests": [test_group(case) for case in cases]})


def yaml_text(data: Mapping[str, Any]) -> str:
    return yaml.dump(data, Dumper=yaml.CSafeDumper, width=1_000_000, sort_keys=False)


def _failures(said: str, cases: Sequence[Case]) -> dict[str, str]:
    """Return what each case failed with; what promtool lays to no case is laid to all of them."""
    if said.strip() == "SUCCESS":
        return {}
    parts = re.split(r"^    name: (.*),$", said, flags=re.MULTILINE)
    named = {name: text for name, text in zip(parts[1::2], parts[2::2], strict=True) if text.strip()}
    return named if named and "err:" not in said else {case.id: said or "promtool said nothing" for case in cases}
