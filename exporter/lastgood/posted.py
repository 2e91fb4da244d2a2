"""Keep accepted events on disk: ``<state_dir>/events/<run>.jsonl``, one line each, synced before anybody is told.

The ledger reads these files as it reads journals, so what was kept is known again after a restart, also after a kill
right behind the answer. Each event is kept once: its key decides, across restarts too. What a run says of itself ends
with the run; alerts need not, so of them only the newest are kept (:mod:`lastgood.alert_limits`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from lastgood.alert_limits import FORGOTTEN, MOST_ALERTS, is_counted, older_alerts
from lastgood.errors import JournalError
from lastgood.events import Event, event_from_line
from lastgood.journal_read import FileTail
from lastgood.synced_files import append_synced, rewrite_synced

Key = tuple[str, str]

FLEET: Final = "_fleet"
"""The file of alerts whose run is not known here, and the run of an alert that names none."""


def fleet_file(state_dir: Path) -> Path:
    """Return the file of the alerts that are kept for no run."""
    return Path(state_dir) / "alerts" / "events" / f"{FLEET}.jsonl"


class PostedEvents:
    """The kept events of every run. Safe to share between threads. ``most_alerts``: of each file."""

    def __init__(self, state_dir: Path, *, most_alerts: int = MOST_ALERTS) -> None:
        self.directory = Path(state_dir) / "events"
        self._most_alerts = most_alerts
        self._seen: dict[str, dict[Key, bool]] = {}  # file -> keys of the facts in it; True: a counted alert
        self._lock = Lock()

    def keep(self, events: Iterable[Event], file: str | None = None) -> list[Event]:
        """Append the new events to the files of their runs, synced; return them, progress (never kept) included.

        ``file``: keep them all in the file of this name instead. Raises ``OSError`` when they cannot be kept; then
        none of that file's counts as kept.
        """
        by_file: dict[str, list[Event]] = {}
        for event in events:
            by_file.setdefault(file or event.run, []).append(event)
        with self._lock:
            return [new for name, found in by_file.items() for new in self._keep(name, found)]

    def holds(self, event: Event, file: str) -> bool:
        """Tell whether the file of this name holds an event."""
        with self._lock:
            return event.key in self._seen_of(file)

    def _keep(self, file: str, events: list[Event]) -> list[Event]:
        seen = self._seen_of(file)
        new: dict[Key, Event] = {}
        for event in events:
            if event.key not in seen:
                new.setdefault(event.key, event)
        kept = [event for event in new.values() if event.type != "progress"]
        if kept:
            append_synced(self._path(file), b"".join(event.to_line().encode() + b"\n" for event in kept))
            seen |= {event.key: is_counted(event) for event in kept}
        if sum(seen.values()) > 2 * self._most_alerts:
            self._let_go(file)
        return list(new.values())

    def _let_go(self, file: str) -> None:
        """Let the oldest alerts of a file go. Where that fails, the file is only longer until the next try."""
        gone: list[Key] = []

        def change(lines: list[bytes]) -> list[bytes]:
            left, went = newest_alerts(lines, self._most_alerts, file)
            gone.extend(went)
            return left

        with suppress(OSError, JournalError):
            rewrite_synced(self._path(file), change)
            for key in gone:
                self._seen[file].pop(key, None)

    def _seen_of(self, file: str) -> dict[Key, bool]:
        if file not in self._seen:
            self._seen[file] = {event.key: is_counted(event) for event in read_events(self._path(file))}
        return self._seen[file]

    def _path(self, file: str) -> Path:
        return self.directory / f"{file}.jsonl"


def newest_alerts(lines: list[bytes], most: int, run: str) -> tuple[list[bytes], list[Key]]:
    """Return a file's lines with only the newest ``most`` of its alerts and one that says how many went, and who went.

    Most lines are only looked at: to hold each of 40,000 to its schema would keep the sender waiting for seconds.
    """
    alerts = [(at, key) for at, line in enumerate(lines) if (key := _alert_key(line)) is not None]
    gone = dict(alerts[: max(0, len(alerts) - most)])
    if not gone:
        return lines, []
    told = older_alerts(event_from_line(lines[max(gone)]), len(gone), run).to_line().encode() + b"\n"
    return [told, *(line for at, line in enumerate(lines) if at not in gone)], list(gone.values())


def _alert_key(line: bytes) -> Key | None:
    """Return the key of an alert that is counted, None for any other line."""
    try:
        held = json.loads(line)
        counted = held["type"] == "lastgood.alert" and held["data"].get("reason") != FORGOTTEN
        return (str(held["source"]), str(held["id"])) if counted else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


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
