"""A FAKE of ``torch.cuda``'s streams and events: it runs nothing, and records what has to come before what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class FakeStream:
    """A queue. ``seen``: the numbers of all work that comes before what is enqueued next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: set[int] = set()

    def wait_stream(self, other: FakeStream) -> None:
        self.seen |= other.seen


class FakeEvent:
    """An event that is passed when the fake device says so. It cannot be waited for."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.at: float | None = None
        self.number = -1

    def record(self, stream: FakeStream) -> None:
        self.number = self.cuda.launch("event")
        assert stream is self.cuda.current

    def query(self) -> bool:
        return self.number in self.cuda.passed

    def elapsed_time(self, other: FakeEvent) -> float:
        assert self.query()
        assert other.query()
        return 1000 * (self.cuda.passed[other.number] - self.cuda.passed[self.number])


class FakeNumber:
    """What stands for a tensor of the device: it remembers the streams that it was handed to."""

    def __init__(self, kind: str = "cpu") -> None:
        self.device = torch.device(kind)
        self.handed_to: list[str] = []

    def record_stream(self, stream: FakeStream) -> None:
        self.handed_to.append(stream.name)


class FakeCuda:
    """Stands for ``torch.cuda``. ``passed``: number of a piece of work -> when the device did it, in seconds."""

    def __init__(self) -> None:
        self.current = FakeStream("main")
        self.work: list[tuple[str, str, frozenset[int]]] = []  # name, stream, what comes before it
        self.passed: dict[int, float] = {}
        self._made = 0

    def Stream(self, device: Any) -> FakeStream:
        self._made += 1
        return FakeStream(f"side {self._made}")

    def Event(self, *, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        return FakeEvent(self)

    def current_stream(self, device: Any) -> FakeStream:
        return self.current

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def launch(self, name: str) -> int:
        """Enqueue work on the current stream."""
        number = len(self.work)
        self.work.append((name, self.current.name, frozenset(self.current.seen)))
        self.current.seen.add(number)
        return number

    def place_of(self, name: str) -> str:
        """Return the stream of the newest work of that name."""
        return self.work[self._newest(name)][1]

    def is_before(self, first: str, second: str) -> bool:
        """Tell whether the newest work ``first`` must have been done before the newest ``second`` begins."""
        return self._newest(first) in self.work[self._newest(second)][2]

    def _newest(self, name: str) -> int:
        return max(number for number, (named, _, _) in enumerate(self.work) if named == name)
