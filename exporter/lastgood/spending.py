"""Measure what the checks of this rank cost beside the steps they watch: seconds by check, on the host's clock.

The seconds that a check keeps the calling thread busy or waiting are counted, its collectives included: every rank
waits in those together. What a thread of the process group does beside the backward is counted as well, so where it
overlaps the share is a little too high. Not covered: work that a GPU does after the call has returned. A check that
ends with a read from the device has waited for it.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from lastgood.budget import KINDS, Costs, Kind

KEPT: Final = 256
"""Steps whose length is remembered between two looks."""

WARM_UP: Final = 5
"""Steps at the beginning that say nothing about the others: memory is allocated, code is compiled, ports are opened."""

Part = Kind | Literal["every_step"]


class Spending:
    """What this rank spent since the last :meth:`take`. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # a bucket is read in the thread that reduces it
        self._seconds: dict[Part, float] = {}
        self._runs: dict[Part, int] = {}
        self._in_step = 0.0
        self._steps: deque[float] = deque(maxlen=KEPT)
        self._counted = 0
        self._warming = WARM_UP

    @contextmanager
    def on(self, part: Part, runs: int = 1) -> Iterator[None]:
        """Count the time inside as one run of ``part``, or, with ``runs=0``, as belonging to one."""
        began = self._clock()
        try:
            yield
        finally:
            self._add(part, self._clock() - began, runs)

    def _add(self, part: Part, seconds: float, runs: int) -> None:
        with self._lock:
            self._seconds[part] = self._seconds.get(part, 0.0) + seconds
            self._runs[part] = self._runs.get(part, 0) + runs
            self._in_step += seconds

    def step(self, seconds: float | None) -> None:
        """End a step that took ``seconds`` with its checks (None: nobody knows)."""
        with self._lock:
            spent, self._in_step = self._in_step, 0.0
            if self._warming:
                self._warming -= 1
                self._seconds.pop("every_step", None)
                return
            self._counted += 1
            if seconds is not None:
                self._steps.append(max(seconds - spent, 0.0))

    def take(self) -> Costs | None:
        """Return what was spent since the last call, and begin anew; None before a step's length is known."""
        with self._lock:
            if not self._steps:
                return None
            runs = {kind: self._seconds[kind] / self._runs[kind] for kind in KINDS if self._runs.get(kind)}
            costs = Costs(
                step=statistics.median(self._steps),
                every_step=self._seconds.get("every_step", 0.0) / self._counted,
                run=runs,
            )
            self._seconds, self._runs, self._counted = {}, {}, 0
            self._steps.clear()
            return costs
