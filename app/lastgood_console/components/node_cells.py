"""Decide what each cell of the fleet map says about its node: plain values, no chart.

Nodes are in the order of their names, or of their runs. What is not known is not drawn as zero: a node without a rank
in an active run has no value for what its ranks do (missing), one whose run has gone silent has an old one (stale).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Final, Literal

from lastgood.events import timestamp_of
from lastgood.state import CheckRound, RunState
from lastgood.wording import age_text, moment
from lastgood_console.components.devices import DAY, DeviceRow

Measure = Literal["accusations", "findings", "unhealthy", "seen"]
Overlay = Literal["stale", "missing", "nan"]
MEASURES: Final[Mapping[Measure, str]] = {
    "accusations": "Accusations, 90 d",
    "findings": "Findings, 90 d",
    "unhealthy": "Ranks not passed",
    "seen": "Last seen",
}
"""Measure -> what it is called."""
MEANS: Final[Mapping[Measure, str]] = {
    "accusations": "incidents of 90 days that accuse a device of the node",
    "findings": "findings of 90 days that name a rank on the node",
    "unhealthy": "ranks that run now and did not pass the newest round of a check",
    "seen": "how long ago the newest event of a run was that had ranks there",
}


@dataclass(frozen=True, slots=True)
class NodeCell:
    """A node. ``values``: None is missing, NaN is not a number; "seen" is in minutes. ``run``: where it ran last."""

    node: str
    run: str
    accused: int
    candidate: bool
    stale: bool
    values: Mapping[Measure, float | None] = field(hash=False)

    def overlay(self, measure: Measure) -> Overlay | None:
        """Return what stands in the cell in place of a value, or over an old one."""
        value = self.values[measure]
        if value is None:
            return "missing"
        if isnan(value):
            return "nan"
        return "stale" if self.stale else None

    def words(self, measure: Measure) -> str:
        """Return the value as words."""
        value, overlay = self.values[measure], self.overlay(measure)
        if value is None:
            return "no rank of an active run on this node"
        if overlay == "nan":
            return "× NaN"
        said = f"{age_text(60 * value)} ago" if measure == "seen" else f"{value:.0f}"
        return f"{said}, stale: its run is silent" if overlay == "stale" else said


def cells(
    found: Sequence[DeviceRow], states: Mapping[str, RunState], silent: Collection[str], now: float
) -> list[NodeCell]:
    """Return a cell for each node, by name. ``silent``: active runs that write nothing; ``now``: unix seconds."""
    by_node: dict[str, list[DeviceRow]] = {}
    for row in found:
        by_node.setdefault(row.place.node, []).append(row)
    findings, seats = _findings(states.values(), now - 90 * DAY), _seats(states.values())
    return [_cell(node, rows, findings[node], seats.get(node), silent, now) for node, rows in sorted(by_node.items())]


def _cell(
    node: str, rows: list[DeviceRow], findings: int, seats: tuple[str, int] | None, silent: Collection[str], now: float
) -> NodeCell:
    accused = len({(i.run, i.id) for row in rows for i in row.quarter})
    seen = max(row.last_seen for row in rows)
    run = seats[0] if seats else ""
    values: dict[Measure, float | None] = {
        "accusations": accused,
        "findings": findings,
        "unhealthy": seats[1] if seats else None,
        "seen": max(0.0, now - moment(seen).timestamp()) // 60,
    }
    return NodeCell(node, run, accused, any(row.undecided for row in rows), run in silent, values)


def _findings(states: Iterable[RunState], since: float) -> Counter[str]:
    found: Counter[str] = Counter()
    for state in states:
        for finding in state.findings:
            if timestamp_of(finding.at) >= since:
                found.update({place.node for place in finding.places})
    return found


def _seats(states: Iterable[RunState]) -> dict[str, tuple[str, int]]:
    """Return node -> an active run with ranks there, and how many of them did not pass the newest round of a check."""
    seats: dict[str, tuple[str, int]] = {}
    for state in states:
        if not state.active or state.attempt is None:
            continue
        odd = not_passed(newest_rounds(state.rounds, state.attempt.number), state.attempt.world_size)
        for place in state.attempt.places:
            _, before = seats.get(place.node, ("", 0))
            seats[place.node] = state.run, before + (place.rank in odd)
    return seats


def newest_rounds(rounds: Sequence[CheckRound], attempt: int) -> list[CheckRound]:
    """Return the newest round of each check in an attempt."""
    newest: dict[str, CheckRound] = {}
    for done in rounds:
        if done.attempt == attempt and (done.check not in newest or done.step >= newest[done.check].step):
            newest[done.check] = done
    return list(newest.values())


def not_passed(rounds: Iterable[CheckRound], world_size: int) -> set[int]:
    """Return the ranks that did not pass one of these rounds."""
    odd: set[int] = set()
    for done in rounds:
        if done.result == "not_run":
            odd.update(range(world_size))
        odd.update(rank for rank, (result, _) in done.exceptions.items() if result != "passed")
    return odd


def summary(found: Sequence[NodeCell], measure: Measure) -> str:
    """Return ``264 nodes · 1 accused · 3 stale · 2 without a value``."""
    overlays = Counter(cell.overlay(measure) for cell in found)
    counts = [
        (sum(cell.accused > 0 for cell in found), "accused"),
        (sum(cell.candidate for cell in found), "candidate"),
        (overlays["stale"], "stale"),
        (overlays["missing"], "without a rank now"),
        (overlays["nan"], "not a number"),
    ]
    nodes = f"{len(found)} node{'' if len(found) == 1 else 's'}"
    return " · ".join([nodes, *(f"{n} {word}" for n, word in counts if n)])
