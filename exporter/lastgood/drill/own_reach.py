"""Say why a fault in a user's own script was not found: outside the documented reach of every check, or inside. Pure.

The reach is that of :mod:`lastgood.drill.reach`. Of a user's script there is less to go by: no clean run of each fault
and no digests of every step, but the journaled rounds of the checks, the journaled truth of the fault, and what the
ranks wrote down themselves (:class:`Noted`). Where that cannot tell, a fault that lasts counts as inside reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastgood.drill.plan import Trial
from lastgood.state import Attempt, CheckRound, RunState
from lastgood.stepvector import CALIBRATION_LIMIT

GATHERED: Final = "gather"
"""Phase in which copies that were gathered are compared, and no shard with another one."""
READS_STATE: Final = ("state", "save", "close")
"""Phases in which the optimizer state is compared too."""
AT_REST_LOOKS: Final = "only at_rest looks there, from the first forward to the last backward of a sampled step"
AVERAGED: Final = ("bucket", "reduce-all", "reduce-one")


@dataclass(frozen=True, slots=True)
class Noted:
    """What the ranks of a script wrote down. ``scales``, ``limits``: by step, from the first one on.

    ``alone``: parameters of which no other rank holds the same; ``scaled``: a loss scaler is in use. ``scales``: what
    conservation is relative to, from the ranks' local gradient norms; ``limits``: its tolerance then, as a share.
    """

    alone: frozenset[str] = frozenset()
    scaled: bool = False
    scales: tuple[float, ...] = ()
    limits: tuple[float, ...] = ()


NOTHING: Final = Noted()


@dataclass(frozen=True, slots=True)
class Unfound:
    """Why a fault was not found; ``inside``: it should have been, or the run never came to the check that would."""

    inside: bool
    why: str


def unfound(trial: Trial, state: RunState, noted: Noted) -> Unfound:
    """Return why a fault was not found, as far as the schedule of the checks and its truth say it."""
    happened = [event.data for event in state.injections if not event.data.get("replay")]
    attempt, site = state.attempt, trial.faults[0].site
    if not happened or attempt is None:
        return Unfound(False, "it never happened: the run has no such step, bucket or value")
    check = _check_of(site, trial.kind)
    if site in ("weight", "optimizer") and (tensor := _alone(happened, noted)):
        return Unfound(False, f"no other rank holds the same part of {tensor}, so none can be compared with it; "
                              f"{AT_REST_LOOKS}")  # fmt: skip
    if check in attempt.not_run:
        return Unfound(True, f"{check} did not run: {attempt.not_run[check]}")
    steps = [int(data["step"]) for data in happened]
    rounds = [r for r in state.rounds if r.check == check and r.result != "not_run"]
    if check == "finite":
        return _not_finite(steps, noted)
    if check == "conservation":
        return _averaged(happened[0], attempt, noted)
    if check == "replica":
        return _compared(site, steps[0], rounds, attempt)
    return _looked_at(check, trial, steps, rounds, attempt)


def _check_of(site: str, kind: str) -> str:
    if kind in ("nan", "inf"):
        return "finite"
    if site in AVERAGED:
        return "conservation"
    return {"weight": "replica", "optimizer": "replica", "at-rest": "at_rest"}.get(site, "replay")


def _alone(happened: Sequence[Any], noted: Noted) -> str:
    """Return the parameter that was hit where no other rank holds the same, or ""."""
    tensor = str(happened[0]["tensor"])
    return next((name for name in (tensor, tensor.rpartition(".")[0]) if name in noted.alone), "")


def _not_finite(steps: Sequence[int], noted: Noted) -> Unfound:
    if noted.scaled:
        return Unfound(False, "a loss scaler is in use: a step that is not finite is skipped, and is no finding")
    return Unfound(True, f"finite found nothing in step {steps[0]}")


def _averaged(data: Any, attempt: Attempt, noted: Noted) -> Unfound:
    """Hold what the projections show against the tolerance; one rank's wrong result may show in the next step only."""
    step = int(data["step"])
    place, projected = step - attempt.from_step - 1, data.get("projected_difference")
    scale, limit = (row[place] if 0 <= place < len(row) else math.nan for row in (noted.scales, noted.limits))
    if projected is None or not scale > 0 or not math.isfinite(limit):
        return Unfound(True, f"conservation found nothing in step {step}, and how much was to be seen is not known")
    shown = float(projected) / scale
    together = shown / attempt.world_size if data["site"] == "reduce-one" else shown
    seen = together if step == attempt.last_step else shown
    if seen > CALIBRATION_LIMIT * limit:
        return Unfound(
            True, f"conservation found nothing in step {step}, where {shown:.1e} of the norms was to be seen"
        )
    return Unfound(False, f"{seen:.1e} of the norms was to be seen, below ten times the tolerance of conservation "
                          f"({limit:.1e})")  # fmt: skip


def _compared(site: str, first: int, rounds: Sequence[CheckRound], attempt: Attempt) -> Unfound:
    later = [r for r in rounds if r.state_step >= first]
    compared = [r for r in later if r.phase != GATHERED]
    every = attempt.cadence.get("replica")
    if not later:
        return Unfound(True, _never("replica", first, attempt))
    if not compared:
        return Unfound(False, f"replica ran {len(later)} times from step {first} on (one every {every} steps), on what "
                              f"was gathered: no other rank holds the same shard; {AT_REST_LOOKS}")  # fmt: skip
    if site == "optimizer" and not any(r.phase in READS_STATE for r in compared):
        state_every = attempt.config.get("state_every")
        return Unfound(False, f"no comparison from step {first} on read the optimizer state (one every {state_every} "
                              "steps), and the weights differed at none")  # fmt: skip
    return Unfound(True, f"replica found nothing at step {compared[0].step}")


def _never(check: str, first: int, attempt: Attempt) -> str:
    every = attempt.cadence.get(check)
    return f"no {check} ran from step {first} to the last, {attempt.last_step} (one every {every} steps)"


def _looked_at(
    check: str, trial: Trial, steps: Sequence[int], rounds: Sequence[CheckRound], attempt: Attempt
) -> Unfound:
    """Look for a faulty step that was audited, or sampled."""
    looks = {r.state_step if check == "replay" else r.step for r in rounds}
    every, word = attempt.cadence.get(check), "audited" if check == "replay" else "sampled"
    if seen := sorted(looks.intersection(steps)):
        return Unfound(True, f"{check} found nothing in step {seen[0]}, which was {word}")
    if trial.when == "permanent":
        return Unfound(True, _never(check, steps[0], attempt))
    return Unfound(False, f"none of its {len(steps)} faulty steps was {word} ({check} every {every} steps)")
