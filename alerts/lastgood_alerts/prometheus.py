"""Render the table as rules that Prometheus, Mimir, Thanos or vmalert load."""

from __future__ import annotations

from typing import Final

from lastgood_alerts.rule import Group, Recording, Rule
from lastgood_alerts.rules import GROUPS
from lastgood_alerts.text import PrometheusDialect, annotations_of
from lastgood_alerts.yaml_text import Data, yaml_text

CONSOLE_URL: Final = "http://localhost:8490"
"""Where a browser finds the console, unless said otherwise."""
COMPONENT: Final = "lastgood"
"""Value of the label ``component`` on every alert, to route them by."""
GENERATED: Final = "Generated from lastgood's table of alert rules, by `make generate` or `lastgood rules`."


def rules_yaml(*, console_url: str = CONSOLE_URL, interval_seconds: int | None = None) -> str:
    """Return a rule file. ``interval_seconds`` replaces the interval of every group, for a trial on one machine."""
    groups = rule_groups(console_url=console_url, interval_seconds=interval_seconds)
    return yaml_text({"groups": groups}, GENERATED)


def recordings_yaml(*, interval_seconds: int | None = None) -> str:
    """Return a rule file of the recordings alone, for rules that Grafana evaluates."""
    groups = [_group(group, CONSOLE_URL, interval_seconds) for group in GROUPS if group.recordings]
    return yaml_text({"groups": groups}, GENERATED)


def rule_groups(*, console_url: str = CONSOLE_URL, interval_seconds: int | None = None) -> list[Data]:
    """Return the groups of a rule file as plain data."""
    return [_group(group, console_url, interval_seconds) for group in GROUPS]


def _group(group: Group, console_url: str, interval_seconds: int | None) -> Data:
    rules: list[Data] = [_recording(recording) for recording in group.recordings]
    rules += [_alert(rule, console_url) for rule in group.rules]
    return {"name": group.name, "interval": f"{interval_seconds or group.interval_seconds}s", "rules": rules}


def _recording(recording: Recording) -> Data:
    return {"record": recording.name, "expr": recording.query}


def _alert(rule: Rule, console_url: str) -> Data:
    alert: dict[str, Data] = {
        "alert": rule.name,
        "expr": f"({rule.condition}) {rule.operator} {rule.threshold_text}",
    }
    if rule.for_seconds:
        alert["for"] = f"{rule.for_seconds}s"
    if rule.keep_firing_seconds:
        alert["keep_firing_for"] = f"{rule.keep_firing_seconds}s"
    return alert | {
        "labels": {"severity": rule.severity, "component": COMPONENT},
        "annotations": annotations_of(rule, PrometheusDialect(), console_url),
    }
