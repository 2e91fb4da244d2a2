"""Decide from the sum of one float64 vector per rank what a synchronised backward looked like. Pure.

Every synchronised backward ends with exactly one SUM all-reduce of this vector. Every rank decides from these
identical bytes, so no rank ever takes another path than its peers, and no finding changes the order of collectives on
one rank alone.

Layout: per reduce bucket ``[before, after, square_sum]``, then the flags. ``before`` is the projection of the local
bucket before the reduce, ``after`` that of the reduced one, ``square_sum`` the local sum of squares. A value that is
not finite becomes zero and raises a flag instead: the SUM of a NaN would hide everybody else's numbers. ``invalid``
says that a rank could not measure its local buckets; a reduced value that is not finite although the local ones are
stays measured, as a zero that is not the expected value.

Conservation: the reduce averages, so ``sum(before) / W`` must equal every rank's ``after``. The difference is compared
with ``sqrt(sum(square_sum)) / W``: the norms of the *local* gradients, since the reduced one may cancel. Below the
normal range of the reduce's type a value has fewer digits, so the scale has a floor there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FLAGS: Final = ("loss", "local", "reduced", "previous", "invalid", "step", "step_squared")
STEP_MARKS: Final = 4096
CALIBRATION_STEPS: Final = 20
CALIBRATION_MARGIN: Final = 4.0
CALIBRATION_LIMIT: Final = 10.0


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the summed vector says; identical on every rank.

    ``ratios``: bucket -> |sum(before)/W - sum(after)/W| relative to the local norms; NaN where it was not measured.
    """

    nonfinite_loss: int
    nonfinite_local: int
    nonfinite_reduced: int
    previous: int
    measured: bool
    same_step: bool
    expected: tuple[float, ...]  # per bucket: sum(before) / W, what every rank's own result must be
    scales: tuple[float, ...]  # per bucket: sqrt(sum(square_sum)) / W
    ratios: tuple[float, ...]

    @property
    def nonfinite(self) -> bool:
        """Tell whether any rank saw a non-finite loss or gradient."""
        return bool(self.nonfinite_loss or self.nonfinite_local or self.nonfinite_reduced)


def unpack(total: Sequence[float], world_size: int, floors: Sequence[float] = ()) -> StepFacts:
    """Read the summed vector. ``floors``: per bucket, the least scale (:func:`scale_floor`)."""
    cut = len(total) - len(FLAGS)
    loss, local, reduced, previous, invalid, step, squared = total[cut:]
    measured = invalid == 0
    expected, scales, ratios = [], [], []
    for i in range(0, cut, 3):
        before, after, square_sum = total[i : i + 3]
        expected.append(before / world_size)
        floor = floors[i // 3] if floors else 0.0
        scales.append(max(math.sqrt(max(square_sum, 0.0)) / world_size, floor))
        ratios.append(relative(before / world_size, after / world_size, scales[-1]) if measured else math.nan)
    return StepFacts(
        nonfinite_loss=round(loss),
        nonfinite_local=round(local),
        nonfinite_reduced=round(reduced),
        previous=round(previous),
        measured=measured,
        same_step=squared * world_size == step * step,
        expected=tuple(expected),
        scales=tuple(scales),
        ratios=tuple(ratios),
    )


def step_mark(step: int) -> float:
    """Return what travels for a step: small enough that sums of squares over 16,384 ranks are exact in float64."""
    return float(step % STEP_MARKS)


def scale_floor(smallest_normal: float, elements: int) -> float:
    """Return the least scale of a bucket whose reduce keeps full precision only from ``smallest_normal`` on."""
    return smallest_normal * math.sqrt(elements)


def relative(expected: float, observed: float, scale: float) -> float:
    """Return the difference relative to ``scale``; 0 for 0/0, infinity for a value made out of nothing."""
    difference = abs(expected - observed)
    if difference == 0:
        return 0.0
    return difference / scale if scale > 0 else math.inf


def odd_ranks(afters: Sequence[float], expected: float, scale: float, tolerance: float) -> list[int]:
    """Return the ranks whose own reduced result is off by more than ``tolerance`` (relative to ``scale``)."""
    return [r for r, after in enumerate(afters) if not relative(expected, after, scale) <= tolerance]


def stand_out(afters: Sequence[float], odd: Sequence[int]) -> list[int]:
    """Return the ranks that hold another result than the others; none when all hold the same wrong one."""
    if len(odd) < len(afters):
        return list(odd)
    values = [v if math.isfinite(v) else math.inf for v in afters]
    common = max(set(values), key=values.count)
    return [r for r, value in enumerate(values) if value != common]


class Tolerance:
    """The conservation tolerance of a job, raised by at most tenfold after watching its first clean steps.

    ``base`` comes from the reduce dtype (:func:`lastgood.projection.tolerance`). While the first 20 steps are watched
    the tenfold limit holds, so that no clean job is stopped before its own noise is known. Fed with numbers from the
    summed vector only, so it is equal on every rank.
    """

    def __init__(self, base: float) -> None:
        self.base = base
        self._seen = 0
        self._largest = 0.0

    @property
    def value(self) -> float:
        """Return the tolerance in force."""
        if self._seen < CALIBRATION_STEPS:
            return self.base * CALIBRATION_LIMIT
        return min(max(self.base, CALIBRATION_MARGIN * self._largest), self.base * CALIBRATION_LIMIT)

    def watch(self, ratios: Sequence[float]) -> None:
        """Learn from a clean step."""
        if self._seen < CALIBRATION_STEPS:
            self._seen += 1
            self._largest = max([self._largest, *(r for r in ratios if math.isfinite(r))])
