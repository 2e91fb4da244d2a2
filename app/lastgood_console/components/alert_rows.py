"""Decide how the page of alerts lists them: in which state, about what, and many at once as one row. Plain values.

A switch that fails silences a thousand ranks within a minute. Alerts of one rule, run, severity and state that began
close to each other are one *burst* and one row, until somebody asks for that rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from lastgood.alert_limits import FORGOTTEN
from lastgood.alert_story import ended_at, step_of, step_when_it_began
from lastgood.events import Event
from lastgood.state import Incident, RunState
from lastgood.step_clock import StepClock
from lastgood.wording import duration_text, joined, moment, step_text
from lastgood_console.alerts.fleet import FLEET
from lastgood_console.components.alert_facts import Alerts, name_of, severity_of

BURST_FROM: Final = 8
"""So many alike are one row."""
BURST_GAP_SECONDS: Final = 300.0
"""Alerts that began at most so long after each other are one burst."""
NO_RUN: Final = "(no run)"
"""Stands for "of no run" where a run is chosen; no run can be called so."""
SEVERITIES: Final = ("critical", "warning", "info")
State = Literal["firing", "no data", "broken rule", "not sent", "kept no longer", "lost", "resolved"]
_STATES: Final[Mapping[str, State]] = {
    "no_data": "no data", "error": "broken rule", "lost": "lost", "resolved": "resolved",
}  # fmt: skip
ClockOf = Callable[[RunState], StepClock]


@dataclass(frozen=True, slots=True)
class Burst:
    """One alert, or several alike; ``events``: newest start first. ``state`` is one of :data:`State`."""

    events: tuple[Event, ...]
    state: State

    @property
    def newest(self) -> Event:
        """Return the newest of them."""
        return self.events[0]

    @property
    def began(self) -> str:
        """Return when the first of them began."""
        return str(self.events[-1].data["starts_at"])

    @property
    def end(self) -> str:
        """Return when the last of them ended; empty while one stands."""
        return max(map(_end, self.events), default="")


@dataclass(frozen=True, slots=True)
class Listed:
    """What the page lists: those that stand, and those that are over (resolved, or lost without a measurement)."""

    standing: tuple[Event, ...]
    over: tuple[Event, ...]


def listed(found: Alerts) -> Listed:
    """Return what stands, critical first, and what was resolved or lost after it, newest end first."""
    stand = tuple(e for e in found.standing if e.data["status"] != "lost")
    lost = [e for e in found.standing if e.data["status"] == "lost"]
    return Listed(stand, tuple(sorted([*found.over, *lost], key=lambda e: (_end(e), e.id), reverse=True)))


def chosen(found: Listed, *, severity: str = "", run: str = "", rule: str = "") -> Listed:
    """Return those of a severity, a run (:data:`NO_RUN`: of none) and a rule; "" takes all."""

    def wanted(event: Event) -> bool:
        of_run = NO_RUN if event.run == FLEET else event.run
        return severity in ("", severity_of(event)) and run in ("", of_run) and rule in ("", name_of(event))

    return Listed(tuple(filter(wanted, found.standing)), tuple(filter(wanted, found.over)))


def state_of(event: Event) -> State:
    """Return how an alert stands."""
    if event.data["status"] == "truncated":
        return "kept no longer" if event.data.get("reason") == FORGOTTEN else "not sent"
    return "resolved" if event.data.get("ends_at") and not _lost(event) else _STATES.get(event.data["status"], "firing")


def _lost(event: Event) -> bool:
    return bool(event.data["status"] == "lost")


def _end(event: Event) -> str:
    over = _lost(event) or state_of(event) == "resolved"
    return ended_at(event) if over else ""


def bursts(events: Iterable[Event], *, apart: bool = False) -> tuple[Burst, ...]:
    """Return the rows, in the order of the newest of each. ``apart``: one row for each alert."""
    known = list(events)
    if apart:
        return tuple(Burst((event,), state_of(event)) for event in known)
    alike: dict[tuple[str, str, str, State], list[Event]] = {}
    for event in known:
        alike.setdefault((name_of(event), event.run, severity_of(event), state_of(event)), []).append(event)
    rows = [Burst(part, key[3]) for key, group in alike.items() for part in _parts(group)]
    place = {id(event): number for number, event in enumerate(known)}
    return tuple(sorted(rows, key=lambda burst: min(place[id(event)] for event in burst.events)))


def _parts(group: Sequence[Event]) -> Iterable[tuple[Event, ...]]:
    """Yield alerts that began close to each other together where they are many, else each by itself."""
    if len(group) < BURST_FROM:
        yield from ((event,) for event in group)
        return
    newest = sorted(group, key=lambda e: str(e.data["starts_at"]), reverse=True)
    part = [newest[0]]
    for event in newest[1:]:
        if _seconds(event.data["starts_at"], part[-1].data["starts_at"]) > BURST_GAP_SECONDS:
            yield from _part(part)
            part = []
        part.append(event)
    yield from _part(part)


def _part(events: Sequence[Event]) -> Iterable[tuple[Event, ...]]:
    if len(events) < BURST_FROM:
        return ((event,) for event in events)
    return (tuple(events),)


def _seconds(start: str, end: str) -> float:
    return (moment(end) - moment(start)).total_seconds()


def how_long(burst: Burst, now: str) -> str:
    """Return how long it fired, or has been firing. ``now``: RFC 3339."""
    seconds = max(0.0, _seconds(burst.began, burst.end or now))
    return duration_text(seconds) if seconds >= 10 else f"{seconds:.0f} s"


def several(values: Iterable[str], what: str) -> str:
    """Return the one or two values that there are, else how many: ``1000 ranks``."""
    found = list(dict.fromkeys(value for value in values if value))
    return ", ".join(found) if len(found) <= 2 else f"{step_text(len(found))} {what}"


def incident_of(event: Event, state: RunState | None) -> Incident | None:
    """Return the incident of its run that an alert names, if it is known."""
    named = event.data.get("incident")
    return next((i for i in state.incidents if named in (i.id, *i.aliases)), None) if state and named else None


def step_about(event: Event, state: RunState | None, clock_of: ClockOf) -> int | None:
    """Return the step an alert is about: of the finding it reports, else where its run was when it began."""
    if state is None:
        return None
    clock, incident = clock_of(state), incident_of(event, state)
    return step_of(event, state, incident, clock) if incident else step_when_it_began(event, state, clock)


def headline(found: Listed) -> str:
    """Say what stands."""
    critical = sum(severity_of(e) == "critical" for e in found.standing)
    count = len(found.standing)
    if critical:
        return "One critical alert stands." if critical == 1 else f"{critical} critical alerts stand."
    if count:
        return "One alert stands, not critical." if count == 1 else f"{count} alerts stand, none critical."
    return "No alert stands."


def consequence(found: Listed, known: Collection[str]) -> str:
    """Say which alerts stand where, critical first. ``known``: the runs of this console."""
    said: dict[tuple[str, str], int] = {}
    for event in found.standing:
        where = event.run if event.run in known else "no run" if event.run == FLEET else f"{event.run} (not read here)"
        said[name_of(event), where] = said.get((name_of(event), where), 0) + 1
    told = [f"{n} × {name} of {run}" if n > 1 else f"{name} of {run}" for (name, run), n in said.items()]
    more = [f"{len(told) - 3} more kinds"] if len(told) > 4 else []
    over = f"{len(found.over)} resolved or lost in the last 7 days." if found.over else ""
    stand = f"{joined([*told[: 3 if more else 4], *more])}." if told else ""
    return " ".join(filter(None, (stand, over)))
