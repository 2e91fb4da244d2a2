"""Decide which alerts stand, which are over, what each is about, and which of them decide how a run is doing.

Plain values, no HTML. An alert stands while nobody has said that it is over. One that names an incident of its run is
told by that incident; every other one has to be seen where its run and its node are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lastgood.alert_story import Spans, alerts_in, ended_at, standing
from lastgood.events import Event
from lastgood.state import RunState
from lastgood.wording import age_text, moment
from lastgood_console.alerts.texts import TextKey, text_key

_ORDER: Final = {"critical": 0, "warning": 1}


@dataclass(frozen=True, slots=True)
class Alerts:
    """Alerts of all runs and of none. ``standing``: critical first, then newest; ``over``: newest end first."""

    standing: tuple[Event, ...] = ()
    over: tuple[Event, ...] = ()

    def outside(self, states: Mapping[str, RunState]) -> Alerts:
        """Return those that name no incident of their run."""
        named = {(run, name) for run, state in states.items() for i in state.incidents for name in (i.id, *i.aliases)}
        return self._only(lambda event: (event.run, event.data.get("incident")) not in named)

    def of_run(self, run: str) -> Alerts:
        """Return those of a run."""
        return self._only(lambda event: event.run == run)

    def of_nodes(self, nodes: Iterable[str]) -> Alerts:
        """Return those about one of these nodes, whatever run they name."""
        wanted = {node.lower() for node in nodes if node}
        return self._only(lambda event: (event.node or "").lower() in wanted)

    def called(self, name: str) -> Alerts:
        """Return those of a rule."""
        return self._only(lambda event: name_of(event) == name)

    def _only(self, wanted: Callable[[Event], bool]) -> Alerts:
        return Alerts(tuple(filter(wanted, self.standing)), tuple(filter(wanted, self.over)))


def alerts_of(state: RunState) -> Alerts:
    """Return all alerts of a run."""
    return _sorted_out(alerts_in(state.annotations))


def _sorted_out(known: Sequence[Event]) -> Alerts:
    return Alerts(tuple(standing(known)), tuple(_over(known)))


def read_alerts(
    states: Mapping[str, RunState],
    strays: Iterable[Event],
    since: str = "",
    texts: Mapping[TextKey, str] | None = None,
    *,
    of_run: Callable[[RunState], Alerts] = alerts_of,
) -> Alerts:
    """Return the alerts of the runs and those without one.

    A stray alert of a run that has become known since is told by that run. ``since``: RFC 3339; what began before it
    and was never said to be over has been forgotten by whoever sent it. ``texts``: what standing ones say by now.
    ``of_run`` may remember the alerts of a run that has no news: of the largest runs they are thousands.
    """
    parts = [_sorted_out([event for event in strays if event.run not in states]), *map(of_run, states.values())]
    stand = [
        _with_text(e, texts or {}) for part in parts for e in part.standing if max(e.time, e.data["starts_at"]) >= since
    ]
    over = [event for part in parts for event in part.over if event.data["ends_at"] >= since]
    stand.sort(key=lambda event: (event.data["starts_at"], event.id), reverse=True)
    stand.sort(key=lambda event: _ORDER.get(severity_of(event), len(_ORDER)))
    return Alerts(tuple(stand), tuple(sorted(over, key=_newest_end, reverse=True)))


def _newest_end(event: Event) -> tuple[str, str]:
    return event.data["ends_at"], event.id


def _with_text(event: Event, texts: Mapping[TextKey, str]) -> Event:
    said = texts.get(text_key(event))
    return event if said is None else replace(event, data={**event.data, "summary": said})


def _over(known: Sequence[Event]) -> list[Event]:
    """Return one event for each alert that was resolved, with the time in ``ends_at``."""
    ends = [event for event in known if event.data["status"] == "resolved"]
    spans = Spans(ends)
    found: dict[tuple[str, str, str], Event] = {}
    for event in known:
        end = spans.of(event).end if event.data["status"] != "resolved" else None
        if end is not None:
            found[event.run, event.data["fingerprint"], end] = replace(event, data={**event.data, "ends_at": end})
    for event in ends:  # its beginning may have gone astray
        end = ended_at(event)
        key = event.run, event.data["fingerprint"], end
        found.setdefault(key, replace(event, data={**event.data, "ends_at": end}))
    return sorted(found.values(), key=_newest_end, reverse=True)


def name_of(event: Event) -> str:
    """Return the rule of an alert; Grafana reports a broken rule under another name."""
    return str(event.data.get("rule") or event.data["name"])


def severity_of(event: Event) -> str:
    """Return the severity, empty when none was given."""
    return str(event.data.get("severity", ""))


# which of them decide how a run is doing


@dataclass(frozen=True, slots=True)
class Alarm:
    """What a run's alerts say about it. ``words`` is empty when they say nothing that a person must know."""

    critical: bool = False
    words: str = ""


def alarm(state: RunState, found: Iterable[Event], now: str) -> Alarm:
    """Return what the standing alerts of a run say about it, critical before warning. ``now``: RFC 3339."""
    telling = [event for event in found if _still_about(event, state)]
    critical = [e for e in telling if severity_of(e) == "critical" and e.data["status"] in ("firing", "lost")]
    warnings = [e for e in telling if e not in critical and severity_of(e) in ("critical", "warning")]
    if not (critical or warnings):
        return Alarm()
    first, *rest = [*critical, *warnings]
    more = f" and {len(rest)} more alert{'' if len(rest) == 1 else 's'}" if rest else ""
    return Alarm(bool(critical), _words(first, now) + more)


def fleet_alarms(found: Iterable[Event], known: Collection[str]) -> tuple[Event, ...]:
    """Return the critical alerts that stand and are of none of the known runs: no run's row would tell of them."""
    return tuple(
        event for event in found
        if event.run not in known and severity_of(event) == "critical" and event.data["status"] in ("firing", "lost")
    )  # fmt: skip


def _still_about(event: Event, state: RunState) -> bool:
    """Tell whether an alert is about the run as it is now.

    What was lost with an attempt is not about the next one; a run that completed has left behind what fired before.
    How many alerts were not sent is no alert.
    """
    attempt, status = state.attempt, event.data["status"]
    if status == "truncated":
        return False
    if attempt is None:
        return True
    if status == "lost" and event.data["starts_at"] < attempt.started_at:
        return False
    completed = attempt.end_reason == "completed" and attempt.ended_at is not None
    return not completed or event.data["starts_at"] > (attempt.ended_at or "")


def _words(event: Event, now: str) -> str:
    age = age_text((moment(now) - moment(event.data["starts_at"])).total_seconds())
    match event.data["status"]:
        case "lost":
            return f"{name_of(event)} lost, not recovered"
        case "no_data":
            return f"{name_of(event)} has no data for {age}"
        case "error":
            return f"{name_of(event)} cannot be evaluated for {age}"
    return f"{name_of(event)} for {age}"
