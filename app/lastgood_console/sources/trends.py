"""Ask a metrics server how a suspect's metrics went beside those of its peers, while an incident lasted.

A suspect is a rank on a node: after a restart the same number is another device's. A page never waits long: what takes
longer than a moment is there at its next look, and a server that fails is left alone for a while.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event as Signal
from threading import Lock, Thread
from typing import Final

from lastgood.events import timestamp_of
from lastgood.state import Incident, Place, Point, RunState
from lastgood.step_clock import StepClock
from lastgood.timeline import attempts_of
from lastgood_console.sources.client import MetricsError, PrometheusClient, Result
from lastgood_console.sources.trend import Trend

WAIT_SECONDS: Final = 1.5
ANSWER_SECONDS: Final = 10.0
FRESH_SECONDS: Final = 15.0
REST: Final = 10
"""A server has so many times as long for others as it took to answer."""
MOST_POINTS: Final = 240
LEAST_POINTS: Final = 60
MOST_PEERS: Final = 4096
"""Of a run with more ranks every fifth stands for all: those that end with 3 or 8, which are on every slot alike."""
ONE_IN: Final = 5
MOST_READINGS: Final = 240 * 2048
"""So many values of peers are looked at for one metric, as far as the least number of points allows."""
MOST_SUSPECTS: Final = 4
MOST_KEPT: Final = 32
_LEAST_ROOM: Final = 600.0  # seconds shown before and after
_LEAST: Final = -273  # nothing that is shown is ever less

log = logging.getLogger("lastgood.console")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that is shown. ``expression`` has a place for the label matchers and one for the window of a rate."""

    name: str
    unit: str
    expression: str


