"""Drill a user's own script: which faults, and what came of each under the settings of the script. Pure.

A script is run once without any check, once watched and clean, and once per fault. There are no ranks' own truths here:
what is told is whether these settings caught the fault, when, and if not, why.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple

from lastgood.drill.own_reach import NOTHING, Noted, Unfound, unfound
from lastgood.drill.plan import BATCH, CHANCE, CONTROL, ROWS, Trial
from lastgood.fault_specs import Fault
from lastgood.state import RunState

UNWATCHED: Final = Trial(name="unwatched", row=CONTROL, kind="clean", sort="plain")
CLEAN: Final = Trial(name="clean", row=CONTROL, kind="clean", sort="clean")
TRIED: Final = (
    ("gradient", "scale", "permanent"),
    ("activation", "mantissa-high", "permanent"),
    ("weight gradient", "warp", "intermittent"),
    ("gradient", "mantissa-high", "transient"),
    ("gradient", "nan", "transient"),
    ("local bucket", "exponent", "transient"),
    ("reduced, all ranks", "scale", "transient"),
    ("reduced, one rank", "scale", "transient"),
    ("weight", "mantissa-low", "transient"),
    ("optimizer", "mantissa-high", "transient"),
    ("at rest", "mantissa-high", "permanent"),
    (BATCH, "nan", "transient"),
)
"""(row, kind, when) of the faults that a script is run under."""
NAMES: Final = tuple(
    f"{number:02}-{'-'.join(fault)}".replace(",", "").replace(" ", "-") for number, fault in enumerate(TRIED, 1)
)
"""Of the same faults, whatever script, ranks and steps."""
WARM_UP: Final = 5
"""Steps at the start that are left out of the times."""


NOTES: Final = "notes.json"
"""In which the first rank writes ``alone`` and ``scaled`` of :class:`Noted`."""


class Step(NamedTuple):
    """What a rank notes of a step: when it ended (monotonic seconds), its gradient's norm, conservation's tolerance."""

    ended: float
    norm: float | None = None
    limit: float | None = None


def steps_file(rank: int) -> str:
    """Return the name of the file in which a rank writes a line per step: the JSON list of :class:`Step`.

    It is there as soon as the script has called ``lastgood.watch``.
    """
    return f"steps-{rank}.txt"


def fault_trials(seed: int, ranks: int, steps: int) -> tuple[Trial, ...]:
    """Return one trial per fault, on random ranks and steps of a run of so many ``steps``."""
    chance = random.Random(f"script {seed}")
    return tuple(_trial(chance, number, ranks, steps) for number in range(len(TRIED)))


def _trial(chance: random.Random, number: int, ranks: int, steps: int) -> Trial:
    row, kind, when = TRIED[number]
    site = ROWS.get(row, (row, ""))[0]
    fault = Fault(
        site, kind, chance.randrange(ranks), chance.randint(min(2, steps), max(2, steps * 2 // 3)),
        permanent=when == "permanent", seed=chance.randrange(2**31), chance=CHANCE if when == "intermittent" else 0.0,
    )  # fmt: skip
    layer = chance.randrange(2**31)
    return Trial(name=NAMES[number], row=row, kind=kind, when=when, faults=(fault,), layer=layer, steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of one fault: ``first`` and ``found`` are steps; None where it never happened, or was not found."""

    trial: str
    row: str
    kind: str
    when: str
    rank: int
    first: int | None = None
    found: int | None = None
    checks: tuple[str, ...] = ()
    accused: tuple[int, ...] = ()
    wrong: bool = False
    last_good: int | None = None
    result: Literal["found", "missed", "outside"] = "found"
    """``missed``: not found, and inside the documented reach of a check; ``outside``: of none."""
    why_not: str = ""
    ended_after: float | None = None
    """Seconds after which the run was ended, because it had not ended by itself; None where it had."""


def tell(trial: Trial, state: RunState, noted: Noted = NOTHING, ended_after: float | None = None) -> Told:
    """Return what came of one fault in the run of a user's script, or in what there is of it."""
    happened = sorted(int(e.data["step"]) for e in state.injections if not e.data.get("replay"))
    begin = trial.faults[0].step
    seen = sorted((f for f in state.findings if f.step >= begin), key=lambda f: (f.step, f.at))
    missing = Unfound(True, too_long(ended_after)) if ended_after else unfound(trial, state, noted)
    accused = sorted({s.rank for v in state.verdicts for s in v.suspects if s.role == "accused"})
    return Told(
        trial=trial.name, row=trial.row, kind=trial.kind, when=trial.when, rank=trial.faults[0].rank,
        first=happened[0] if happened else None,
        found=seen[0].step if seen else None,
        checks=tuple(dict.fromkeys(f.check for f in seen if f.step == seen[0].step)),
        accused=tuple(accused),
        wrong=bool(set(accused) - trial.ranks),
        last_good=state.last_good.step if seen and state.last_good.exists else None,
        result="found" if seen else "missed" if missing.inside else "outside",
        why_not="" if seen else missing.why,
        ended_after=ended_after,
    )  # fmt: skip


def too_long(seconds: float) -> str:
    """Say that a run was ended."""
    return f"the run had not ended after {seconds:.0f} s, and was ended (--time-limit)"


def seconds_per_step(times: Sequence[float]) -> float | None:
    """Return the mean time of a step in seconds, from the times at which steps ended; None for too few."""
    later = list(times[WARM_UP:])
    return (later[-1] - later[0]) / (len(later) - 1) if len(later) > 1 else None


def share(plain: Sequence[float], watched: Sequence[float]) -> float | None:
    """Return how much longer the watched steps took than the plain ones, as a share; saves are within both."""
    before, after = seconds_per_step(plain), seconds_per_step(watched)
    return None if not before or after is None else after / before - 1


def cadences(state: RunState) -> Mapping[str, int | None]:
    """Return check -> steps between two runs, as the clean run journaled them."""
    return state.attempt.cadence if state.attempt else {}


def complaints(told: Sequence[Told], clean: RunState) -> Iterator[str]:
    """Yield what the answer "these settings would have caught it" fails on."""
    if clean.findings:
        yield f"the clean run has {len(clean.findings)} findings"
    for one in told:
        if one.wrong:
            yield f"{one.trial}: rank {', '.join(map(str, one.accused))} was accused, the fault was on rank {one.rank}"
        if one.result == "missed":
            yield f"{one.trial}: not found, {one.why_not}"


def answer(told: Sequence[Told]) -> str:
    """Return what is said where nothing failed."""
    outside = sum(one.result == "outside" for one in told)
    if not outside:
        return "These settings would have caught every one of them."
    inside = len(told) - outside
    if not inside:
        return "None of them was inside reach of a check here: this says nothing about these settings."
    return f"These settings would have caught every one inside reach of a check: {inside} of {len(told)}."


def noted(ranks: Sequence[Sequence[Step]], alone: Sequence[str], scaled: bool) -> Noted:
    """Put together what the ranks wrote down. ``ranks``: the steps of each."""
    rows = [*zip(*ranks, strict=False)]
    scales = (math.hypot(*(step.norm or 0.0 for step in row)) / len(row) for row in rows)
    limits = (math.nan if row[0].limit is None else row[0].limit for row in rows)
    return Noted(frozenset(alone), scaled, tuple(scales), tuple(limits))


def document(told: Sequence[Told], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report as plain data."""
    return {"version": 1, "about": dict(about), "faults": [asdict(one) for one in told]}
