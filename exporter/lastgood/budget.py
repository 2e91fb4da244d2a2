"""Decide how often checks run so that they stay under a share of step time. Pure: no torch, no clock, no files.

The checks of every step (``finite``, ``conservation``) cost what they cost: they are counted and never switched off.
What is left of the budget goes to the checks that have a cadence. As long as all together take more than the budget,
the cadence of the check that takes the largest share is doubled, up to 16 times the configured one; never is a check
run more often than configured. Doubling keeps every due step of the longer cadence a due step of the shorter one, so a
change delays no check by more than the new cadence.

A cadence is shortened again only where four fifths of the budget would do, so that costs at the edge make no cadence
go to and fro. Every rank must decide from the same :class:`Costs`: another cadence on one rank alone is another order
of collectives. Not covered: the checks of a save and of the end, which come when the user saves and ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["replica", "state", "replay", "at_rest"]
KINDS: Final[tuple[Kind, ...]] = ("replica", "state", "replay", "at_rest")
"""What has a cadence. ``state``: the replica check that reads the optimizer state as well."""
LONGEST: Final = 16
"""A cadence is stretched to so many times the configured one at most: a power of two."""
SLACK: Final = 0.8

Steps = Mapping[Kind, int]
"""Steps between two runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What checks cost, in seconds; the same on every rank.

    ``step``: a step without any check. ``every_step``: what its checks add to each step. ``run``: one run of each check
    that has run so far; nothing is known about the others, and they count as free.
    """

    step: float
    every_step: float
    run: Mapping[Kind, float]


def share(costs: Costs, every: Steps) -> float:
    """Return the share of step time that the checks take at these cadences: 0 to 1, and 0 for steps without time."""
    spent = costs.every_step + sum(_per_step(costs, kind, steps) for kind, steps in every.items())
    whole = costs.step + spent
    return spent / whole if whole > 0 else 0.0


def every_step_share(costs: Costs) -> float:
    """Return what the checks of every step take alone: the least that any cadence can reach."""
    return share(costs, {})


def stretched(costs: Costs, configured: Steps, budget: float) -> dict[Kind, int]:
    """Return the shortest cadences that keep to ``budget``, or all of them at their longest where none does."""
    every = dict(configured)
    while share(costs, every) > budget:
        longer = [kind for kind in KINDS if kind in every and _can_grow(costs, kind, every, configured)]
        if not longer:
            break
        largest = max(longer, key=lambda kind: _per_step(costs, kind, every[kind]))
        every[largest] *= 2
    return every


def adapted(current: Steps, costs: Costs, configured: Steps, budget: float) -> dict[Kind, int]:
    """Return the cadences to go on with: longer at once where the budget demands it, shorter only with room to spare.

    A cadence of ``current`` that is not configured any more (a check that cannot run) is dropped.
    """
    needed, roomy = stretched(costs, configured, budget), stretched(costs, configured, SLACK * budget)
    return {kind: min(max(current.get(kind, 0), needed[kind]), roomy[kind]) for kind in configured}


def _can_grow(costs: Costs, kind: Kind, every: Steps, configured: Steps) -> bool:
    return every[kind] < LONGEST * configured[kind] and costs.run.get(kind, 0.0) > 0


def _per_step(costs: Costs, kind: Kind, steps: int) -> float:
    return costs.run.get(kind, 0.0) / steps
