"""Measure what the checks of this rank cost beside the steps they watch: seconds by check (:mod:`lastgood.stopwatch`).

The seconds that a check keeps the calling thread busy or waiting are counted, its collectives included: every rank
waits in those together. What a thread of the process group does beside the backward, or a GPU on another stream, is
counted as well, so where it overlaps the share is a little too high. On a GPU it is the device's time, which is known
some steps later: a step counts once all that was measured in it is known.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from lastgood.budget import KINDS, Costs, Kind
from lastgood.stopwatch import HostClock, Span, Stopwatch

KEPT: Final = 256
"""Steps whose length is remembered between two looks."""

WARM_UP: Final = 5
"""Steps at the beginning that say nothing about the others: memory is allocated, code is compiled, ports are opened."""

Part = Kind | Literal["every_step"]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that has ended, and what was measured in it: part, runs, how long."""

    seconds: float | None
    counts: bool
    spans: tuple[tuple[Part, int, Span], ...]


class Spending:
    """What this rank spent since the last :meth:`take`."""

    def __init__(self, stopwatch: Stopwatch | None = None) -> None:
        self.stopwatch: Stopwatch = stopwatch or HostClock()
        self._lock = threading.Lock()  # a bucket is read in the thread that reduces it
        self._now: list[tuple[Part, int, Span]] = []  # of the step in progress
        self._ended: deque[_Step] = deque(maxlen=KEPT)  # steps of which something is not known yet
        self._seconds: dict[Part, float] = {}
        self._runs: dict[Part, int] = {}
        self._steps: deque[float] = deque(maxlen=KEPT)
        self._counted = 0
        self._warming = WARM_UP

    @contextmanager
    def on(self, part: Part, runs: int = 1) -> Iterator[None]:
        """Count the time inside as one run of ``part``, or, with ``runs=0``, as belonging to one."""
        end = self.stopwatch.begin()
        try:
            yield
        finally:
            span = end()
            with self._lock:
                self._now.append((part, runs, span))

    def step(self, seconds: float | None) -> None:
        """End a step that took ``seconds`` with its checks (None: nobody knows)."""
        with self._lock:
            self._ended.append(_Step(seconds, not self._warming, tuple(self._now)))
            self._now = []
            self._warming = max(0, self._warming - 1)
            self._count()

    def take(self) -> Costs | None:
        """Return what was spent since the last call, and begin anew; None before a step's length is known."""
        with self._lock:
            self._count()
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

    def _count(self) -> None:
        """Count the steps of which everything is known by now, in their order."""
        while self._ended:
            step = self._ended[0]
            known = [(part, runs, s) for part, runs, span in step.spans if (s := span.seconds()) is not None]
            if len(known) < len(step.spans):
                return
            self._ended.popleft()
            self._add(step, known)

    def _add(self, step: _Step, known: list[tuple[Part, int, float]]) -> None:
        for part, runs, seconds in known:
            if step.counts or part != "every_step":
                self._seconds[part] = self._seconds.get(part, 0.0) + seconds
                self._runs[part] = self._runs.get(part, 0) + runs
        if not step.counts:
            return
        self._counted += 1
        if step.seconds is not None:
            self._steps.append(max(step.seconds - sum(seconds for _, _, seconds in known), 0.0))
