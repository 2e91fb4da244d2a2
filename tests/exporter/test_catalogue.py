"""The catalogue keeps the rules that Prometheus and its alerts depend on."""

from __future__ import annotations

from math import prod

import pytest

from lastgood.catalogue import BY_NAME, METRICS, RANK_METRICS, RUN_METRICS, Metric, exported, label_value

FORBIDDEN = {"step", "hash", "path", "time", "timestamp", "fingerprint", "le", "job", "instance", "type"}


def series(metric: Metric) -> int:
    """Series of one rank, run, incident or device: closed sets multiply, open ones count once."""
    return len(metric.series_names) * prod(len(values) for values in metric.values.values())


def test_a_rank_has_exactly_36_series_with_all_checks_and_sensors() -> None:
    assert sum(map(series, RANK_METRICS)) == 36


def test_a_rank_has_36_series_of_which_6_are_its_devices() -> None:
    assert sum(map(series, exported("rank"))) == 36
    assert sum(series(metric) for metric in exported("rank") if metric.name.startswith("lastgood_gpu_")) == 6


def test_every_run_metric_is_exported() -> None:
    assert all(metric.exported for metric in RUN_METRICS)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_name_says_kind_and_unit(metric: Metric) -> None:
    assert metric.name.startswith("lastgood_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    if metric.unit in {"seconds", "watts", "joules", "celsius", "ratio", "info"}:
        assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_label_holds_what_has_no_bound(metric: Metric) -> None:
    assert not FORBIDDEN & set(metric.labels)
    assert len(set(metric.labels)) == len(metric.labels)
    assert all(metric.values[label] for label in metric.values)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_help_is_one_line_without_a_full_stop(metric: Metric) -> None:
    assert "\n" not in metric.help
    assert not metric.help.endswith(".")
    assert metric.note == "" or metric.note.endswith(".")


def test_every_rank_metric_says_run_rank_and_node() -> None:
    assert all(metric.labels[:3] == ("run", "rank", "node") for metric in RANK_METRICS)


def test_every_run_metric_but_the_node_history_says_run() -> None:
    assert [metric.name for metric in RUN_METRICS if metric.labels[:1] != ("run",)] == ["lastgood_node_accusations"]


def test_wrong_number_of_label_values_is_an_error() -> None:
    metric = BY_NAME["lastgood_step"]
    with pytest.raises(ValueError, match="zip"):
        metric.add(metric.family(), ("run",), 1.0)


@pytest.mark.parametrize(("value", "shown"), [(None, "unknown"), ("", "unknown"), (0, "0"), ("node-b", "node-b")])
def test_a_label_is_never_empty(value: object, shown: str) -> None:
    assert label_value(value) == shown
