"""What every alert says, word for word. The cases hold the templates of both systems to the same texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.alerts.cases_everywhere import first_firing
from tests.alerts.promtool_cases import expected

from lastgood_alerts.rule import Rule, Side
from lastgood_alerts.rules import BY_NAME, RULES
from lastgood_alerts.rules_devices import DEVICE_RULES
from lastgood_alerts.text import GrafanaDialect, PrometheusDialect, annotations_of, link, render

TEXTS: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "texts.yml").read_text(encoding="utf-8"))

each_rule = pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])


@each_rule
def test_an_alert_says_exactly_this(rule: Rule) -> None:
    """In the first case in which it fires; after a change of words run the test and copy what it shows."""
    said: dict[str, Any] = expected(rule, first_firing(rule.name).fires[0])["exp_annotations"]
    assert {name: said[name] for name in ("summary", "description", "console_url")} == TEXTS[rule.name]


def test_every_text_belongs_to_a_rule() -> None:
    assert set(TEXTS) == set(BY_NAME)


@each_rule
def test_an_alert_links_to_its_runbook_on_the_console(rule: Rule) -> None:
    for dialect in (PrometheusDialect(), GrafanaDialect()):
        said = annotations_of(rule, dialect, "https://console.example/lastgood/")
        assert said["runbook_url"] == f"https://console.example/lastgood/runbook?name={rule.name}"
        assert said["console_url"].startswith("https://console.example/lastgood")
        assert "//" not in said["console_url"].removeprefix("https://")


def test_the_watchdog_leads_to_the_page_of_alerts() -> None:
    for dialect in (PrometheusDialect(), GrafanaDialect()):
        said = annotations_of(BY_NAME["Watchdog"], dialect, "https://console.example/lastgood/")
        assert said["console_url"] == "https://console.example/lastgood/alerts"


@pytest.mark.parametrize("name", [rule.name for rule in DEVICE_RULES])
def test_a_text_says_the_value_of_its_alert_once(name: str) -> None:
    alert = first_firing(name).fires[0]
    said: dict[str, Any] = expected(BY_NAME[name], alert)["exp_annotations"]
    for text in (said["summary"], said["description"]):
        about = text.partition(" Last good checkpoint")[0]
        assert len(re.findall(rf"(?<![\w-]){alert.value:.0f}(?![\w-])", about)) == 1, text


@each_rule
def test_the_two_dialects_differ_in_values_alone(rule: Rule) -> None:
    assert link(rule).count("$value") == 0
    prometheus, grafana = (render(rule.summary, rule, dialect) for dialect in (PrometheusDialect(), GrafanaDialect()))
    assert "$values" not in prometheus
    assert "query" not in grafana
    assert "$value " not in grafana


def test_grafana_never_reads_a_brace_after_a_dollar() -> None:
    """A file's ``${X}`` may be taken for an environment variable."""
    for rule in RULES:
        assert all("${" not in text for text in annotations_of(rule, GrafanaDialect(), "http://c").values())


def test_a_side_query_answers_for_every_instance_of_the_condition() -> None:
    side = Side(name="x", query="max by (run) (a)", by=("run",))
    assert side.complete("b") == "(max by (run) (a)) or on (run) (group by (run) (b) - 3)"


def test_a_number_is_never_written_with_an_exponent() -> None:
    rule = BY_NAME["ReplayMismatch"]
    assert '{{ printf "%.0f" $value }}' in render("{resume}", rule, PrometheusDialect())
    assert '{{ printf "%.0f" $values.A.Value }}' in render("{resume}", rule, GrafanaDialect())
