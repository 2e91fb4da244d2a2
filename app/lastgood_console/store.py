"""Share one ledger between the pages, the routes and a thread that refreshes it.

Streamlit runs a page script per visitor and per tick, each in its own thread, in the same process as the routes. So
there is one store per process, opened by the server before it starts; pages take :func:`current` and read one
:class:`Snapshot` per run of the script, which never changes under them. A failing refresh keeps the last snapshot:
its age then says that it is stale.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event as Signal
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol

from lastgood.events import Event, ProgressData, timestamp_of
from lastgood.gone import Gone
from lastgood.state import RunState
from lastgood_console.alerts.fleet import FleetAlerts, Heartbeat
from lastgood_console.alerts.texts import TextKey
from lastgood_console.sources.both import Remembered, RunsFromMetrics, joined
from lastgood_console.sources.trend import TrendsOf, no_trends

REFRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 60.0

if TYPE_CHECKING:
    from lastgood_console.desk import Desk

log = logging.getLogger("lastgood.console")


class LedgerView(Protocol):
    """What the store needs of a ledger."""

    @property
    def last_read_at(self) -> float | None:
        """When the journals were last read (unix seconds)."""

    @property
    def gone(self) -> Gone:
        """Which folders and run directories were there and are gone."""

    def refresh(self) -> None:
        """Read what is new."""

    def runs(self) -> Mapping[str, RunState]:
        """Return name -> state of every run."""

    def progress(self, name: str) -> ProgressData | None:
        """Return the newest progress of a run."""

    def path_of(self, name: str) -> Path | None:
        """Return the run directory."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a page shows, read at one moment. ``read_at``: unix seconds; None before the first read.

    ``metrics_problem``: the trouble of the metrics server in a sentence, ``metrics_problem_since`` unix seconds.
    ``heard_at``: active run -> when it last wrote (unix seconds); ``gone``: what is not there to be read any more.
    ``number``: another one when there is news; of two with the same number only ages differ.
    """

    states: Mapping[str, RunState] = field(default_factory=dict)
    progress: Mapping[str, ProgressData] = field(default_factory=dict)
    silent_seconds: Mapping[str, float] = field(default_factory=dict)
    read_at: float | None = None
    stray_alerts: tuple[Event, ...] = ()
    heartbeats: tuple[Heartbeat, ...] = ()
    alert_texts: Mapping[TextKey, str] = field(default_factory=dict)
    metrics_problem: str = ""
    metrics_problem_since: float | None = None
    heard_at: Mapping[str, float] = field(default_factory=dict)
    gone: Gone = field(default_factory=Gone)
    number: int = 0

    def has_news_since(self, before: Snapshot) -> bool:
        """Tell whether anything but an age is different."""
        if self.states.keys() != before.states.keys() or self.silent_seconds.keys() != before.silent_seconds.keys():
            return True
        if any(state is not before.states[run] for run, state in self.states.items()):  # a state is never changed
            return True
        return self._beside_states() != before._beside_states()

    def _beside_states(self) -> tuple[object, ...]:
        return self.progress, self.stray_alerts, self.heartbeats, self.alert_texts, self.metrics_problem, self.gone


class Store:
    """Hold a ledger, the alerts that concern no run, and the newest snapshot of both.

    ``clock`` returns unix seconds; ``places``: what was asked to be read. ``metrics``: where runs are remembered that
    no journal tells; it is given after the store, which it asks what is known.
    """

    def __init__(
        self,
        ledger: LedgerView,
        *,
        fleet: FleetAlerts | None = None,
        places: tuple[Path, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.ledger, self.places, self.clock = ledger, places, clock
        self.desk: Desk | None = None  # where visitors act; None: they only look
        self.metrics: RunsFromMetrics | None = None
        self.trends: TrendsOf = no_trends
        self._fleet = fleet
        self._lock = Lock()
        self._snapshot = Snapshot()
        self._stop = Signal()
        self._thread: Thread | None = None
        self._complained = False

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        with self._lock:
            return self._snapshot

    def refresh(self) -> None:
        """Refresh the ledger and take a new snapshot."""
        self.ledger.refresh()
        self.publish()

    def publish(self) -> None:
        """Take a snapshot of what the ledger knows now (after a POST, without waiting for the next refresh)."""
        own = self.ledger.runs()
        said = self.metrics.said() if self.metrics else Remembered()
        states = joined(own, said.states)
        progress = {name: p for name in own if (p := self.ledger.progress(name)) is not None}
        now = self.clock()
        heard = {name: at for name, s in states.items() if s.active and (at := self._written_at(s)) is not None}
        silent = {name: now - at for name, at in heard.items()}
        strays = self._fleet.alerts if self._fleet else ()
        beats = self._fleet.heartbeats if self._fleet else ()
        texts = self._fleet.texts.newest if self._fleet else {}
        snapshot = Snapshot(
            states, progress, silent, self.ledger.last_read_at, strays, beats, texts, said.problem, said.since,
            heard, self.ledger.gone,
        )  # fmt: skip
        with self._lock:
            number = self._snapshot.number + snapshot.has_news_since(self._snapshot)
            self._snapshot = replace(snapshot, number=number)

    def _written_at(self, state: RunState) -> float | None:
        """Return when the newest attempt last wrote into its journal (its progress too), None when unknown."""
        if state.origin == "metrics":
            return timestamp_of(state.last_event_at) if state.last_event_at else None
        path = self.ledger.path_of(state.run)
        if path is None or state.attempt is None:
            return None
        folder = path / "journal" / f"{state.attempt.number:06}"
        try:
            return max((f.stat().st_mtime for f in folder.iterdir()), default=None)
        except OSError:
            return None

    def start(self, every_seconds: float = REFRESH_SECONDS) -> None:
        """Refresh now and from now on, in a daemon thread."""
        self._refresh_and_complain()
        if self.metrics is not None:
            self.metrics.start()
        self._thread = Thread(target=self._run, args=(every_seconds,), name="lastgood-refresh", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self.metrics is not None:
            self.metrics.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self, every_seconds: float) -> None:
        while not self._stop.wait(every_seconds):
            self._refresh_and_complain()

    def _refresh_and_complain(self) -> None:
        """A refresh that fails is said once; the pages show how old their data is."""
        try:
            self.refresh()
        except Exception:
            if not self._complained:
                log.exception("the runs cannot be read; the pages keep their last content")
            self._complained = True
        else:
            self._complained = False


_current: Store | None = None


def use(store: Store) -> Store:
    """Make this the process's store."""
    global _current
    _current = store
    return store


def current() -> Store:
    """Return the process's store."""
    if _current is None:
        raise RuntimeError("no store is open: start the console with `lastgood console`, not with `streamlit run`")
    return _current
