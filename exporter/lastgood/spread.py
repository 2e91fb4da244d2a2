"""Tell a value that lies outside what a job's own repeats spread to. Pure: no torch, no clock.

A job that is not deterministic gives other bits at every run of a micro-batch, so replay compares numbers: the loss
and the norm of every tensor's gradient. A few repeats on every rank show how far each moves by itself: the job's spread
is the widest of any rank, and of any rank and its partner, but for the one node without which it is narrowest: a broken
device may spread as well.

Two values that differ by more than ``k`` times the job's spread are looked at again: both sides repeat that batch, and
what differs by more than ``k`` times the narrower of their two spreads is outside. How likely is that by chance? The
range ``R`` of ``n`` repeats of a normal distribution is below ``r`` with a chance of at most ``q r^(n-1)``,
``q = n (2 pi)^(-n/2) sqrt(2 pi / n)``, the narrower of two with at most ``2 q r^(n-1)``. Two further runs differ by a
normal ``D`` of variance 2. In a job of two nodes, where the spread is the narrower of two ranges, too, both looks
together pass with ``(2q)^2 E[D^(2n-2)] / k^(2n-2)``: for ``n = 5`` that is ``22 / k^8``, and 2e-11 for ``k = 32``. A
thousand tensors on 16 ranks in ten thousand rounds give less than one false alarm in a hundred jobs, and more nodes
make it less likely. Where a batch spreads more than those of the calibration did, only the second look protects:
``2q E[D^4] / k^4 = 1.4 / k^4``, 1.3e-6 for each time it is asked. Few repeats need such a wide factor, since their
range may be small by chance. Errors with heavier tails make the chance larger, so what is outside is never exact
evidence.

Not a number stands for a quantity that a run does not have (a parameter without a gradient): it is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

REPEATS: Final = 5
"""Runs of one micro-batch that a spread is made of; each costs a micro-batch."""
FACTOR: Final = 32.0
WIDEST: Final = 0.5
"""A quantity whose limit is wider is not compared: a limit of one half still tells a factor of ten, 0.9 apart."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A quantity, by its place in the sequence, whose two values lie farther apart than its limit."""

    index: int
    one: float
    other: float
    spread: float
    limit: float

    @property
    def apart(self) -> float:
        """Return how far apart the values are, as a share of the larger one."""
        return difference(self.one, self.other)


def difference(one: float, other: float) -> float:
    """Return how far two values are apart, as a share of the larger magnitude: 0 to 1, to 2 for opposite signs.

    Two that are both infinite, or both zero, do not differ; infinite against finite is infinitely far.
    """
    if math.isnan(one) or math.isnan(other) or one == other:
        return 0.0
    if math.isinf(one) or math.isinf(other):
        return math.inf
    largest = max(abs(one), abs(other))
    return abs(one / largest - other / largest)


def spread(repeats: Iterable[float]) -> float:
    """Return the largest difference between two repeats of one quantity."""
    return max((difference(one, other) for one, other in combinations(repeats, 2)), default=0.0)


def spreads(repeats: Sequence[Sequence[float]]) -> list[float]:
    """Return the spread of every quantity; one row per repeat, the same quantities in each."""
    return [spread(column) for column in zip(*repeats, strict=True)]


def limit(spread_seen: float, floor: float) -> float:
    """Return the largest difference that the spread explains; infinite where that would explain almost anything.

    ``floor``: what rounding alone may make of a quantity that did not move while it was repeated.
    """
    wide = max(FACTOR * spread_seen, floor)
    return wide if wide <= WIDEST else math.inf


def compared(spreads_seen: Iterable[float], floor: float) -> int:
    """Return how many quantities can be compared at all."""
    return sum(limit(seen, floor) < math.inf for seen in spreads_seen)


def farthest(
    ones: Sequence[float], others: Sequence[float], spreads_seen: Sequence[float], floor: float
) -> Outlier | None:
    """Return the quantity that is the most times its limit apart; None when none is outside its own."""
    found: Outlier | None = None
    times = 1.0
    for index, (one, other, seen) in enumerate(zip(ones, others, spreads_seen, strict=True)):
        allowed = limit(seen, floor)
        if allowed < math.inf and difference(one, other) > times * allowed:
            found = Outlier(index, one, other, seen, allowed)
            times = found.apart / allowed
    return found
