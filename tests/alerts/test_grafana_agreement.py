"""Grafana's rule file and Prometheus's say the same: the same instances, labels and texts on the same data.

Prometheus is real and evaluates its own file. Grafana's file is evaluated by our own reader (``grafana_evaluator``)
with the queries that Grafana would send, at the very time at which Prometheus evaluated. So this tests our file, not
Grafana's engine.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.alerts import grafana_evaluator, worlds
from tests.alerts.grafana_evaluator import GrafanaFileError, GrafanaRule, Threshold
from tests.e2e.real_servers import free_port, wait_for

from lastgood_alerts import grafana_files, prometheus
from lastgood_alerts.rules import RULES

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

NEVER = "0001-01-01T00:00:00Z"
EVERY_SECONDS = 5
NAMES = [rule.name for rule in RULES]
GRAFANA_RULES = {rule.title: rule for rule in grafana_evaluator.load(grafana_files.rules_file())}
RECORDED_RULES = {rule.title: rule for rule in grafana_evaluator.load(grafana_files.rules_file(recorded=True))}

Alert = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Labels and texts of one instance."""


@dataclass
class Server:
    """A Prometheus that holds a world and evaluates our rules on it."""

    url: str

    def get(self, path: str, **form: str) -> Any:
        query = f"?{urllib.parse.urlencode(form)}" if form else ""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def groups(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("rules")["groups"]
        return found

    def evaluated(self) -> bool:
        """Tell whether our group has been read and evaluated."""
        return [group["lastEvaluation"] != NEVER for group in self.groups()] == [True]

    @cached_property
    def alerts(self) -> dict[str, tuple[float, list[Alert]]]:
        """Return rule -> when it was evaluated (Unix seconds), and its instances, as they were at that moment."""
        at, group = wait_for(self._at_rest)
        assert {rule["health"] for rule in group["rules"]} == {"ok"}, [rule.get("lastError") for rule in group["rules"]]
        rules = [rule for rule in group["rules"] if rule["type"] == "alerting"]
        return {rule["name"]: (at, [_alert(one) for one in rule["alerts"]]) for rule in rules}

    def _at_rest(self) -> tuple[float, dict[str, Any]] | None:
        """Return the time of an evaluation that is over and what it gave; None while the next one may have begun."""
        at = self._evaluated_at()
        (group,) = self.groups()
        over = at <= datetime.fromisoformat(group["lastEvaluation"]).timestamp()
        return (at, group) if over and at == self._evaluated_at() and time.time() < at + EVERY_SECONDS - 0.2 else None

    def _evaluated_at(self) -> float:
        """Return the time with which Prometheus has marked an alert that always fires: from its second look on."""
        marked = self.get("query", query='ALERTS{alertname="Watchdog"}[1m]')["result"]
        return float(marked[0]["values"][-1][0]) if marked else math.inf


def _alert(alert: dict[str, Any]) -> Alert:
    return tuple(sorted(alert["labels"].items())), tuple(sorted(alert["annotations"].items()))


def _of_grafana(instance: grafana_evaluator.Instance) -> Alert:
    assert instance.labels["grafana_folder"] == "lastgood"
    labels = {name: value for name, value in instance.labels.items() if name != "grafana_folder"}
    return tuple(sorted(labels.items())), tuple(sorted(instance.annotations.items()))


def one_group() -> str:
    """Return our rules in one group: alerts then see what was recorded at the very same time."""
    groups: list[Any] = prometheus.rule_groups()
    rules = [rule for group in groups for rule in group["rules"]]
    return yaml.safe_dump({"groups": [{"name": "all", "interval": f"{EVERY_SECONDS}s", "rules": rules}]})


World = Callable[[float, Path], worlds.World]


def start(world: World, folder: Path, program: str) -> Iterator[Server]:
    """Fill a storage with a world and start a Prometheus on it."""
    promtool = shutil.which("promtool")
    assert promtool, "promtool comes with prometheus"
    world(time.time(), folder).load(promtool, folder / "tsdb")
    (folder / "rules.yml").write_text(one_group(), encoding="utf-8")
    config = folder / "prometheus.yml"
    config.write_text(f"rule_files: [{folder / 'rules.yml'}]\n", encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=error",
               f"--web.listen-address={address}"]  # fmt: skip
    with subprocess.Popen(command) as process:
        server = Server(f"http://{address}")
        try:
            wait_for(server.evaluated)
            yield server
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[Server]:
    yield from start(worlds.faulty, tmp_path_factory.mktemp("faulty"), prometheus_program)


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[Server]:
    yield from start(worlds.awkward, tmp_path_factory.mktemp("awkward"), prometheus_program)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[Server]:
    yield from start(worlds.healthy, tmp_path_factory.mktemp("healthy"), prometheus_program)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[Server]:
    yield from start(worlds.empty, tmp_path_factory.mktemp("empty"), prometheus_program)


def agree(server: Server, name: str, rule: GrafanaRule | None = None) -> list[Alert]:
    """Return the instances of a rule, after both have said the same. ``rule``: another one than that of the file."""
    at, expected = server.alerts[name]
    query = grafana_evaluator.prometheus_query(server.url, at)
    found = [_of_grafana(instance) for instance in grafana_evaluator.firing(rule or GRAFANA_RULES[name], query)]
    assert sorted(found) == sorted(expected)
    return found


def test_both_files_have_the_same_rules() -> None:
    assert list(GRAFANA_RULES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_both_fire_alike_where_everything_is_wrong(faulty: Server, name: str) -> None:
    assert agree(faulty, name)


@pytest.mark.parametrize("name", NAMES)
def test_both_fire_alike_among_traps(awkward: Server, name: str) -> None:
    agree(awkward, name)


@pytest.mark.parametrize("name", NAMES)
def test_both_fire_alike_where_grafana_reads_the_recordings(faulty: Server, name: str) -> None:
    assert agree(faulty, name, RECORDED_RULES[name])


def test_among_traps_findings_and_renamed_nodes_are_still_seen(awkward: Server) -> None:
    firing = {name for name, (_, alerts) in awkward.alerts.items() if alerts}
    assert {"ReplayMismatch", "CheckpointSuspect", "GradNormOutlier", "ThermalMarginLow"} <= firing
    nodes = {dict(labels)["node"] for labels, _ in awkward.alerts["ThermalMarginLow"][1]}
    assert nodes == {"node-c"}


@pytest.mark.parametrize("name", NAMES)
def test_both_are_silent_about_a_healthy_run(healthy: Server, name: str) -> None:
    assert bool(agree(healthy, name)) == (name == "Watchdog")


@pytest.mark.parametrize("name", NAMES)
def test_both_are_silent_where_nobody_has_trained(empty: Server, name: str) -> None:
    assert bool(agree(empty, name)) == (name == "Watchdog")


def changed(rule: GrafanaRule, what: str) -> GrafanaRule:
    """Return a rule that is wrong in one place."""
    if what == "threshold":
        limit = rule.threshold.params[0]
        return replace(rule, threshold=Threshold("A", "gt" if rule.threshold.fires(limit - 1) else "lt", (limit,)))
    if what == "label":
        return replace(rule, labels={**rule.labels, "severity": "none"})
    if what == "text":
        return replace(rule, annotations={**rule.annotations, "summary": rule.annotations["summary"] + "."})
    return replace(rule, queries={**rule.queries, "A": f"sum({rule.queries['A']})"})


@pytest.mark.parametrize("what", ["threshold", "label", "text", "a dropped by"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "Watchdog"])
def test_a_file_that_is_wrong_in_one_place_is_found(faulty: Server, name: str, what: str) -> None:
    with pytest.raises((AssertionError, GrafanaFileError)):
        agree(faulty, name, changed(GRAFANA_RULES[name], what))
