"""Keep one run for the ledger: its events, what could not be read, where its checkpoints stand, its folded state."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lastgood.alert_limits import MOST_ALERTS, is_counted
from lastgood.errors import JournalError
from lastgood.event_digest import RunningDigest
from lastgood.events import Event, timestamp_of
from lastgood.journal_read import JournalTail
from lastgood.state import Place, RunState, Unreadable
from lastgood.topology_files import Topologies, topology_name

Fold = Callable[..., RunState]
"""The signature of :func:`lastgood.fold.derive`."""


class RunRecord:
    """One run. ``path`` is None when only posted events are known. Not thread-safe: the ledger's lock guards it.

    ``name`` is what readers call the run. It is the run id of the events, except where two directories hold one run id.
    """

    def __init__(self, name: str, path: Path | None, fold: Fold) -> None:
        self.path = path
        self.lag_seconds = 0.0
        self._name = self._run_id = name
        self._fold = fold
        self._digest = RunningDigest()
        self._tail = JournalTail(path) if path else None
        self._events: dict[tuple[str, str, str, int | None], Event] = {}  # each copy of a fact; the fold picks one
        self._alerts = 0
        self._progress: dict[tuple[int, str], Event] = {}  # newest of each attempt and source
        self._unreadable: dict[tuple[str, int], Unreadable] = {}
        self._topologies: dict[int, tuple[Place, ...]] = {}
        self._topology_files = Topologies(path) if path else None
        self._present: dict[str, str] = {}
        self._looked_at = float("-inf")
        self._state: RunState | None = None
        self._news = self._was_read = False

    @property
    def name(self) -> str:
        """Return what readers call the run."""
        return self._name

    def rename(self, name: str, run_id: str) -> None:
        """Go by this name, and fold the events of this run id."""
        self._news |= (name, run_id) != (self._name, self._run_id)
        self._name, self._run_id = name, run_id

    def poll(self, now: float) -> None:
        """Read what is new in the journals."""
        if self._tail is None:
            return
        events, unreadable = self._tail.poll()
        self._news |= bool(unreadable)
        self.add([*events, *self._tail.progress.values()], now if self._was_read else None)
        self._was_read = True

    def add(self, events: Iterable[Event], now: float | None) -> None:
        """Take in events. ``now`` (unix seconds): when they were seen; None: they had been lying there."""
        new = {}
        for event in events:
            if event.type == "progress":
                self._add_progress(event)
            elif (key := (event.source, event.id, event.time, event.rank)) not in self._events:
                new[key] = event
        if new:
            self._events |= new
            self._news = True
            self._alerts += sum(map(is_counted, new.values()))
            if self._alerts > 2 * MOST_ALERTS:
                self._let_old_alerts_go()
            self.lag_seconds = 0.0 if now is None else max(0.0, now - timestamp_of(max(e.time for e in new.values())))

    def _add_progress(self, event: Event) -> None:
        known = self._progress.get((event.attempt, event.source))
        if known is None or _progress_order(event) > _progress_order(known):
            self._progress[event.attempt, event.source] = event
            self._news = True

    def absorb(self, other: RunRecord, now: float) -> None:
        """Take over what another record knows of this run."""
        self.add([*other._events.values(), *other._progress.values()], now)
        for place in other._unreadable.values():
            self.note_unreadable(place)
        other._events.clear()

    def absorb_alerts(self, other: RunRecord, now: float) -> None:
        """Take over the alerts that another record has for the name of this one."""
        alerts = {key: event for key, event in other._events.items() if event.type == "alert"}
        self.add_alerts(alerts.values(), now)
        for key in alerts:
            del other._events[key]

    def add_alerts(self, alerts: Iterable[Event], now: float | None) -> None:
        """Take in alerts about the name of this run, which may not be its run id."""
        self.add([replace(event, run=self._run_id) for event in alerts], now)

    def _let_old_alerts_go(self) -> None:
        """Hold no more alerts than are kept on disk: one that counts the older ones is there."""
        alerts = sorted((key for key, event in self._events.items() if is_counted(event)), key=lambda key: key[2])
        for key in alerts[:-MOST_ALERTS]:
            del self._events[key]
        self._alerts = min(len(alerts), MOST_ALERTS)

    def note_unreadable(self, place: Unreadable) -> None:
        """Remember a place that could not be read."""
        self._news |= (place.file, place.line) not in self._unreadable
        self._unreadable.setdefault((place.file, place.line), place)

    def newest_progress(self) -> Event | None:
        """Return the newest progress of the newest attempt."""
        own = [event for event in self._progress.values() if event.run == self._run_id]
        return max(own, key=_progress_order, default=None)

    def fold(self, now: float, presence_seconds: float) -> RunState | None:
        """Return the run's state, folded again when there is news; None while nothing is known of it."""
        if self._news or now - self._looked_at >= presence_seconds:
            self._looked_at = now
            self._news |= self._look_at_checkpoints()
            self._news |= self._look_at_topologies()
        if self._news:
            self._news = False
            self._state = self._folded()
        return self._state

    def _folded(self) -> RunState | None:
        if not self.is_known():
            return None
        try:
            return self._derive([*self._events.values(), *self._progress.values()], ())
        except Exception as problem:  # one broken run never hides another
            return self._broken(f"the run's events cannot be folded: {problem!r}")

    def is_known(self) -> bool:
        """Tell whether there is such a run: an alert may name any run, also one that is not read here."""
        return any(event.type != "alert" for event in self._events.values()) or bool(self._places_unreadable())

    def _broken(self, reason: str) -> RunState | None:
        """Return what can still be said of a run whose events cannot be folded: the last state, and the reason."""
        place = Unreadable("journal", 0, reason)
        if self._state is not None:
            return replace(self._state, unreadable=(*self._places_unreadable(), place))
        try:
            return self._derive([], (place,))
        except Exception:
            return None

    def _derive(self, events: list[Event], more: tuple[Unreadable, ...]) -> RunState:
        unreadable = (*self._places_unreadable(), *more)
        state = self._fold(
            self._run_id, events, topologies=self._topologies, unreadable=unreadable, present=dict(self._present),
            digest=self._digest.of,
        )  # fmt: skip
        if self._name == self._run_id:
            return state
        return replace(
            state,
            run=self._name,
            incidents=tuple(replace(i, run=self._name) for i in state.incidents),
            annotations=tuple(replace(e, run=self._name) if e.type == "alert" else e for e in state.annotations),
        )

    def _places_unreadable(self) -> tuple[Unreadable, ...]:
        journal = (*self._tail.unreadable, *self._tail.foreign(self._run_id)) if self._tail else ()
        return (*journal, *self._unreadable.values())

    def _look_at_topologies(self) -> bool:
        """Read each attempt's topology once; one that is not there yet is tried again. Tell whether one was read."""
        if self._topology_files is None:
            return False
        named = {e.attempt for e in self._events.values() if e.type == "run.started" and e.data["topology"]}
        before = len(self._topologies)
        for attempt in sorted(named - self._topologies.keys()):
            name = topology_name(attempt)
            try:
                self._topologies[attempt] = self._topology_files.read(attempt)
                self._unreadable.pop((name, 0), None)
            except JournalError as problem:
                self.note_unreadable(Unreadable(name, 0, str(problem).partition(": ")[2]))
        return len(self._topologies) > before

    def _look_at_checkpoints(self) -> bool:
        """Look whether the checkpoints are still there; tell whether that changed."""
        if self.path is None:
            return False
        saved = {event.data["path"] for event in self._events.values() if event.type == "checkpoint.saved"}
        found = {path: presence(self.path, path) for path in sorted(saved)}
        before, self._present = self._present, {path: word for path, word in found.items() if word is not None}
        return self._present != before


def presence(run_dir: Path, path: str) -> str | None:
    """Return "ok", "missing" or "unreadable" for a checkpoint, or None when this machine cannot tell.

    A path outside the run directory may lie on storage that is not mounted here: only when its folder is there does
    its absence mean anything. A file without a byte is unreadable.
    """
    place = run_dir / path
    try:
        info = place.stat()
        readable = os.access(place, os.R_OK) and (place.is_dir() or info.st_size > 0)
        return "ok" if readable else "unreadable"
    except (FileNotFoundError, NotADirectoryError):
        here = place.parent.is_dir() or place.is_relative_to(run_dir)
        return "missing" if here else None
    except (OSError, ValueError):
        return "unreadable"


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the collector of cycles out of a block that makes very many objects, which stay and are in no cycle.

    It would walk all of them again and again: a fifth of the time that the history of a fleet takes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _progress_order(event: Event) -> tuple[int, str, int]:
    return (event.attempt, event.time, event.step or 0)
