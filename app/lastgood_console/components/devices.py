"""Put together what is known about each device over all runs: plain values, no HTML.

A device is accused, never a rank: ranks change with every restart. Of a run with many attempts only the newest are
looked through for where its devices ran last; a device that an incident names is known from that attempt at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Final

from lastgood.accusations import against, candidates, once
from lastgood.state import Attempt, Device, Incident, Place, RunState
from lastgood.wording import device_text, step_text

DAY: Final = 86_400.0
NEWEST_ATTEMPTS: Final = 50
MOST_NAMED: Final = 3
Seat = tuple[str, int]
"""A run and a rank in it."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device. ``week`` and ``quarter`` are the incidents of 7 and 90 days that accuse it, newest first.

    ``undecided`` are the incidents, newest first, that name it as a candidate; ``seats`` are its ranks in active runs.
    """

    place: Place
    week: tuple[Incident, ...]
    quarter: tuple[Incident, ...]
    undecided: tuple[Incident, ...]
    last_seen: str
    seats: tuple[Seat, ...]

    @property
    def device(self) -> Device:
        """Return the identity."""
        return self.place.device

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Return every incident that names it, newest first."""
        if not (self.quarter or self.undecided):  # so it is with nearly all of a fleet's thousands
            return ()
        named = {(i.run, i.id): i for i in (*self.quarter, *self.undecided)}
        return tuple(sorted(named.values(), key=lambda i: i.opened_at, reverse=True))


def rows(states: Iterable[RunState], now: float) -> list[DeviceRow]:
    """Return the devices, the most accused first, then candidates, then by node. ``now``: unix seconds."""
    known = list(states)
    places, seen, seats = _whereabouts(known)
    week, quarter = against(known, now - 7 * DAY), against(known, now - 90 * DAY)
    undecided: dict[Device, list[Incident]] = {}
    for incident in once(known):
        for device in candidates(incident):
            undecided.setdefault(device, []).append(incident)
    found = [
        DeviceRow(
            place, _newest(week.get(device)), _newest(quarter.get(device)), _newest(undecided.get(device)),
            seen[device], tuple(seats.get(device, ())),
        )
        for device, place in places.items()
    ]  # fmt: skip
    return sorted(found, key=lambda r: (-len(r.quarter), -len(r.week), -len(r.undecided), r.place.node, r.place.slot))


def _newest(incidents: list[Incident] | None) -> tuple[Incident, ...]:
    return tuple(sorted(incidents or (), key=lambda i: i.opened_at, reverse=True))


def _whereabouts(
    states: Sequence[RunState],
) -> tuple[dict[Device, Place], dict[Device, str], dict[Device, list[Seat]]]:
    """Return device -> its newest place, when it was last seen, and its ranks in active runs."""
    places: dict[Device, Place] = {}
    seen: dict[Device, str] = {}
    seats: dict[Device, list[Seat]] = {}
    for state in states:
        met: set[int] = set()  # the ledger holds equal places once, and the newest attempt comes first
        for attempt in reversed(state.attempts[-NEWEST_ATTEMPTS:]):
            for place in attempt.places:
                if id(place) not in met:
                    met.add(id(place))
                    _see(place, attempt.last_event_at, places, seen)
        for incident in state.incidents:
            for suspect in incident.suspects:
                _see(suspect, _last_time(state.attempts, incident), places, seen)
        if state.active and state.attempt is not None:
            for place in state.attempt.places:
                seats.setdefault(place.device, []).append((state.run, place.rank))
    return places, seen, seats


def _see(place: Place, at: str, places: dict[Device, Place], seen: dict[Device, str]) -> None:
    device = place.device
    if at >= seen.get(device, ""):
        places[device], seen[device] = place, at


def _last_time(attempts: Sequence[Attempt], incident: Incident) -> str:
    return next((a.last_event_at for a in attempts if a.number == incident.attempt), incident.opened_at)


def matching(found: Iterable[DeviceRow], wanted: str) -> list[DeviceRow]:
    """Return the devices of a node, or of the nodes and GPUs whose name contains what is searched for."""
    known, text = list(found), wanted.strip().lower()
    exact = [row for row in known if row.place.node.lower() == text]
    if exact or not text:
        return exact or known
    return [row for row in known if text in row.place.node.lower() or text in row.place.gpu_uuid.lower()]


def headline(found: Sequence[DeviceRow]) -> str:
    """Return the head of the page: the worst node, how many are as bad as it, or that there is none."""
    if not found:
        return "No device is known yet."
    by_node = _by_node(found)
    if not by_node:
        named = [row for row in found if row.undecided]
        return "No device is accused." if not named else "No device is accused; the evidence names candidates."
    node, incidents = max(by_node.items(), key=lambda item: (len(item[1]), max(item[1].values())))
    times = len(incidents)
    alike = sum(len(others) == times for others in by_node.values())
    if alike > 1:  # the line below names them
        often = (
            f"have lied {times} times each in 90 days. Keep them drained" if times > 1 else "lied once each in 90 days"
        )
        return f"{alike} nodes {often}."
    if times > 1:
        return f"{node} has lied {times} times in 90 days. Keep it drained."
    return f"{node} lied once in 90 days."


def consequence(found: Sequence[DeviceRow]) -> str:
    """Return the line under the head."""
    nodes = {row.place.node for row in found}
    counted = f"{step_text(len(found))} device{_s(found)} on {step_text(len(nodes))} node{_s(nodes)}."
    bad = [device_text(row.place) for row in found if row.quarter]
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    return f"Accused: {'; '.join(bad[:MOST_NAMED])}{more}. {counted}" if bad else counted


def _s(many: Sized) -> str:
    return "" if len(many) == 1 else "s"


def _by_node(found: Iterable[DeviceRow]) -> Mapping[str, dict[tuple[str, str], str]]:
    """Return node -> the incidents of 90 days that accuse a device of it, with the time of each."""
    nodes: dict[str, dict[tuple[str, str], str]] = {}
    for row in found:
        for incident in row.quarter:
            nodes.setdefault(row.place.node, {})[incident.run, incident.id] = incident.opened_at
    return nodes


def is_repeat_offender(row: DeviceRow) -> bool:
    """Tell whether more than one incident of 90 days accuses the device."""
    return len(row.quarter) > 1
