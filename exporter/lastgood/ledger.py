"""Know every run: follow the journals, fold them, and keep the result for whoever asks.

The ledger is the only source of run-, incident-, node- and checkpoint-level facts; console, metrics, alerts and
exports read it. It keeps nothing of its own: at start it rebuilds everything from the journals (and from the events
that were posted, see :mod:`lastgood.ingest`), so a restart loses nothing. A run is folded again only when there is
news of it, and a run that cannot be folded is named and hides no other.

Readers take the newest finished states without waiting; ``refresh`` and ``ingest`` take turns behind one lock.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import Final, cast

from lastgood.accusations import against
from lastgood.alert_limits import MOST_ALERTS
from lastgood.events import SLUG_LENGTH, Event, ProgressData, is_slug
from lastgood.fold import derive
from lastgood.gone import Gone, Watch
from lastgood.journal import find_runs
from lastgood.journal_read import FileTail, read_line
from lastgood.posted import FLEET, fleet_file
from lastgood.run_record import Fold, RunRecord, no_collection
from lastgood.state import Device, RunState, Unreadable

PRESENCE_SECONDS: Final = 10.0
"""Without other news, so often the ledger looks whether the checkpoints are still there."""


def default_state_dir(paths: Sequence[Path]) -> Path:
    """Return where posted events are kept when nobody says: beside the runs, out of their way."""
    return Path(paths[0]) / ".lastgood" if paths else Path(".lastgood")


def _posted_name(run: str) -> str:
    """Return what a run known from posted events alone is called when a directory has its name."""
    return f"posted.{run}"[:SLUG_LENGTH]


class Ledger:
    """Follow the runs in ``paths`` (run directories, or folders of them) and the events posted to ``state_dir``.

    ``clock`` returns unix seconds. Nothing is read before the first ``refresh``.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        state_dir: Path | None = None,
        clock: Callable[[], float] = time.time,
        fold: Fold = derive,
    ) -> None:
        self._paths = [Path(path) for path in paths]
        self._state_dir = state_dir
        self._clock, self._fold = clock, fold
        self._lock = RLock()
        self._inbox: deque[Event] = deque()
        self._records: dict[Path, RunRecord] = {}
        self._posted: dict[str, RunRecord] = {}  # run id -> what was posted and has no run directory
        self._posted_tails: dict[Path, FileTail] = {}
        self._strays: dict[tuple[str, str], Event] = {}  # alerts of runs that were not known when they came
        self._run_ids: dict[Path, str] = {}
        self._by_name: Mapping[str, RunRecord] = {}
        self._states: Mapping[str, RunState] = {}
        self._last_read_at: float | None = None
        self._watch = Watch(self._paths)

    @property
    def state_dir(self) -> Path | None:
        """Return where posted events are kept."""
        return self._state_dir

    @property
    def last_read_at(self) -> float | None:
        """Return when the journals were last read to their ends (unix seconds), None before the first time.

        While a folder that was there is gone it stands still.
        """
        return self._last_read_at

    @property
    def gone(self) -> Gone:
        """Return which folders and run directories were there and are gone."""
        return self._watch.gone

    def refresh(self) -> None:
        """Read what is new in every run, find new runs, and fold the runs with news."""
        with self._lock, no_collection():
            now = self._clock()
            self._watch.look(now)
            self._read_posted(now if self._last_read_at else None)
            self._find()
            for record in self._by_name.values():
                if not self._watch.covers(record.path):
                    record.poll(now)
            self._publish(now)
            if not self._watch.gone.places:
                self._last_read_at = now

    def ingest(self, events: Iterable[Event]) -> None:
        """Take in events that came by another way than the journal (dropped when the journal has them).

        Never waits for a ``refresh`` that is reading slow storage: the next one takes the events in.
        """
        self._inbox.extend(events)
        if self._lock.acquire(blocking=False):
            try:
                self._find()
                self._publish(self._clock())
            finally:
                self._lock.release()

    def runs(self) -> Mapping[str, RunState]:
        """Return name -> state of every run that holds an event, in the order of names."""
        return self._states

    def run(self, name: str) -> RunState | None:
        """Return the state of one run."""
        return self._states.get(name)

    def path_of(self, name: str) -> Path | None:
        """Return the run directory, or None for a run that is known from posted events alone."""
        record = self._by_name.get(name)
        return record.path if record else None

    def progress(self, name: str) -> ProgressData | None:
        """Return the newest progress of the newest attempt."""
        record = self._by_name.get(name)
        event = record.newest_progress() if record else None
        return cast(ProgressData, event.data) if event else None

    def unreadable_lines(self) -> Mapping[str, int]:
        """Return run -> how many places of its directory could not be read."""
        return {name: len(state.unreadable) for name, state in self._states.items()}

    def lag_seconds(self, run: str) -> float | None:
        """Return how old the newest event was when it was read; 0 for what was there at the first read."""
        record = self._by_name.get(run)
        return record.lag_seconds if record else None

    def node_accusations(self, days: int, now: float) -> Mapping[Device, int]:
        """Return how many attributed incidents of the last ``days`` accuse each device, over all runs."""
        found = against(self._states.values(), now - 86400 * days)
        return {device: len(incidents) for device, incidents in found.items()}

    def _find(self) -> None:
        """Give every run its name: run directories first, then runs known from posted events alone.

        An alert's run is the name of the metrics that it is about, so it joins the run of that name. Other posted
        events join the directory that holds their run id. When several do (copies of a run), nobody can say which is
        meant, and each has its own journal anyway: then they join none. Nothing posted takes a directory's name.
        """
        self._empty_inbox()
        found = self._watch.with_kept(find_runs(self._paths, run_ids=self._run_ids), self._last_read_at)
        names = {name: self._record(name, path) for name, path in found.items()}
        owners: dict[str, list[RunRecord]] = {}
        for name, path in found.items():
            owners.setdefault(self._run_ids.get(path, name), []).append(names[name])
        names |= {record.name: record for record in self._posted_alone(found, owners)}
        self._join(names, owners)
        self._by_name = MappingProxyType(dict(sorted(names.items())))

    def _posted_alone(self, found: Mapping[str, Path], owners: Mapping[str, Sequence[RunRecord]]) -> list[RunRecord]:
        """Return the runs that are known from posted events alone, under names that no directory has."""
        alone = {run: posted for run, posted in self._posted.items() if run not in owners and posted.is_known()}
        for run, posted in alone.items():
            posted.rename(_posted_name(run) if run in found else run, run)
        return [posted for posted in alone.values() if posted.name not in found]

    def _join(self, names: Mapping[str, RunRecord], owners: Mapping[str, Sequence[RunRecord]]) -> None:
        """Hand what was posted to the runs that it is about."""
        for run, posted in self._posted.items():
            if run in names and names[run] is not posted:
                names[run].absorb_alerts(posted, self._clock())
            if len(owners.get(run, ())) == 1:
                owners[run][0].absorb(posted, self._clock())
        for key, event in [item for item in self._strays.items() if item[1].run in names]:
            names[event.run].add_alerts([event], None)
            del self._strays[key]

    def _record(self, name: str, path: Path) -> RunRecord:
        if path not in self._records:
            self._records[path] = RunRecord(name, path, self._fold)
        self._records[path].rename(name, self._run_ids.get(path, name))
        return self._records[path]

    def _empty_inbox(self) -> None:
        while self._inbox:
            event = self._inbox.popleft()
            self._posted_record(event.run).add([event], self._clock())

    def _publish(self, now: float) -> None:
        states = {name: self._folded(record, now) for name, record in self._by_name.items()}
        self._states = MappingProxyType({name: state for name, state in states.items() if state is not None})

    def _folded(self, record: RunRecord, now: float) -> RunState | None:
        """Return a run's state; whose folder is gone keeps its checkpoints: nobody can see whether they are there."""
        return record.fold(now, math.inf if self._watch.covers(record.path) else PRESENCE_SECONDS)

    def _posted_record(self, run: str) -> RunRecord:
        return self._posted.setdefault(run, RunRecord(run, None, self._fold))

    def _read_posted(self, now: float | None) -> None:
        """Read the files of posted events: this process's own, and those of another that shares the directory."""
        if self._state_dir is None:
            return
        for path in sorted((self._state_dir / "events").glob("*.jsonl")):
            if is_slug(path.stem):
                self._read_posted_file(path, now)
        self._read_strays(fleet_file(self._state_dir))

    def _read_strays(self, path: Path) -> None:
        """Read the alerts that are kept for no run; those that name none belong to none."""
        try:
            for _, line in self._posted_tails.setdefault(path, FileTail(path)).poll():
                event = read_line(line)
                if isinstance(event, Event) and event.type == "alert" and event.run != FLEET:
                    self._strays[event.key] = event
        except OSError:
            return  # none yet, or none that can be read: the fleet's alerts are shown elsewhere
        while len(self._strays) > 2 * MOST_ALERTS:
            del self._strays[next(iter(self._strays))]

    def _read_posted_file(self, path: Path, now: float | None) -> None:
        record = self._posted_record(path.stem)
        tail = self._posted_tails.setdefault(path, FileTail(path))
        try:
            for number, line in tail.poll():
                event = read_line(line)
                if isinstance(event, Event) and event.run == path.stem:
                    record.add([event], now)
                else:
                    reason = event if isinstance(event, str) else f"belongs to run {event.run}: a foreign line"
                    record.note_unreadable(Unreadable(path.name, number, reason))
        except OSError as problem:
            record.note_unreadable(Unreadable(path.name, 0, f"cannot be read: {problem.strerror}"))
