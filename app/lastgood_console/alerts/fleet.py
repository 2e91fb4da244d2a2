"""Keep what concerns no run that is known here, and when the alert path was last heard of.

A stale ledger, a data source that cannot be queried or a foreign rule names no run; an alert may also name a run that
this console does not read, or not yet: the ledger hands it to its run as soon as that is known. They are kept in one
file of ``<state_dir>/alerts``, so that no name that is made up costs a file of its own, and shown on the overview. A
``Watchdog`` always fires so that its absence is noticed: of it only the last arrival is kept, for each sender.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from lastgood.events import Event
from lastgood.posted import FLEET as FLEET
from lastgood.posted import PostedEvents, fleet_file, read_events
from lastgood_console.alerts.texts import AlertTexts

WATCHDOG: Final = "Watchdog"
MOST_ALERTS: Final = 1000
MOST_SENDERS: Final = 16


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last arrival of a sender's Watchdog. ``at``: unix seconds; ``every``: seconds since the one before it."""

    source: str
    sender: str
    at: float
    firing: bool
    every: float | None = None


class FleetAlerts:
    """The alerts without a run, newest last, and the heartbeats. Safe to share between threads."""

    def __init__(self, state_dir: Path) -> None:
        self._posted = PostedEvents(Path(state_dir) / "alerts")
        self._beats_file = Path(state_dir) / "alerts" / "heartbeats.json"
        self.texts = AlertTexts(Path(state_dir) / "alerts" / "texts.json")
        self._lock = Lock()
        self._alerts = _read_alerts(fleet_file(state_dir))
        self._beats = {(beat.source, beat.sender): beat for beat in _read_beats(self._beats_file)}

    @property
    def alerts(self) -> tuple[Event, ...]:
        """Return the newest alerts."""
        return self._alerts

    @property
    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """Return the last arrival of each sender's Watchdog, newest first."""
        return tuple(sorted(self._beats.values(), key=lambda beat: beat.at, reverse=True))

    def keep(self, events: Iterable[Event]) -> list[Event]:
        """Keep alerts, synced; return the new ones. Raises ``OSError``."""
        with self._lock:
            new = self._posted.keep(events, FLEET)
            self._alerts = (*self._alerts, *new)[-MOST_ALERTS:]
        return new

    def holds(self, event: Event) -> bool:
        """Tell whether an alert is kept here, since its run was not known when it came."""
        return self._posted.holds(event, FLEET)

    def beat(self, beat: Heartbeat) -> None:
        """Remember that a Watchdog arrived. Raises ``OSError`` when that cannot be kept."""
        with self._lock:
            before = self._beats.get((beat.source, beat.sender))
            every = max(0.0, beat.at - before.at) if before else None
            self._beats[beat.source, beat.sender] = replace(beat, every=every)
            newest = self.heartbeats[:MOST_SENDERS]
            self._beats = {(b.source, b.sender): b for b in newest}
            _write_beats(self._beats_file, newest)


def _read_alerts(path: Path) -> tuple[Event, ...]:
    found = [event for event in read_events(path) if event.type == "alert"]
    return tuple(sorted(found, key=lambda event: (event.time, event.id))[-MOST_ALERTS:])


def _read_beats(path: Path) -> list[Heartbeat]:
    """Return the kept heartbeats; a file that is not there or is not ours holds none."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [_beat(row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _beat(row: dict[str, Any]) -> Heartbeat:
    every = row.get("every")
    return Heartbeat(
        str(row["source"]), str(row["sender"]), float(row["at"]), bool(row["firing"]),
        None if every is None else float(every),
    )  # fmt: skip


def _write_beats(path: Path, beats: Sequence[Heartbeat]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump([asdict(beat) for beat in beats], file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
