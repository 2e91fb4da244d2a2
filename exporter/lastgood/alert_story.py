"""Tell which alerts belong to an incident, how long each fired, and what it says. Pure: no files, no clock.

An alert belongs to the incident that its label names. One without such a label belongs to whatever was going on in
its run while it fired, unless it is about a node that the incident does not suspect.

An alert may be announced again with another start (two Prometheus servers see it a moment apart), so it is over when
anything of the same fingerprint ended after it had started.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lastgood import wording
from lastgood.alert_limits import FORGOTTEN
from lastgood.events import Event
from lastgood.state import Incident, Point, RunState
from lastgood.step_clock import StepClock

OVER: Final = ("resolved", "lost")
SOURCES: Final[Mapping[str, str]] = {"alertmanager": "Alertmanager", "grafana": "Grafana"}
_FOR_EVER: Final = "9999"


@dataclass(frozen=True, slots=True)
class Span:
    """When an alert fired; ``end`` is None while nothing says that it is over."""

    start: str
    end: str | None


class Spans:
    """Finds when alerts fired, from everything that was said about them."""

    def __init__(self, alerts: Iterable[Event]) -> None:
        self._ends: dict[str, list[str]] = {}
        for event in alerts:
            if event.data["status"] in OVER:
                insort(self._ends.setdefault(event.data["fingerprint"], []), ended_at(event))

    def of(self, event: Event) -> Span:
        """Return the span of an alert."""
        start = event.data["starts_at"]
        ends = self._ends.get(event.data["fingerprint"], [])
        after = bisect_left(ends, start)
        return Span(start, ends[after] if after < len(ends) else None)


def ended_at(event: Event) -> str:
    """Return when an alert that is over ended: as said, else when that was known."""
    return str(event.data.get("ends_at") or event.time)


def alerts_in(events: Iterable[Event]) -> list[Event]:
    """Return the alerts among events."""
    return [event for event in events if event.type == "alert"]


def standing(alerts: Iterable[Event]) -> list[Event]:
    """Return what nobody has said to be over: one event for each alert, newest start first.

    What was lost stands too: it went away without a measurement.
    """
    known = list(alerts)
    resolved = Spans(event for event in known if event.data["status"] == "resolved")
    newest: dict[tuple[str, str], Event] = {}
    for event in sorted(known, key=lambda e: (e.data["starts_at"], e.data["status"] == "lost", e.time)):
        if event.data["status"] != "resolved" and resolved.of(event).end is None:
            newest[event.run, event.data["fingerprint"]] = event
    return sorted(newest.values(), key=lambda e: (e.data["starts_at"], e.id), reverse=True)


def alerts_of(state: RunState, incident: Incident, clock: StepClock) -> Iterator[tuple[Event, Span]]:
    """Yield the alerts that belong to an incident, each with the time it fired."""
    alerts = alerts_in(state.annotations)
    spans = Spans(alerts)
    low, high = _duration(incident, clock)
    for event in alerts:
        span = spans.of(event)
        if _names(event, incident) or (
            "incident" not in event.data
            and span.start <= high
            and (span.end or _FOR_EVER) >= low
            and _is_about(event, incident)
        ):
            yield event, span


def _duration(incident: Incident, clock: StepClock) -> tuple[str, str]:
    window = incident.window
    began = clock.at(Point(window.start_attempt, window.start)) if window and not window.contained else None
    over = incident.recovered_at or incident.closed_at
    return min(began or incident.opened_at, incident.opened_at), over or _FOR_EVER


def _names(event: Event, incident: Incident) -> bool:
    return event.data.get("incident") in {incident.id, *incident.aliases}


def _is_about(event: Event, incident: Incident) -> bool:
    """Tell whether an alert is about the whole run or about a device that may be to blame."""
    node, gpu = event.data.get("node"), event.data.get("gpu_uuid")
    if node is None or not incident.suspects:
        return True
    return any(s.node == node and gpu in (None, s.gpu_uuid) for s in incident.suspects)


def step_of(event: Event, state: RunState, incident: Incident, clock: StepClock) -> int | None:
    """Return the step an alert is about: of the finding it reports, else where the run was when it began."""
    if _names(event, incident):
        known = [f for f in incident.findings if f.check == event.data.get("check") and f.at <= event.time]
        return known[-1].step if known else incident.step
    return step_when_it_began(event, state, clock)


def step_when_it_began(event: Event, state: RunState, clock: StepClock) -> int | None:
    """Return where the run was when an alert began; None before its first attempt."""
    at = str(event.data["starts_at"])
    attempt = next((a.number for a in reversed(state.attempts) if a.started_at <= at), None)
    return None if attempt is None else clock.step_at(attempt, at)


def alert_text(event: Event, incident: Incident, step: int | None) -> str:
    """Say what an alert says; what stands before the colon is its short form."""
    data = event.data
    name, summary = str(data["name"]), str(data.get("summary", ""))
    match data["status"]:
        case "resolved":
            return f"{name} resolved"
        case "lost":
            return f"{name} {_lost(data, incident)}"
        case "no_data" | "error" as status:
            said = "has no data" if status == "no_data" else "cannot be evaluated"
            return _with(f"Rule {data.get('rule') or name} {said}", str(data.get("reason", "")) or summary)
        case "truncated" if data.get("reason") == FORGOTTEN:
            return summary
        case "truncated":
            return f"{data['truncated']} more {name} alerts were not sent"
    about = f" about step {wording.step_text(step)}" if step is not None else ""
    return _with(f"{name} fired{about}" + (f", {data['severity']}" if data.get("severity") else ""), summary)


def _lost(data: Mapping[str, Any], incident: Incident) -> str:
    """A finding's series is gone once its incident is over: then the alert ended with it, as it should."""
    over = incident.state in ("recovered", "closed")
    if over and data.get("reason") == "MissingSeries" and data.get("incident") in {incident.id, *incident.aliases}:
        return "ended with the incident"
    return _with("lost, not recovered", str(data.get("reason", "")))


def _with(short: str, more: str) -> str:
    return f"{short}: {more}" if more else short
