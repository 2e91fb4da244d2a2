"""Decide which time the pictures of an incident show: what is about it, its attempt, the whole run, or a zoom.

The choice is kept in the address, so a link shows the same time again. Pure: no Streamlit, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from lastgood.state import Attempt, Incident, Point, RunState
from lastgood.step_clock import StepClock
from lastgood.timeline import attempts_of
from lastgood.wording import moment

Scope = Literal["incident", "attempt", "run"]
SCOPES: Final[Mapping[str, str]] = {"incident": "This incident", "attempt": "Attempt", "run": "Whole run"}
"""The scopes of :data:`Scope` in words."""
FREE_SHARE: Final = 0.08
"""Room beside "now" for labels, of the shown time."""
FINDING_SHARE: Final = 0.16
"""Room beside the newest finding for its label, as long as it is short before "now"."""
LEAST_SECONDS: Final = 0.05
"""A zoom that is narrower shows this much: times are kept to the millisecond."""
MOST_SECONDS: Final = 10 * 366 * 86_400.0
_EPOCH_DIGITS: Final = 13
"""Digits of a time in milliseconds since 1970, as Grafana writes it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A shown time, in unix seconds. ``now``: when the newest event was known; ``zoomed``: a person chose it."""

    low: float
    high: float
    now: float
    zoomed: bool = False

    @property
    def span(self) -> float:
        """Return its length in seconds."""
        return self.high - self.low

    def moved(self, share: float) -> Frame:
        """Return the time that lies later by a share of its length (earlier if negative)."""
        return Frame(self.low + share * self.span, self.high + share * self.span, self.now, zoomed=True)

    def scaled(self, factor: float) -> Frame:
        """Return a longer (above 1) or shorter time around the same middle."""
        middle = (self.low + self.high) / 2
        half = min(max(self.span * factor, LEAST_SECONDS), MOST_SECONDS) / 2
        return Frame(middle - half, middle + half, self.now, zoomed=True)


def frame_of(
    state: RunState, incident: Incident, clock: StepClock, scope: Scope, since: str | None, until: str | None
) -> Frame:
    """Return the shown time. ``since`` and ``until``: what the address says of a zoom, perhaps nonsense."""
    now = unix(state.last_event_at)
    low, high = read_time(since), read_time(until)
    if low is not None and high is not None and LEAST_SECONDS <= high - low <= MOST_SECONDS:
        return Frame(low, high, now, zoomed=True)
    low, end = _extent(state, incident, clock, scope)
    span = max(end - low, 1.0)
    known = max((unix(f.at) for f in incident.findings), default=low)
    high = max(low + span * (1 + FREE_SHARE), min(known, end) + span * FINDING_SHARE)
    return Frame(low - span * 0.01, high, now)


def _extent(state: RunState, incident: Incident, clock: StepClock, scope: Scope) -> tuple[float, float]:
    """Return the first and the last second that a scope is about."""
    first, last = unix(state.first_event_at), unix(state.last_event_at)
    if scope == "run":
        return first, last
    if scope == "attempt":
        about = next((a for a in state.attempts if a.number == incident.attempt), None)
        return (unix(about.started_at), unix(end_of(about))) if about else (first, last)
    return _of_incident(state, incident, clock)


def _of_incident(state: RunState, incident: Incident, clock: StepClock) -> tuple[float, float]:
    """Return what lies around the window, within its attempts: as much before and after as it is long, and a minute.

    An open incident goes on to the newest event.
    """
    window, opened = incident.window, unix(incident.opened_at)
    start = clock.at(Point(window.start_attempt, window.start)) if window else None
    began = min(unix(start) if start else opened, opened)
    around = opened - began + 60.0
    ended = incident.recovered_at or incident.closed_at
    attempts = attempts_of(state, incident)
    low = max(began - around, unix(attempts[0].started_at) if attempts else began)
    last = unix(state.last_event_at)
    if ended is None:
        return low, last
    if incident.recovered_at is None and attempts:  # nothing that came after its attempts is about it
        last = min(last, max(unix(end_of(a)) for a in attempts))
    return low, max(opened, min(last, max(unix(ended), opened) + around))


def attempts_in(state: RunState, frame: Frame) -> tuple[Attempt, ...]:
    """Return the attempts that ran within a time, or just outside it: someone may move the picture a little."""
    low, high = stamp(frame.low - frame.span), stamp(frame.high + frame.span)
    return tuple(a for a in state.attempts if end_of(a) >= low and a.started_at <= high)


def end_of(attempt: Attempt) -> str:
    """Return when an attempt ended, or when it was last heard of."""
    return attempt.ended_at or attempt.last_event_at


def unix(time: str) -> float:
    """Return an RFC 3339 time as unix seconds."""
    return moment(time).timestamp()


def stamp(seconds: float) -> str:
    """Return unix seconds as the journal writes times, so that both compare as texts."""
    return _utc(seconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def address_time(seconds: float) -> str:
    """Return unix seconds as an address carries them: to the millisecond."""
    return f"{stamp(seconds)[:-4]}Z"


def frame_words(frame: Frame) -> str:
    """Say which time is shown: ``29 Nov 02:31:10 to 02:58:40``. The room for labels beside "now" is no time."""
    low, high = _utc(frame.low), _utc(frame.high if frame.zoomed else min(frame.high, max(frame.now, frame.low)))
    until = f"{high:%H:%M:%S}" if low.date() == high.date() else f"{high:%d %b %H:%M:%S}"
    return f"{low:%d %b %H:%M:%S} to {until}"


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0.0), 2e11), UTC)


def read_time(text: str | None) -> float | None:
    """Read a time out of an address, RFC 3339 or milliseconds since 1970, as unix seconds; None when it is neither."""
    if not text:
        return None
    if text.isdecimal() and text.isascii():
        return int(text) / 1000 if len(text) == _EPOCH_DIGITS else None
    try:
        found = moment(text)
        return found.timestamp() if found.tzinfo and found.timestamp() >= 0 else None
    except (ValueError, OverflowError):
        return None
