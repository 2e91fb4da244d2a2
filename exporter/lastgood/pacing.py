"""Time the steps of a rank: how long they take, by when the next must have ended, when progress is told. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PROGRESS_SECONDS: Final = 30.0
FIRST_STEP_SECONDS: Final = 600.0
STEP_SECONDS: Final = 60.0
STEP_FACTOR: Final = 10.0


class Pace:
    """``mean_seconds``: of a step, over the last ten or so; 0.0 before the second one. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.mean_seconds = 0.0
        self._clock = clock
        self._last: float | None = None
        self._told, self._told_share = clock(), False

    def step(self) -> float | None:
        """End a step; return its seconds, None when nobody knows when it began."""
        last, self._last = self._last, self._clock()
        if last is None:
            return None
        seconds = self._last - last
        self.mean_seconds = seconds if not self.mean_seconds else 0.9 * self.mean_seconds + 0.1 * seconds
        return seconds

    def forget(self) -> None:
        """Say that something else than a step takes the time now, a save or an evaluation."""
        self._last = None

    def allowance(self) -> float:
        """Return the seconds that the next step may take from now on."""
        return FIRST_STEP_SECONDS if self._last is None else max(STEP_SECONDS, STEP_FACTOR * self.mean_seconds)

    def tells(self, *, share_known: bool) -> bool:
        """Tell whether progress is to be journaled: every so often, and once it is known what the checks cost."""
        now = self._clock()
        if now - self._told < PROGRESS_SECONDS and not (share_known and not self._told_share):
            return False
        self._told, self._told_share = now, share_known
        return True
