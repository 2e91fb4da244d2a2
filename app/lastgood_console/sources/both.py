"""Join the runs that the journals tell with those that only a metrics server remembers. The journal wins.

A metrics server is asked in a thread of its own and at its own pace, so that a slow or dead one delays no page: they
read what it last said. Runs that a ledger somewhere tells now are asked for at every look; runs that none tells any
more are looked for now and then, and then as they were at the last scrape that saw them: one moment for all of their
series, so that nothing is mixed. Its trouble is one sentence.

A server that fails is asked again soon, then less and less often. One that is started together with the console takes
a while until it answers for the first time: so long it is waited for, which is no trouble.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event as Signal
from threading import Lock, Thread
from typing import Final

from lastgood.catalogue import PREFIX
from lastgood.events import is_slug
from lastgood.state import RunState
from lastgood_console.sources.client import MetricsError, NoAnswer, PrometheusClient
from lastgood_console.sources.ledger_series import READ_AT, by_run, selector
from lastgood_console.sources.runs_from_metrics import run_state

EVERY_SECONDS: Final = 15.0
RETRY_SECONDS: Final = 1.0
"""After the first failure; twice as long after each further one, up to the usual time."""
START_SECONDS: Final = 60.0
"""So long a server that has never answered yet is waited for."""
LOOK_BACK_SECONDS: Final = 300.0
"""So often runs that no ledger tells any more are looked for."""
REMEMBERED: Final = "14d"
MOST_RUNS: Final = 50
"""So many runs that no ledger tells any more are remembered, the newest."""
_AT_ONCE: Final = 20
_AROUND: Final = 600.0
"""The clock of a ledger and that of a metrics server may be so far apart."""
_LAST_READ: Final = f"{PREFIX}{READ_AT}"

log = logging.getLogger("lastgood.console")


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a metrics server last said. ``problem``: its trouble in a sentence, ``since`` (unix seconds) it has it.

    Without ``since`` it is no trouble yet: the server is waited for.
    """

    states: Mapping[str, RunState] = field(default_factory=dict)
    read_at: float | None = None
    problem: str = ""
    since: float | None = None


def joined(own: Mapping[str, RunState], remembered: Mapping[str, RunState]) -> dict[str, RunState]:
    """Return the runs of both, in the order of names. Alerts can name a run that has no journal here: it keeps them."""
    runs = dict(own)
    for name, state in remembered.items():
        ours = own.get(name)
        if ours is None or not ours.attempts:
            runs[name] = replace(state, annotations=ours.annotations) if ours else state
    return dict(sorted(runs.items()))


def pause_seconds(failures: int, every_seconds: float) -> float:
    """Return how long to leave a server alone after so many failures in a row. Pure."""
    return min(every_seconds, RETRY_SECONDS * 2.0 ** min(failures - 1, 16)) if failures else every_seconds


