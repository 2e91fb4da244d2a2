"""The reader of Grafana's file keeps to Grafana's rules, and takes what it cannot know for an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from tests.alerts.grafana_evaluator import (
    GrafanaFileError,
    Labels,
    Query,
    Sample,
    captures,
    evaluate,
    firing,
    interpolated,
    load,
)


def file(**changes: Any) -> str:
    """Return a file with one rule."""
    model = {"refId": "A", "expr": "up", "instant": True, "range": False} | changes.pop("model", {})
    evaluator = changes.pop("evaluator", {"type": "gt", "params": [5]})
    threshold = {"refId": "C", "type": "threshold", "expression": "A", "conditions": [{"evaluator": evaluator}]}
    side = {"refId": "B", "expr": "side", "instant": True}
    data = [
        {"refId": "A", "datasourceUid": "prom", "model": model},
        {"refId": "B", "datasourceUid": "prom", "model": side},
        {"refId": "C", "datasourceUid": "__expr__", "model": threshold | changes.pop("threshold", {})},
    ]
    rule = {"title": "TooHigh", "condition": "C", "data": data, "noDataState": "OK", "labels": {"severity": "info"}}
    return yaml.safe_dump({"groups": [{"folder": "lastgood", "rules": [rule | changes]}]})


def answers(**results: Mapping[float, Labels] | list[tuple[float, Labels]]) -> Query:
    """Return a query function that knows the results of ``up`` and ``side``."""
    return lambda expression: [Sample(labels, value) for value, labels in dict(results).get(expression, [])]  # type: ignore[misc]


UP = [(5.0, {"run": "a", "node": "x"}), (6.0, {"run": "b", "node": "y"})]


def test_each_label_set_is_an_instance_and_only_those_beyond_the_threshold_fire() -> None:
    rule = load(file())[0]
    assert [i.firing for i in evaluate(rule, answers(up=UP))] == [False, True]
    found = firing(rule, answers(up=UP))[0]
    assert found.labels == {
        "run": "b", "node": "y", "severity": "info", "alertname": "TooHigh", "grafana_folder": "lastgood",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "params", "fires"),
    [
        ("gt", [5], [False, True]), ("gte", [5], [True, True]), ("lt", [6], [True, False]), ("lte", [6], [True, True]),
        ("within_range", [5, 7], [False, True]), ("outside_range", [5.5, 9], [True, False]),
    ],
)  # fmt: skip
def test_a_threshold_does_what_its_name_says_at_the_boundary(kind: str, params: list[float], fires: list[bool]) -> None:
    rule = load(file(evaluator={"type": kind, "params": params}))[0]
    assert [i.firing for i in evaluate(rule, answers(up=UP))] == fires


def test_a_side_value_is_found_by_equal_containing_and_contained_labels() -> None:
    for labels in ({"run": "b"}, {"run": "b", "node": "y"}, {"run": "b", "node": "y", "rank": "3"}, {}):
        rule = load(file(annotations={"summary": '{{ printf "%.0f" $values.B.Value }}'}))[0]
        assert firing(rule, answers(up=UP, side=[(50.0, labels)]))[0].annotations == {"summary": "50"}


def test_a_side_value_of_somebody_else_is_missing_and_breaks_the_text() -> None:
    rule = load(file(annotations={"summary": "{{ $values.B.Labels.run }}"}))[0]
    with pytest.raises(GrafanaFileError, match="TooHigh: .*there is no B"):
        firing(rule, answers(up=UP, side=[(50.0, {"run": "a"})]))


def test_two_side_values_for_one_instance_are_an_error() -> None:
    with pytest.raises(GrafanaFileError, match="2 samples"):
        captures({"run": "a"}, {"B": [Sample({"run": "a", "rank": "1"}, 1), Sample({"run": "a", "rank": "2"}, 2)]})


def test_a_condition_that_is_no_number_is_an_error() -> None:
    with pytest.raises(GrafanaFileError, match="NaN"):
        firing(load(file())[0], answers(up=[(math.nan, {"run": "a"})]))


def test_a_metric_name_among_the_labels_is_an_error() -> None:
    with pytest.raises(GrafanaFileError, match="name would be a label"):
        firing(load(file())[0], answers(up=[(9.0, {"__name__": "up"})]))


def test_no_data_is_healthy_only_where_the_rule_says_so() -> None:
    assert firing(load(file())[0], answers()) == []
    with pytest.raises(GrafanaFileError, match="has no data"):
        firing(load(file(noDataState="NoData"))[0], answers())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"condition": "A"}, "is no expression"),
        ({"model": {"instant": False}}, "no instant query"),
        ({"model": {"range": True}}, "no instant query"),
        ({"threshold": {"type": "reduce"}}, "not one threshold"),
    ],
)
def test_a_rule_that_needs_more_than_we_read_is_an_error(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(GrafanaFileError, match=problem):
        load(file(**changes))


def test_a_dollar_is_replaced_in_labels_and_titles_and_not_in_annotations_and_queries() -> None:
    text = file(title="$WHO", labels={"a": "${WHO}$$x"}, model={"expr": "$WHO"}, annotations={"s": "{{ $labels.run }}"})
    rule = load(text, {"WHO": "me"})[0]
    assert (rule.title, rule.labels, rule.queries["A"]) == ("me", {"a": "me$x"}, "$WHO")
    assert firing(rule, answers(up=UP))[1:] == []  # $WHO is another query than up
    assert rule.annotations == {"s": "{{ $labels.run }}"}


def test_braces_after_a_dollar_in_an_annotation_are_an_error() -> None:
    with pytest.raises(GrafanaFileError, match="new versions of Grafana"):
        firing(load(file(annotations={"s": "${HOME}"}))[0], answers(up=UP))


@pytest.mark.parametrize(("text", "becomes"), [("$X", "1"), ("${X}", "1"), ("$$X", "$X"), ("$Y", ""), ("a$$", "a$")])
def test_environment_variables_are_replaced_as_grafana_does(text: str, becomes: str) -> None:
    assert interpolated(text, {"X": "1"}) == becomes
