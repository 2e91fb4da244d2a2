"""Cases of every rule about nodes at the boundary where its nodes are no longer named one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.alerts.cases_devices import each, fleet, named, on_node
from tests.alerts.promtool_cases import Alert, Case
from tests.alerts.world import RUN, World, healthy, rank_series


@dataclass(frozen=True, kw_only=True)
class Row:
    """How to make a node bad. A reading is what the alert says of a value."""

    rule: str
    metric: str
    good: float
    """The value of all others."""
    bad: float
    reading: float
    worse: float
    worst_reading: float
    still_good: tuple[float, float]
    """Values that are not bad: the last one, and one within it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    at: int = 900


ROWS: Final = (
    Row(
        rule="GradNormOutlier",
        metric="grad_norm",
        good=100,
        bad=110,
        reading=10,
        worse=120,
        worst_reading=20,
        still_good=(108, 105),
        labels={"stage": "local"},
        at=120,
    ),
    Row(
        rule="ThermalMarginLow",
        metric="gpu_temperature_margin_celsius",
        good=20,
        bad=4,
        reading=4,
        worse=1,
        worst_reading=1,
        still_good=(5, 6),
    ),
    Row(
        rule="PowerDeviates",
        metric="gpu_power_watts",
        good=600,
        bad=420,
        reading=30,
        worse=150,
        worst_reading=75,
        still_good=(750, 700),
    ),
    Row(
        rule="UncorrectedEcc",
        metric="gpu_ecc_uncorrected_total",
        good=0,
        bad=1,
        reading=1,
        worse=3,
        worst_reading=3,
        still_good=(0, 0),
        at=120,
    ),
)


def several_cases(row: Row) -> Iterator[Case]:
    """Yield seven bad nodes, eight, eight beside a run with one, and two with the same rank."""
    even = _even(row, fleet(20))
    bad = dict.fromkeys(range(7), row.bad)
    seven = _set(row, even, {**bad, 7: row.still_good[0], 8: row.still_good[1]})
    eight = _set(row, even, {**bad, 7: row.bad, 5: row.worse})
    other = _set(row, _even(row, healthy("other")), {3: row.bad}, run="other")
    one_by_one = named(7, row.reading)
    together = _alert(row, row.worst_reading, "rank 5 on node node-05 (GPU GPU-0005)", "several")
    twice = _set(row, _even(row, healthy().plus(rank_series(RUN, 3, "node-c", 0, 1))), {3: row.bad})
    neighbour = _alert(row, row.reading, "rank 3 on node node-b (GPU GPU-0003)", "node-b", run="other")
    for name, world, fires in (
        ("names seven nodes one by one, beside two that are just good", seven, one_by_one),
        ("makes one alert of eight nodes", eight, (together,)),
        ("names the node of a run beside one with too many", eight.plus(other), (together, neighbour)),
        (
            "names a rank at each place where it reports",
            twice,
            tuple(
                _alert(row, row.reading, f"rank 3 on node {node} (GPU GPU-0003)", node) for node in ("node-b", "node-c")
            ),
        ),
    ):
        yield Case(row.rule, name, world, fires, row.at)


def _even(row: Row, world: World) -> World:
    return world.all_of(f"lastgood_{row.metric}", row.good)


def _set(row: Row, world: World, values: Mapping[int, float], **run: str) -> World:
    return each(world, row.metric, values, **run, **row.labels)


def _alert(row: Row, value: float, who: str, node: str, **run: str) -> Alert:
    return on_node(value, who, node, **run)


CASES: Final = [case for row in ROWS for case in several_cases(row)]
