"""Know which devices have been accused, over all runs: a bad device comes back under other ranks and in other runs.

Only an attributed incident accuses; a candidate is not accused. Pure: no files, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def against(states: Iterable[RunState], since: float) -> dict[Device, list[Incident]]:
    """Return device -> the incidents since a time (unix seconds) that accuse it, in the order of the states."""
    found: dict[Device, list[Incident]] = {}
    for state in states:
        for incident in state.incidents:
            if timestamp_of(incident.opened_at) >= since:
                for device in accused(incident):
                    found.setdefault(device, []).append(incident)
    return found
