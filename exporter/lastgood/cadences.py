"""Say which checks are due in a step; with a budget, agree with the other ranks on other cadences as the job runs.

Every 20 steps the ranks take the maximum of what each of them measured (:mod:`lastgood.spending`): a maximum is exact
in whatever order it is taken, so all ranks hold the same bytes, and :mod:`lastgood.budget` makes the same cadences of
them. The look begins at one place and ends at a later one, the same on every rank, so that nobody waits for the
numbers of the others. Without a budget nothing is exchanged, no cadence changes, and the share is this rank's own.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import torch

from lastgood import budget as plan
from lastgood.budget import KINDS, Costs, Kind
from lastgood.comm import World
from lastgood.config import Config
from lastgood.readback import Here, Pending
from lastgood.spending import Spending
from lastgood.stopwatch import Stopwatch

REVIEW_EVERY: Final = 20
REMEMBERED: Final = 3
"""Reviews that count. The middle one is taken, of two the lower: the first run of a check is slow."""

_CHECKS: Final[Mapping[Kind, str]] = {
    "replica": "replica",
    "state": "replica",
    "replay": "replay",
    "at_rest": "at_rest",
}
_UNKNOWN: Final = -math.inf


class Cadences:
    """The cadences in force. ``why_not``: check -> why it cannot run; the same on every rank at every moment.

    ``stopwatch``: how costs are measured; by the host's clock without one.
    """

    def __init__(
        self, config: Config, world: World, why_not: Mapping[str, str], stopwatch: Stopwatch | None = None
    ) -> None:
        self.budget = config.budget
        self.spending = Spending(stopwatch)
        self.costs: Costs | None = None
        self.calibrated = False
        """Whether replay compares numbers although it counts as one that does not run."""
        self._world, self._why_not = world, why_not
        self._configured: dict[Kind, int] = {
            "replica": config.replica_every, "state": config.state_every, "replay": config.replay_every,
            "at_rest": config.at_rest_every,
        }  # fmt: skip
        self._every = dict(self._configured)
        self._seen: dict[str, deque[float]] = {}
        self._coming: Pending | None = None  # the costs of a look that has begun

    def every(self, kind: Kind) -> int:
        """Return the steps between two runs now; 0 for a check that does not run."""
        runs = _CHECKS[kind] not in self._why_not or (kind == "replay" and self.calibrated)
        return self._every[kind] if runs else 0

    def due(self, kind: Kind, step: int) -> bool:
        """Tell whether a check runs in ``step``."""
        every = self.every(kind)
        return every > 0 and step % every == 0

    def by_check(self) -> dict[str, int | None]:
        """Return check -> steps between two runs; None for one that does not run."""
        every = {"finite": 1, "conservation": 1} | {
            kind: self._every[kind] for kind in ("replica", "replay", "at_rest")
        }
        return {check: None if check in self._why_not else steps for check, steps in every.items()}

    def share(self) -> float | None:
        """Return the share of step time that the checks take at the cadences in force; None before it is known."""
        return None if self.costs is None else plan.share(self.costs, self._running(self._every))

    def over(self) -> float | None:
        """Return what the checks of every step take alone where that is more than the budget."""
        if self.budget is None or self.costs is None:
            return None
        alone = plan.every_step_share(self.costs)
        return alone if alone > self.budget else None

    def begin_review(self) -> None:
        """Begin to look at the costs. Collective with a budget."""
        taken = self.spending.take()
        numbers = [_UNKNOWN] * (2 + len(KINDS))
        if taken is not None:
            numbers = [-taken.step, taken.every_step, *(taken.run.get(kind, _UNKNOWN) for kind in KINDS)]
        vector = torch.tensor(numbers, dtype=torch.float64)
        self._coming = Here(vector) if self.budget is None else self._world.max_later(vector)

    def end_review(self) -> dict[str, Any] | None:
        """Go on with what the costs demand, on all ranks at one place; ``CadenceData`` where a cadence changed."""
        coming, self._coming = self._coming, None
        if coming is None:
            return None
        self.costs = self._costs(coming.numbers())
        if self.budget is None or self.costs is None:
            return None
        before, configured = self._running(self._every), self._running(self._configured)
        self._every |= plan.adapted(before, self.costs, configured, self.budget)
        if self._running(self._every) == before:
            return None
        return {"cadence": self.by_check(), "state_every": self.every("state") or None, "share": self.share(),
                "budget": self.budget}  # fmt: skip

    def _running(self, every: Mapping[Kind, int]) -> dict[Kind, int]:
        return {kind: every[kind] for kind in KINDS if self.every(kind)}

    def _costs(self, numbers: list[float]) -> Costs | None:
        """Return the costs that count now: the middle of the last reviews."""
        for name, number in zip(("step", "every_step", *KINDS), numbers, strict=True):
            if number > _UNKNOWN:
                self._seen.setdefault(name, deque(maxlen=REMEMBERED)).append(number)
        middle = {name: statistics.median_low(seen) for name, seen in self._seen.items()}
        if "step" not in middle:
            return None
        run = {kind: middle[kind] for kind in KINDS if kind in middle}
        return Costs(step=-middle["step"], every_step=middle["every_step"], run=run)
