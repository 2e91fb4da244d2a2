"""Add the outcomes of a drill up: cells, rows, targets. Pure; terminal, JSON, picture and docs show these numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from lastgood.drill.plan import ALL_ROWS, BYTE, COLUMNS, CONTROL
from lastgood.drill.score import Outcome

VERSION: Final = 1
COLUMNS_MEAN: Final = (
    "inside: inside the documented reach of a check; found: of those. median, worst: steps from the first faulty one "
    "to the finding. right, wrong, nobody: who was accused. windows: those that contain the first faulty step after "
    "the last passed audit. escapes: faulty steps before a window."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The outcomes of one cell, one row or all: counts of trials; latencies in steps."""

    trials: int = 0
    detected: int = 0
    missed: int = 0
    beyond: int = 0
    outside: int = 0
    no_effect: int = 0
    right: int = 0
    wrong: int = 0
    undecided: int = 0
    latency_median: float | None = None
    latency_worst: int | None = None
    windows: int = 0
    windows_right: int = 0
    escapes: int = 0
    """Faulty steps before a window."""
    escaped: int = 0
    """Trials with such steps whose last good checkpoint is a faulty one."""
    false: int = 0
    complaints: int = 0
    checks: tuple[str, ...] = ()

    @property
    def inside(self) -> int:
        """Return how many trials were inside reach."""
        return self.detected + self.missed


@dataclass(frozen=True, slots=True)
class Target:
    """One target: what was asked of how many trials, and how many of them met it."""

    name: str
    met: int
    of: int

    @property
    def reached(self) -> bool:
        """Tell whether every trial met it."""
        return self.met == self.of


def tally(outcomes: Iterable[Outcome]) -> Tally:
    """Add outcomes up."""
    listed = list(outcomes)
    results = Counter(o.result for o in listed)
    blames = Counter(o.blame for o in listed if o.result in ("detected", "beyond"))
    late = [o.latency for o in listed if o.latency is not None and o.result == "detected"]
    windows = [o.window for o in listed if o.window is not None and o.result == "detected"]
    return Tally(
        trials=len(listed),
        detected=results["detected"],
        missed=results["missed"],
        beyond=results["beyond"],
        outside=results["outside"],
        no_effect=results["no effect"],
        right=blames["right"],
        wrong=sum(o.blame == "wrong" for o in listed),
        undecided=blames["undecided"],
        latency_median=statistics.median(late) if late else None,
        latency_worst=max(late, default=None),
        windows=len(windows),
        windows_right=sum(windows),
        escapes=sum(o.escapes for o in listed),
        escaped=sum(o.escapes > 0 and o.last_good is False for o in listed),
        false=sum(o.false for o in listed),
        complaints=sum(bool(o.complaints) for o in listed),
        checks=tuple(sorted({check for o in listed if o.result == "detected" for check in o.checks})),
    )


def rows(outcomes: Sequence[Outcome]) -> dict[str, Tally]:
    """Return row of the matrix -> its tally, without the controls; rows that were not tried are left out."""
    return {row: tally(mine) for row in ALL_ROWS if (mine := [o for o in outcomes if o.row == row])}


def kinds(outcomes: Sequence[Outcome]) -> dict[str, Tally]:
    """Return kind of fault -> its tally over all sites of the matrix."""
    return {k: tally(mine) for k in (*COLUMNS, BYTE) if (mine := [o for o in _faults(outcomes) if o.kind == k])}


def cells(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], Tally]:
    """Return (row, kind) -> its tally."""
    keys = dict.fromkeys((o.row, o.kind) for o in _faults(outcomes))
    return {key: tally(o for o in outcomes if (o.row, o.kind) == key) for key in keys}


def controls(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the trials without a fault."""
    return [o for o in outcomes if o.row == CONTROL]


def targets(outcomes: Sequence[Outcome]) -> list[Target]:
    """Return the targets of a drill, and how far each was reached."""
    found = [o for o in _faults(outcomes) if o.result == "detected"]
    inside = [o for o in _faults(outcomes) if o.result in ("detected", "missed")]
    exact = [o for o in found if o.names]
    permanent = [o for o in found if o.when == "permanent" and o.window is not None]
    other = [o for o in found if o.when != "permanent" and o.window is not None]
    good = [o for o in found if o.last_good is not None and not o.escapes]
    clean = controls(outcomes)
    return [
        Target("inside reach: detected", len(found), len(inside)),
        Target("exact evidence: the right device named", sum(o.blame == "right" for o in exact), len(exact)),
        Target("no healthy device accused", sum(o.blame != "wrong" for o in outcomes), len(outcomes)),
        Target("permanent: the window contains the onset", sum(bool(o.window) for o in permanent), len(permanent)),
        Target("others: the window contains the first faulty step after the last passed audit",
               sum(bool(o.window) for o in other), len(other)),
        Target("no faulty save is the last good one", sum(bool(o.last_good) for o in good), len(good)),
        Target("controls without a finding", sum(o.result == "clean" for o in clean), len(clean)),
        Target("nothing else went wrong", sum(not o.complaints for o in outcomes), len(outcomes)),
    ]  # fmt: skip


def document(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a drill as plain data: what was run, the targets, rows, kinds, and every trial."""
    return {
        "version": VERSION,
        "about": dict(about),
        "targets": [{"name": t.name, "met": t.met, "of": t.of, "reached": t.reached} for t in targets(outcomes)],
        "rows": {row: asdict(found) for row, found in rows(outcomes).items()},
        "kinds": {kind: asdict(found) for kind, found in kinds(outcomes).items()},
        "clean_steps": sum(o.steps for o in controls(outcomes)),
        "trials": [asdict(outcome) for outcome in outcomes],
    }


def _faults(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if o.row != CONTROL]
