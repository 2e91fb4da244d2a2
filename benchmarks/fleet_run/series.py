"""Load what a run's ledger would have exported while it ran, by folding its history again and again.

Each sample is what :class:`lastgood.run_metrics.RunMetrics` says of the events up to its time; nothing is made up in
between. A fold of a long history takes a part of a second, so a long run has a coarser interval than a short one.
Not covered: series of ranks, whose values no journal holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lastgood import push_wire
from lastgood.accusations import against
from lastgood.events import Event, ProgressData, timestamp_of
from lastgood.fold import derive
from lastgood.journal import read_run
from lastgood.run_metrics import RunMetrics
from lastgood.run_record import no_collection
from lastgood.state import Device, Place, RunState
from lastgood.topology_files import Topologies

INTERVAL_SECONDS: Final = 900
MOST_FOLDS: Final = 200
TARGET: Final = {"job": "lastgood-runs", "instance": "console:8490"}


@dataclass
class Past:
    """A ledger as it was at a time (``at``: unix seconds)."""

    run_dir: Path
    at: float = 0.0
    state: RunState | None = None
    _events: list[Event] = field(init=False)
    _times: list[float] = field(init=False)
    _topologies: dict[int, tuple[Place, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._events = sorted(read_run(self.run_dir)[0], key=lambda e: e.time)
        self._times = [timestamp_of(event.time) for event in self._events]
        files = Topologies(self.run_dir)
        self._topologies = {e.attempt: files.read(e.attempt) for e in self._events if e.type == "run.started"}

    @property
    def span(self) -> tuple[float, float]:
        return self._times[0], self._times[-1]

    def go_to(self, at: float) -> None:
        """Fold what had happened at a time."""
        self.at = at
        with no_collection():
            known = self._events[: bisect_right(self._times, at)]
            self.state = derive(self._events[0].run, known, topologies=self._topologies)

    @property
    def last_read_at(self) -> float | None:
        return self.at

    def runs(self) -> Mapping[str, RunState]:
        return {self.state.run: self.state} if self.state else {}

    def lag_seconds(self, run: str) -> float | None:
        return 0.0

    def progress(self, run: str) -> ProgressData | None:
        return None

    def node_accusations(self, days: int, now: float) -> Mapping[Device, int]:
        found = against(self.runs().values(), now - 86400 * days)
        return {device: len(incidents) for device, incidents in found.items()}


def times_of(span: tuple[float, float]) -> Sequence[int]:
    """Return the times of the samples: every quarter of an hour, or as many quarters as a long run needs."""
    begin, end = span
    step = INTERVAL_SECONDS
    while (end - begin) / step > MOST_FOLDS:
        step += INTERVAL_SECONDS
    return range(int(begin) + step, int(end) + step, step)


def entries(run_dir: Path) -> Iterator[bytes]:
    """Yield the run's series at each time as remote write has them."""
    past = Past(run_dir)
    metrics = RunMetrics(past, clock=lambda: past.at)
    for at in times_of(past.span):
        past.go_to(min(at, past.span[1]))
        for family in metrics.collect():
            for sample in family.samples:
                value = push_wire.sample(push_wire.number(sample.value), at * 1000)
                yield push_wire.entry(push_wire.series(sample.name, {**sample.labels, **TARGET}), value)


def load(server: Any, run_dir: Path) -> int:
    """Write the series of a run into a server of ``rules_load``; return how many samples that were."""
    count = 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for entry in entries(run_dir):
            count += 1
            yield entry

    server.write(counted())
    return count