METRICS: Final = (
    Metric("grad_norm_local", "", 'lastgood_grad_norm{{{matchers},stage="local"}}'),
    Metric("step_seconds", "s", "rate(lastgood_step_duration_seconds_sum{{{matchers}}}[{window}]) / "
           "rate(lastgood_step_duration_seconds_count{{{matchers}}}[{window}])"),
    Metric("temperature", "°C", 'lastgood_gpu_temperature_celsius{{{matchers},sensor="core"}}'),
    Metric("power", "W", "lastgood_gpu_power_watts{{{matchers}}}"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """The times that are asked for: unix seconds, ``step`` apart."""

    low: float
    step: float
    count: int

    @property
    def times(self) -> tuple[float, ...]:
        """Return every time."""
        return tuple(round(self.low + i * self.step, 3) for i in range(self.count))


def span_of(state: RunState, incident: Incident, now: float) -> Span:
    """Return from before the window until after the incident, within the attempts that it is about. Pure."""
    starts = [timestamp_of(a.started_at) for a in attempts_of(state, incident) if a.number <= incident.attempt]
    opened = timestamp_of(incident.opened_at)
    window = incident.window
    began = StepClock(state).at(Point(window.start_attempt, window.start)) if window else None
    first = min(opened, timestamp_of(began)) if began else opened
    over = incident.closed_at or incident.recovered_at
    last = max(opened, timestamp_of(over)) if over else max(opened, now)
    room = max(_LEAST_ROOM, (last - first) / 2)
    low, high = max(first - room, *starts) if starts else first - room, min(last + room, max(now, last))
    most = points_of(ranks_of(state))
    step = max(1.0, math.ceil((high - low) / (most - 1)))
    count = min(most, int((high - low) / step) + 1)
    return Span(math.floor(high) - (count - 1) * step, step, count)  # ends with the newest moment


def ranks_of(state: RunState) -> int:
    """Return how many ranks a run has had at most. Pure."""
    return max((attempt.world_size for attempt in state.attempts), default=0)


def points_of(ranks: int) -> int:
    """Return how many moments are looked at for a run of so many ranks. Pure."""
    peers = ranks // ONE_IN if ranks > MOST_PEERS else ranks
    return max(LEAST_POINTS, min(MOST_POINTS, MOST_READINGS // max(1, peers)))


def expression(metric: Metric, run: str, suspect: Place, span: Span, ranks: int = 0) -> str:
    """Return the query for a suspect and the quantiles of its peers, told apart by the label ``line``. Pure.

    ``ranks``: how many the run has; 0: few.
    """
    window = f"{max(60.0, 2 * span.step):.0f}s"
    of_run, rank = f"run={_quoted(run)}", _quoted(str(suspect.rank))
    some = ',rank=~"[0-9]*[38]"' if ranks > MOST_PEERS else ""
    own, others = (
        metric.expression.format(matchers=f"{of_run},{more}", window=window)
        for more in (f"rank={rank},node={_quoted(suspect.node)}", f"rank!={rank}{some}")
    )
    peers = f"({others}) >= {_LEAST}"  # NaN, which has no place in a row, never is
    lines = [_line("suspect", f"max({own})")]
    lines += [
        _line(name, f"quantile({share}, {peers})") for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9))
    ]
    return " or ".join(lines)


def _line(name: str, query: str) -> str:
    return f'label_replace({query}, "line", "{name}", "run", ".*")'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def trend(metric: Metric, rank: int, span: Span, answer: Result, asked_at: float) -> Trend | None:
    """Return an answer as a trend; None when the suspect has no such metric. Pure.

    VictoriaMetrics and the front of Thanos answer for multiples of the step, whatever times were asked for.
    """
    found = {s.labels.get("line", ""): {round(at, 3): value for at, value in s.samples} for s in answer.series}
    if not found.get("suspect"):
        return None
    times = _moved(span, next(iter(found["suspect"])))
    columns = {name: _column(found.get(name, {}), times) for name in ("suspect", "median", "p10", "p90")}
    return Trend(
        metric=metric.name, unit=metric.unit, rank=rank, times=times, step_seconds=span.step, asked_at=asked_at,
        **columns,
    )  # fmt: skip


def _moved(span: Span, answered: float) -> tuple[float, ...]:
    """Return the times of a span, moved by less than a step to where an answer has a sample."""
    late = (answered - span.low) % span.step
    by = late if late <= span.step / 2 else late - span.step
    return tuple(round(at + by, 3) for at in span.times)


def _column(samples: Mapping[float, float], times: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(samples.get(at) for at in times)


@dataclass(frozen=True, slots=True)
class _Kept:
    trends: tuple[Trend, ...]
    asked_at: float
    fresh_seconds: float = FRESH_SECONDS


class Trends:
    """Keep the trends of incidents, and ask for them again when they are old. ``clock``: unix seconds."""

    def __init__(self, client: PrometheusClient, clock: Callable[[], float] = time.time) -> None:
        self._client, self._clock = client, clock
        self._lock = Lock()
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._asking: dict[tuple[str, str], Signal] = {}

    def of(self, state: RunState, incident: Incident) -> tuple[Trend, ...]:
        """Return the trends around an incident, empty while none are known. Waits only where nothing was asked yet."""
        key, wait = (state.run, incident.id), None
        with self._lock:
            kept = self._kept.get(key)
            old = kept is None or abs(self._clock() - kept.asked_at) >= kept.fresh_seconds
            if old and key not in self._asking:
                asked = self._asking[key] = Signal()
                wait = asked if kept is None else None
                Thread(target=self._ask, args=(key, state, incident), name="lastgood-trends", daemon=True).start()
        if wait is not None:
            wait.wait(WAIT_SECONDS)
        with self._lock:
            kept = self._kept.get(key)
        return kept.trends if kept else ()

    def _ask(self, key: tuple[str, str], state: RunState, incident: Incident) -> None:
        """Ask; what was known before stays where there is no answer."""
        now, began, found = self._clock(), time.monotonic(), None
        try:
            found = tuple(self._all(state, incident, now))
        except MetricsError as problem:
            log.debug("no trends: %s", problem)  # the poller says it where people look
        except Exception:
            log.exception("the trends of run %s could not be read", state.run)
        fresh = max(FRESH_SECONDS, REST * (time.monotonic() - began))
        with self._lock:
            before = self._kept.pop(key, _Kept((), now))
            self._kept[key] = _Kept(before.trends if found is None else found, now, fresh)
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._asking.pop(key).set()

    def _all(self, state: RunState, incident: Incident, now: float) -> Iterator[Trend]:
        span = span_of(state, incident, now)
        high = span.times[-1]
        for metric in METRICS:
            for suspect in incident.suspects[:MOST_SUSPECTS]:
                query = expression(metric, state.run, suspect, span, ranks_of(state))
                answer = self._client.query_range(query, span.low, high, span.step, ANSWER_SECONDS)
                found = trend(metric, suspect.rank, span, answer, now)
                if found is None:
                    break  # no sensor, or no scrape: the others have none either
                yield found
