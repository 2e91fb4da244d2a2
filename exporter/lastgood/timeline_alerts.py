"""Put alerts and excursions into an incident's timeline.

Which they are is said by :mod:`lastgood.alert_story` and :mod:`lastgood.excursion_story`.

Pure: no files, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from lastgood import alert_story, excursion_story
from lastgood.state import Incident, RunState
from lastgood.step_clock import StepClock
from lastgood.timeline_entry import TimelineEntry, Tone, entry_of

_MARKS: Final[Mapping[str, tuple[Tone, str]]] = {"critical": ("critical", "▼"), "warning": ("warning", "▽")}


def alert_entries(state: RunState, incident: Incident, clock: StepClock) -> Iterator[TimelineEntry]:
    """Yield the incident's alerts. While the incident is open, one that nobody said to be over lasts as the run did."""
    last = state.last_event_at if incident.recovered_at is None and incident.closed_at is None else ""
    for event, span in alert_story.alerts_of(state, incident, clock):
        status, step = event.data["status"], alert_story.step_of(event, state, incident, clock)
        over = status in alert_story.OVER
        at = min(alert_story.ended_at(event) if over else span.start, event.time)  # its clock may be ahead of ours
        tone, symbol = _alert_mark(status, str(event.data.get("severity", "")))
        entry = entry_of("alerts", "alert", tone, symbol, event.attempt, step, at,
                       alert_story.alert_text(event, incident, step), who=alert_story.SOURCES[event.data["source"]],
                       until=(span.end or last) if status == "firing" else at, timed=True)  # fmt: skip
        yield replace(entry, known_at=event.time)


def _alert_mark(status: str, severity: str) -> tuple[Tone, str]:
    if status == "lost":
        return "missing", "–"
    return ("info", "i") if status == "resolved" else _MARKS.get(severity, ("info", "i"))


def excursion_entries(state: RunState, incident: Incident, clock: StepClock) -> Iterator[TimelineEntry]:
    """Yield the excursions that overlap the incident's window."""
    for found in excursion_story.excursions_of(state, incident, clock):
        entry = entry_of("alerts", "excursion", "warning", "▽", found.attempt, found.step, found.at, found.text,
                       until=found.until, timed=True)  # fmt: skip
        yield replace(entry, known_at=found.known_at)
