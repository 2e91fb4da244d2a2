"""Say which check must see a fault and by when: the documented reach, as a table and for one trial. Pure.

The table is for people (docs/drill.md is made from it). For one trial the conditions are looked up in the ranks' own
truth: a transient fault in a layer is inside reach when its step was audited *and* the gradient really changed; a
wrong value in the averaging when it is above the tolerance; a flipped bit of a weight when the replicas really differ
at a comparison. So nothing is excused because a check was silent, and nothing is asked of a check that it never saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastgood.drill.plan import ARBITER, BATCH, CHECKPOINT, Trial
from lastgood.drill.truth import Truth
from lastgood.stepvector import CALIBRATION_LIMIT

CONSERVATION_LIMIT: Final = 4e-6 * CALIBRATION_LIMIT
"""Share of the local norms above which conservation must see a float32 reduce: the tolerance, raised tenfold."""
LOAD: Final = "load"
"""Stands for the fingerprint that is compared when a checkpoint is loaded."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the documented reach."""

    rows: str
    when: str
    checks: tuple[str, ...]
    condition: str
    within: str


_LAYER = "activation, gradient, weight gradient"
_REDUCE = "local bucket, reduced (all ranks or one)"

RULES: Final = (
    Rule("any site", "any", ("finite",), "a loss or gradient is not finite", "the same step"),
    Rule(_LAYER, "transient", ("replay",), "the step is audited and the gradient changed", "the same step"),
    Rule(_LAYER, "intermittent", ("replay",), "it happened in an audited step and the gradient changed",
         "the same step"),
    Rule(_LAYER, "permanent", ("replay",), "the gradient of an audited step changed", "one replay cadence"),
    Rule(_REDUCE, "any", ("conservation", "finite"), "the projections differ by more than ten times the tolerance",
         "the same step; the next one where a single rank's result is off by less than the ranks together show"),
    Rule("weight", "any", ("replica",), "the weights differ at a comparison", "one replica cadence, or the next save"),
    Rule("optimizer", "any", ("replica",), "the state differs at a comparison that reads it, or the weights at any",
         "one cadence of the state (`state_every`), or the next save"),
    Rule("at rest", "any", ("at_rest",), "it happens in a sampled step", "the same step"),
    Rule("at rest", "any", ("replica",), "weights or state differ at a comparison that reads them",
         "one cadence of it, or the next save"),
    Rule("data batch", "any", ("finite",), "the loss is not finite", "the same step; cleared, nobody is accused"),
    Rule("checkpoint on disk", "after the save", (LOAD,), "always", "when it is loaded or verified"),
    Rule("the arbiter and another device", "permanent", (), "outside reach",
         "replay is *not run* from then on; nobody is accused"),
)  # fmt: skip
"""Site x when -> the checks that must see it, under which condition, and within how many steps."""


def rules_table() -> list[str]:
    """Return the table as Markdown lines."""
    rows = (
        (rule.rows, rule.when, ", ".join(f"`{c}`" if c != LOAD else "the fingerprint" for c in rule.checks) or "none",
         rule.condition, rule.within)
        for rule in RULES
    )  # fmt: skip
    head = ["| where | when | must be found by | if | within |", "|---|---|---|---|---|"]
    return head + [f"| {' | '.join(row)} |" for row in rows]


@dataclass(frozen=True, slots=True)
class Demand:
    """One thing that must be found: by one of ``checks``, at a step from ``step`` to ``latest``."""

    checks: tuple[str, ...]
    step: int
    latest: int


def demands(trial: Trial, truth: Truth, injected: Sequence[Mapping[str, Any]]) -> Iterator[Demand]:
    """Yield what must be found in a trial. ``injected``: the journaled truth of what happened in training."""
    if trial.row == CHECKPOINT:
        yield Demand((LOAD,), trial.steps, trial.steps)
        return
    if not injected:
        return
    first = min(int(data["step"]) for data in injected)
    yield from (Demand(("finite", "conservation"), s, s) for s in truth.nonfinite if s >= first)
    if trial.row in (ARBITER, BATCH):
        return
    yield from (Demand(("replay", "finite"), s, s) for s in _replayed(trial, truth))
    yield from (Demand(("at_rest",), s, s) for s in _rested(trial, injected))
    yield from _replica(trial, truth)
    yield from _conservation(trial, truth, injected)


def _replayed(trial: Trial, truth: Truth) -> Iterator[int]:
    """Yield the audited steps whose gradient the fault changed; ranks with other weights cannot replay each other."""
    for step, ranks in sorted(truth.changed.items()):
        if ranks and truth.agrees(step - 1, state=trial.reads_state(step)):
            yield step


def _rested(trial: Trial, injected: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the sampled steps in which memory changed while nobody wrote."""
    yield from (int(d["step"]) for d in injected if d["site"] == "at-rest" and trial.rests(int(d["step"])))


def _replica(trial: Trial, truth: Truth) -> Iterator[Demand]:
    for step in range(1, trial.steps + 1):
        if trial.compares(step) and not truth.agrees(step - 1, state=trial.reads_state(step)):
            yield Demand(("replica",), step, step)
        if trial.saves(step) and not truth.agrees(step, state=True):
            yield Demand(("replica",), step, step)


def _conservation(trial: Trial, truth: Truth, injected: Sequence[Mapping[str, Any]]) -> Iterator[Demand]:
    ranks = len(truth.weights[0])
    for data in injected:
        step, scale = int(data["step"]), truth.scales[int(data["step"])]
        if "projected_difference" not in data or not scale:
            continue
        shown = float(data["projected_difference"]) / scale
        if not shown > CONSERVATION_LIMIT:
            continue
        together = shown / ranks if data["site"] == "reduce-one" else shown
        latest = step if together > CONSERVATION_LIMIT else step + 1
        if latest <= trial.steps:
            yield Demand(("conservation", "finite"), step, latest)


def firsts(asked: Sequence[Demand]) -> list[Demand]:
    """Return the first demand of each set of checks."""
    out: dict[tuple[str, ...], Demand] = {}
    for demand in sorted(asked, key=lambda d: (d.step, d.latest)):
        out.setdefault(demand.checks, demand)
    return list(out.values())
