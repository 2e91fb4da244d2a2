"""The table of rules keeps its own promises: names, severities, texts, queries, the page about it."""

from __future__ import annotations

import re

import promql_parser
import pytest
from tests.alerts import promql_reading

from lastgood.events import CHECKS
from lastgood_alerts import thresholds
from lastgood_alerts.page import threshold_texts
from lastgood_alerts.queries import NEWEST, written_out
from lastgood_alerts.recordings import SCRAPED_RANKS
from lastgood_alerts.rule import SEVERITIES, Rule, Side
from lastgood_alerts.rules import BY_NAME, GROUPS, RECORDED, RECORDINGS, RULES
from lastgood_alerts.rules_findings import BY_CHECK

WANTED = {
    "NonfiniteGradients", "ConservationMismatch", "ReplicaMismatch", "ReplayMismatch", "NodeNotGpu",
    "NodeAccusedRepeatedly", "CheckpointSuspect", "NoTrustedCheckpoint", "CheckpointOverdue", "CheckpointSaveFailing",
    "ChecksStale", "GradNormOutlier", "RankSilent", "StepStalled", "RunVanished", "RestartStorm", "GoodputLow",
    "ThermalMarginLow", "PowerDeviates", "UncorrectedEcc", "ExporterErrors", "JournalUnreadable", "LedgerStale",
    "Watchdog",
}  # fmt: skip
CHECKS_WITHOUT_A_RULE = {"at_rest"}
"""Checks that lastgood does not run yet."""

each_rule = pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])


def queries_of(rule: Rule) -> list[str]:
    return [rule.condition, *(side.complete(rule.condition) for side in rule.sides)]


def test_every_rule_that_is_promised_is_there_once() -> None:
    names = [rule.name for rule in RULES]
    assert set(names) >= WANTED
    assert len(names) == len(set(names)) == len(BY_NAME)


def test_every_check_has_a_rule_of_its_own() -> None:
    assert {rule.check for rule in BY_CHECK} | CHECKS_WITHOUT_A_RULE == set(CHECKS)


def test_severities_are_three_and_each_is_used() -> None:
    assert SEVERITIES == ("critical", "warning", "info")
    assert {rule.severity for rule in RULES} == set(SEVERITIES)


@each_rule
def test_every_query_reads_only_series_and_labels_of_the_catalogue(rule: Rule) -> None:
    problems = [
        problem for query in queries_of(rule) for problem in promql_reading.problems(query, frozenset(RECORDED))
    ]
    assert problems == []


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_every_recording_reads_only_series_and_labels_of_the_catalogue(recording: object) -> None:
    assert promql_reading.problems(recording.query, frozenset(RECORDED)) == []  # type: ignore[attr-defined]


@each_rule
def test_a_condition_keeps_exactly_the_labels_of_its_rule(rule: Rule) -> None:
    """Prometheus prints nothing for a missing label and Grafana's template breaks."""
    parsed = promql_parser.parse(written_out(rule.condition, RECORDED))
    kept = labels_of(parsed)
    assert kept == set(rule.labels), f"{rule.condition} keeps {kept}"


def labels_of(node: promql_parser.Expr) -> set[str] | None:
    """Return the labels that a query keeps, as far as aggregations say; None: not known from here on."""
    if isinstance(node, promql_parser.AggregateExpr):
        return set(node.modifier.labels) if node.modifier else set()
    if isinstance(node, promql_parser.ParenExpr | promql_parser.UnaryExpr):
        return labels_of(node.expr)
    if isinstance(node, promql_parser.BinaryExpr):
        sides = [labels for labels in (labels_of(node.lhs), labels_of(node.rhs)) if labels is not None]
        return max(sides, key=len, default=None) if str(node.op) not in ("and", "unless") else labels_of(node.lhs)
    if isinstance(node, promql_parser.Call) and node.func.name == "label_replace":
        return labels_of(node.args[0])
    return set() if isinstance(node, promql_parser.Call) and node.func.name == "vector" else None


@each_rule
def test_a_text_names_the_run_the_step_to_resume_from_and_every_label(rule: Rule) -> None:
    said = (rule.summary + rule.description).replace("{who}", "{rank} {node} {gpu_uuid}")
    assert all(f"{{{label}}}" in said for label in rule.labels)
    if "run" in rule.labels:
        assert "{resume}" in rule.summary or "{last_good}" in rule.summary
        assert "{resume}" in rule.description or "{last_good}" in rule.description


@each_rule
def test_every_side_of_a_rule_is_said(rule: Rule) -> None:
    said = rule.summary + rule.description
    assert all(f"{{{side.name}}}" in said for side in rule.sides)


@each_rule
def test_a_rule_says_what_it_means_and_what_to_change(rule: Rule) -> None:
    assert rule.meaning.endswith(".")
    assert rule.change.endswith(".")
    assert rule.unit
    for name in re.findall(r"`([A-Z_]+)`", rule.change):
        assert hasattr(thresholds, name)


def test_every_threshold_says_when_to_change_it() -> None:
    names = [name for name in vars(thresholds) if name.isupper()]
    assert list(threshold_texts()) == names


def test_intervals_are_multiples_of_ten_seconds() -> None:
    assert all(group.interval_seconds % 10 == 0 for group in GROUPS)


def test_rules_about_findings_never_use_a_counter_of_a_rank() -> None:
    for rule in BY_CHECK:
        assert "_total" not in rule.condition


def test_names_of_recordings_are_written_out_whole_and_in_each_other() -> None:
    written = written_out("lastgood:grad_norm_local:mad > 0", RECORDED)
    assert "lastgood:" not in written
    assert written_out("lastgood:run_alive_more", RECORDED) == "lastgood:run_alive_more"
    assert written_out("lastgood:attempt_ranks", RECORDED) == f"({SCRAPED_RANKS.query})"
    assert written_out(NEWEST, RECORDED) == NEWEST


def test_an_offset_of_a_recording_is_written_at_each_of_its_selectors() -> None:
    """PromQL takes no offset behind a parenthesis."""
    recorded = {"lastgood:all": 'lastgood:a + lastgood_b{x="1"}[5m]', "lastgood:a": "max by (run) (DCGM_FI_DEV_X > 0)"}
    assert written_out("lastgood:a - lastgood:all offset 1h", recorded) == (
        "(max by (run) (DCGM_FI_DEV_X > 0)) - "
        '((max by (run) (DCGM_FI_DEV_X offset 1h > 0)) + lastgood_b{x="1"}[5m] offset 1h)'
    )


def test_a_rule_that_names_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"text uses \{nod\}, which is no label or side"):
        _rule(summary="node {nod}")


def test_a_rule_with_another_severity_is_refused() -> None:
    with pytest.raises(ValueError, match="severity 'page' is none of critical, warning, info"):
        _rule(severity="page")


def test_a_rule_whose_side_is_by_another_label_is_refused() -> None:
    with pytest.raises(ValueError, match="side 'x' is by"):
        _rule(sides=(Side(name="x", query="up", by=("node",)),))


def test_a_rule_with_a_name_in_words_is_refused() -> None:
    with pytest.raises(ValueError, match="CamelCase"):
        _rule(name="a rule")


def _rule(**changed: object) -> Rule:
    fields: dict[str, object] = {
        "name": "Some", "unit": "steps", "severity": "info", "condition": "up", "operator": ">", "threshold": 0,
        "labels": ("run",), "meaning": ".", "summary": "", "description": "", "link": "run", "change": ".",
    }  # fmt: skip
    return Rule(**{**fields, **changed})  # type: ignore[arg-type]
