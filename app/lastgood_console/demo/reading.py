"""Follow a demo's run directory while it grows: the journal, the topology, and the loss of every step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lastgood.errors import LastgoodError
from lastgood.events import Event
from lastgood.fold import derive
from lastgood.journal import JournalTail
from lastgood.state import Place, RunState
from lastgood.topology_files import read_topology


@dataclass(frozen=True, slots=True)
class StepLine:
    """What the first rank said after a step. ``loss`` is in nats per character; None when it was not a number."""

    step: int
    loss: float | None
    passed: Mapping[str, int] = field(default_factory=dict, hash=False)


class Follower:
    """Read what is new at every :meth:`poll`; ``events`` and ``state`` hold all that is known."""

    def __init__(self, run_dir: Path, run: str) -> None:
        self.run_dir = run_dir
        self.run = run
        self.events: list[Event] = []
        self.state: RunState | None = None
        self.lines: dict[int, list[StepLine]] = {}
        self._tail = JournalTail(run_dir)
        self._offsets: dict[int, int] = {}

    def poll(self, attempt: int) -> RunState | None:
        """Read the new events and the new step lines of ``attempt``; return the state, None before any event."""
        new, _ = self._tail.poll()
        self.events += new
        if new:
            self.state = derive(self.run, self.events, topologies=self._topologies(), unreadable=self._tail.unreadable)
        self._read_steps(attempt)
        return self.state

    def last_line(self, attempt: int) -> StepLine | None:
        """Return the newest step line of an attempt."""
        lines = self.lines.get(attempt)
        return lines[-1] if lines else None

    def _topologies(self) -> dict[int, tuple[Place, ...]]:
        found = {}
        for attempt in sorted({event.attempt for event in self.events}):
            try:
                found[attempt] = read_topology(self.run_dir, attempt)
            except (OSError, LastgoodError):
                continue  # written a moment after the journal's directory; the next poll finds it
        return found

    def _read_steps(self, attempt: int) -> None:
        path = self.run_dir / "demo" / f"a{attempt}-status.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(attempt, 0))
                finished = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return
        if finished:
            self._offsets[attempt] = self._offsets.get(attempt, 0) + len(finished) + 1
            self.lines.setdefault(attempt, []).extend(StepLine(**json.loads(line)) for line in finished.split(b"\n"))
