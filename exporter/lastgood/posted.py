"""Keep accepted events on disk: ``<state_dir>/events/<run>.jsonl``, one line each, synced before anybody is told.

The ledger reads these files as it reads journals, so what was kept is known again after a restart, also after a kill
right behind the answer. Each event is kept once: its key decides, across restarts too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from lastgood.errors import JournalError
from lastgood.events import Event, event_from_line
from lastgood.journal_read import FileTail

Key = tuple[str, str]


class PostedEvents:
    """The kept events of every run. Safe to share between threads."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = Path(state_dir) / "events"
        self._seen: dict[str, set[Key]] = {}  # run -> keys of the facts in its file
        self._lock = Lock()

    def keep(self, events: Iterable[Event]) -> list[Event]:
        """Append the new events to the files of their runs, synced; return them, progress (never kept) included.

        Raises ``OSError`` when they cannot be kept; then none of that run's counts as kept.
        """
        by_run: dict[str, list[Event]] = {}
        for event in events:
            by_run.setdefault(event.run, []).append(event)
        with self._lock:
            return [new for run, found in by_run.items() for new in self._keep(run, found)]

    def _keep(self, run: str, events: list[Event]) -> list[Event]:
        path = self.directory / f"{run}.jsonl"
        seen = self._seen_of(run, path)
        new: dict[Key, Event] = {}
        for event in events:
            if event.key not in seen:
                new.setdefault(event.key, event)
        lines = [event.to_line().encode() + b"\n" for event in new.values() if event.type != "progress"]
        if lines:
            append_synced(path, b"".join(lines))
        seen |= {event.key for event in new.values() if event.type != "progress"}
        return list(new.values())

    def _seen_of(self, run: str, path: Path) -> set[Key]:
        if run not in self._seen:
            self._seen[run] = {event.key for event in read_events(path)}
        return self._seen[run]


def append_synced(path: Path, lines: bytes) -> None:
    """Append whole lines, synced, also while another process does; a line torn by a crash before is closed first.

    Raises ``OSError`` when the disk is full or fails. Then the file is as long as before: what was not accepted leaves
    neither lines nor half a line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        try:
            while lines:
                lines = lines[os.write(fd, lines) :]
            os.fsync(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, size)  # under the lock, so nobody else's lines are behind ours
            raise
    finally:
        os.close(fd)


def read_events(path: Path) -> list[Event]:
    """Return the events that a file holds (none when there is no file); what is no event is left out."""
    found = []
    try:
        for _, line in FileTail(path).poll():
            try:
                found.append(event_from_line(line or b""))
            except JournalError:
                continue  # the ledger names it
    except FileNotFoundError:
        pass
    return found
