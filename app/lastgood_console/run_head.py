"""Write what stands at the right of a run's page: how the incident stands, when the run was last heard of, the age."""

from __future__ import annotations

from lastgood.state import Incident
from lastgood_console.components.heads import rfc3339
from lastgood_console.components.panels import standing_html
from lastgood_console.hearing import as_told, heard_html
from lastgood_console.shell import fresh_html
from lastgood_console.store import Snapshot


def age_of(run: str, newest: Snapshot, now: float) -> str:
    """Return how old the data of one run is, after when it was last heard of if it is silent. ``now``: unix seconds."""
    state = newest.states.get(run)
    fresh = fresh_html(as_told(newest, state), now)
    heard = heard_html(state, newest, now) if state else ""
    return f"{heard} · {fresh}" if heard else fresh


def standing_of(incident: Incident, newest: Snapshot, now: float) -> str:
    """Return how an incident stands, and how old what is known of its run is. ``now``: unix seconds."""
    return standing_html(incident, rfc3339(now), age_of(incident.run, newest, now))
