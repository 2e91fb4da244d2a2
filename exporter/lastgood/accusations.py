"""Know which devices have been accused, over all runs: a bad device comes back under other ranks and in other runs.

Only an attributed incident accuses; a candidate is not accused. An incident counts once however many directories hold
it: whoever copies a run has not found another lie. Pure: no files, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lastgood.events import timestamp_of
from lastgood.state import Device, Incident, RunState


def accused(incident: Incident) -> frozenset[Device]:
    """Return the devices that an incident accuses."""
    if incident.status != "attributed":
        return frozenset()
    return frozenset(suspect.device for suspect in incident.suspects if suspect.role == "accused")


def candidates(incident: Incident) -> frozenset[Device]:
    """Return the devices of which an open question remains whether they are to blame."""
    if incident.status == "cleared":
        return frozenset()
    return frozenset(suspect.device for suspect in incident.suspects) - accused(incident)


def once(states: Iterable[RunState]) -> Iterator[Incident]:
    """Yield the incidents, in the order of the states, without those that a copy of a run directory repeats.

    A copy has the id (of run, attempt, step and check) and the moment; a rerun of that name has another moment.
    """
    met: set[tuple[str, str]] = set()
    for state in states:
        for incident in state.incidents:
            key = (incident.id, incident.opened_at)
            if key not in met:
                met.add(key)
                yield incident


def against(states: Iterable[RunState], since: float) -> dict[Device, list[Incident]]:
    """Return device -> the incidents since a time (unix seconds) that accuse it, in the order of the states."""
    found: dict[Device, list[Incident]] = {}
    for incident in once(states):
        if timestamp_of(incident.opened_at) >= since:
            for device in accused(incident):
                found.setdefault(device, []).append(incident)
    return found
