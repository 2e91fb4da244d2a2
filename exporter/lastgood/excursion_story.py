"""Tell which excursions of devices belong to an incident's story, and how long each lasted. Pure: no files, no clock.

A sensor that left its range is context: it stands in the timeline of an incident when it was out of range at some
time in which the corruption can have begun, whichever device it is, and it accuses nobody. A hot room makes thousands
of them, so a few are named, those of suspects first, and the rest is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lastgood import wording
from lastgood.events import Event, timestamp_of
from lastgood.state import Attempt, Device, Incident, Point, RunState
from lastgood.step_clock import StepClock

MOST_NAMED: Final = 6


@dataclass(frozen=True, slots=True)
class Excursion:
    """One time out of range. ``until`` is the end of its attempt when nothing says that it was over."""

    attempt: int
    step: int | None
    at: str
    until: str
    known_at: str
    text: str
    node: str
    gpu_uuid: str


def excursions_of(state: RunState, incident: Incident, clock: StepClock) -> tuple[Excursion, ...]:
    """Return the excursions that overlap the incident's window, oldest first; the last one may count the rest."""
    low, high = _onset(incident, clock)
    found = [e for e in _excursions(state) if e.at <= high and e.until >= low]
    suspects = {suspect.device for suspect in incident.suspects}
    found.sort(key=lambda e: (Device(e.node, e.gpu_uuid) not in suspects, e.at, e.text))
    named, rest = found[:MOST_NAMED], found[MOST_NAMED:]
    if len(rest) == 1:
        named, rest = found, []
    return tuple(sorted([*named, *_counted(rest)], key=lambda e: (e.at, e.text)))


def _onset(incident: Incident, clock: StepClock) -> tuple[str, str]:
    """Return when the corruption can have begun. A contained step was made after the one before it."""
    window = incident.window
    if window is None:
        return incident.opened_at, incident.opened_at
    start = min(window.start, window.end - 1)
    low = clock.at(Point(window.start_attempt, start)) or incident.opened_at
    high = clock.at(Point(window.end_attempt, window.end)) or incident.opened_at
    return min(low, high), max(low, high)


def _excursions(state: RunState) -> Iterator[Excursion]:
    """Yield the excursions of a run: their two lines joined, whichever of them was read."""
    attempts = {attempt.number: attempt for attempt in state.attempts}
    lines: dict[tuple[str, str], list[Event]] = {}
    for event in state.annotations:
        if event.type == "device.excursion" and event.attempt in attempts:
            lines.setdefault((event.source, str(event.data["excursion"])), []).append(event)
    for told in lines.values():
        yield _joined(sorted(told, key=lambda e: e.time), attempts[told[0].attempt])


def _joined(told: list[Event], attempt: Attempt) -> Excursion:
    first = told[0]
    worst = max(reversed(told), key=lambda e: abs(e.data["value"] - e.data["limit"]))
    end = next((str(e.data["ended"]) for e in told if e.data["ended"]), attempt.ended_at or attempt.last_event_at)
    began = str(first.data["started"])
    return Excursion(
        first.attempt, first.step, began, max(began, end), first.time, _text(worst, told),
        str(first.data["node"]), str(first.data["gpu_uuid"]),
    )  # fmt: skip


def _text(worst: Event, told: list[Event]) -> str:
    """Say how far it was out of range, and for how long when an end was told. Either line may be missing."""
    kept = sum(event.data.get("kept_back") or 0 for event in told)
    more = f"; {kept} more before it" if kept else ""
    return f"Device excursion{_length(told[-1])}: {worst.data['text']}{more}"


def _length(last: Event) -> str:
    if not last.data["ended"]:
        return ""
    seconds = timestamp_of(str(last.data["ended"])) - timestamp_of(str(last.data["started"]))
    return f" of {wording.duration_text(seconds)}" if seconds >= 1 else ""


def _counted(rest: list[Excursion]) -> Iterable[Excursion]:
    """Yield one entry for those that are not named."""
    if rest:
        first = rest[0]
        nodes = {e.node for e in rest}
        where = f"{len(nodes)} nodes" if len(nodes) > 1 else first.node
        text = f"{len(rest)} more device excursions on {where}"
        if all(wording.is_fake(e.gpu_uuid) for e in rest):
            text += " (fake GPUs)"
        yield Excursion(first.attempt, None, min(e.at for e in rest), max(e.until for e in rest),
                        min(e.known_at for e in rest), text, first.node, first.gpu_uuid)  # fmt: skip