class RunsFromMetrics:
    """Ask a metrics server for the runs that are not ``known`` from journals. ``clock``: unix seconds."""

    def __init__(
        self,
        client: PrometheusClient,
        known: Callable[[], Collection[str]],
        clock: Callable[[], float] = time.time,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._known, self._clock, self._changed = client, known, clock, changed
        self._lock = Lock()
        self._said = Remembered()
        self._live: frozenset[str] = frozenset()
        self._were_known: frozenset[str] = frozenset()  # a run that leaves them has perhaps no fresh series either
        self._gone: dict[str, tuple[float, RunState]] = {}  # run -> (when it was last told, how it stood then)
        self._looked_back_at: float | None = None
        self._started_at, self._failures = -math.inf, 0
        self._stop = Signal()
        self._thread: Thread | None = None

    def said(self) -> Remembered:
        """Return what the server last said."""
        with self._lock:
            return self._said

    def ask(self) -> None:
        """Ask for news. Never raises: trouble is part of what was said."""
        now, before = self._clock(), self.said()
        self._failures += 1
        try:
            states, warning = self._news(now, before)
            said = Remembered(states, now, warning, before.since or now if warning else None)
            self._failures = 0
        except MetricsError as problem:
            said = self._trouble(problem, now, before)
        except Exception as problem:  # whatever a server sends, the pages go on
            log.exception("the answer of the metrics server could not be read")
            words = f"{self._client.shown} answers what cannot be read ({type(problem).__name__})"
            said = replace(before, problem=words, since=before.since or now)
        with self._lock:
            self._said = said
        self._changed()

    def _trouble(self, problem: MetricsError, now: float, before: Remembered) -> Remembered:
        if isinstance(problem, NoAnswer) and before.read_at is None and 0 <= now - self._started_at < START_SECONDS:
            return replace(before, problem=f"waiting for {self._client.shown}, which does not answer yet", since=None)
        waited = before.problem and before.since is None
        return replace(before, problem=str(problem), since=before.since or (self._started_at if waited else now))

    def _news(self, now: float, before: Remembered) -> tuple[dict[str, RunState], str]:
        known = frozenset(self._known())
        live = self._client.query(_LAST_READ)
        names = frozenset(by_run(live.series))
        states, warning = self._states(sorted(names - known))
        told = known | states.keys()  # a ledger may have ended since it was named
        late = self._looked_back_at is None or now - self._looked_back_at >= LOOK_BACK_SECONDS
        if late or (self._live | self._were_known | names) - told:
            self._look_back(told)
            self._looked_back_at = now
        self._live, self._were_known = frozenset(states), known
        gone = {run: state for run, (_, state) in self._gone.items() if run not in told}
        return gone | states, f"{self._client.shown}: {live.warning or warning}" if live.warning or warning else ""

    def _states(self, runs: Iterable[str], at: float | None = None) -> tuple[dict[str, RunState], str]:
        """Return the runs as their ledgers tell them, now or at a time, and what is missing in the answer."""
        names, warning = list(runs), ""
        states: dict[str, RunState] = {}
        for first in range(0, len(names), _AT_ONCE):
            answer = self._client.query(selector(names[first : first + _AT_ONCE]), at)
            states |= {run: run_state(told) for run, told in by_run(answer.series).items()}
            warning = warning or answer.warning
        return states, warning

    def _look_back(self, told: Collection[str]) -> None:
        """Remember the runs that no ledger tells any more as they were last told."""
        answer = self._client.query(f"max_over_time({_LAST_READ}[{REMEMBERED}])")
        last: dict[str, float] = {}
        for series in answer.series:
            run, value = series.labels.get("run", ""), series.samples[-1][1]
            if is_slug(run) and run not in told and 0 < value < self._clock() + _AROUND:
                last[run] = max(value, last.get(run, 0.0))
        newest = sorted(last, key=lambda run: last[run], reverse=True)[:MOST_RUNS]
        self._gone = {run: found for run in newest if (found := self._as_last_told(run, last[run])) is not None}

    def _as_last_told(self, run: str, read_at: float) -> tuple[float, RunState] | None:
        known = self._gone.get(run)
        if known is not None and known[0] == read_at:
            return known
        around = f'{_LAST_READ}{{run="{run}"}}[{2 * _AROUND:.0f}s]'
        found = self._client.query(around, read_at + _AROUND).series
        times = [at for series in found for at, value in series.samples if math.isfinite(value)]  # NaN: it ended here
        states, _ = self._states([run], max(times)) if times else ({}, "")
        return (read_at, states[run]) if run in states else None

    def start(self, every_seconds: float = EVERY_SECONDS) -> None:
        """Ask now and from now on, in a daemon thread. ``every_seconds``: the usual time between two questions."""
        self._started_at = self._clock()
        self._thread = Thread(target=self._run, args=(every_seconds,), name="lastgood-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. A question that waits for its answer keeps no process from ending."""
        self._stop.set()

    def _run(self, every_seconds: float) -> None:
        self.ask()
        while not self._stop.wait(pause_seconds(self._failures, every_seconds)):
            self.ask()
