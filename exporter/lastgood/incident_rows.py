"""Say what an incident is as rows of the run metrics. Pure.

Alerts read the rows of an open incident, one per suspect. A console that has lost the run directory reads the facts:
they are there for every recent incident, however it went on, and are bounded for a run with hundreds of them. What
only a journal can hold (evidence, reasons, paths, names of people) is in no series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, get_args

from lastgood.catalogue import UNKNOWN
from lastgood.events import timestamp_of
from lastgood.state import Incident, IncidentState

MAX_SUSPECTS: Final = 8
"""Alerts of one incident: thousands of candidates are one incident, not thousands of alerts."""
NEWEST_INCIDENTS: Final = 8
"""So many incidents have facts whatever became of them; the older ones only while they are open."""
MOST_INCIDENTS: Final = 16

IncidentRow = tuple[str, tuple[object, ...], float | None]
"""Name without the prefix, values of the labels after ``run``, value (None: no series)."""


def incident_rows(incidents: Iterable[Incident]) -> Iterator[IncidentRow]:
    """Yield the rows of a run's incidents, given newest first."""
    incidents = tuple(incidents)
    counts = Counter(incident.state for incident in incidents)
    for state in get_args(IncidentState):
        yield "incidents", (state,), float(counts[state])
    for incident in incidents:
        if _is_open(incident):
            yield from _open_rows(incident)
    for incident in with_facts(incidents):
        for name, labels, value in _fact_rows(incident):
            yield name, (incident.id, *labels), value


def with_facts(incidents: Sequence[Incident]) -> tuple[Incident, ...]:
    """Return the incidents that have facts in series: the newest, and older ones that are open."""
    older = [incident for incident in incidents[NEWEST_INCIDENTS:] if _is_open(incident)]
    return (*incidents[:NEWEST_INCIDENTS], *older)[:MOST_INCIDENTS]


def _is_open(incident: Incident) -> bool:
    return incident.state in ("open", "reopened")


def _open_rows(incident: Incident) -> Iterator[IncidentRow]:
    resume = float(incident.resume.step) if incident.resume else -1.0
    what = (incident.id, incident.check, incident.status, incident.scope)
    for who in _suspects(incident):
        yield "incident_resume_step", (*what, *who), resume
    if incident.window is not None:
        yield "incident_window_start_step", (incident.id,), float(incident.window.start)
        yield "incident_window_end_step", (incident.id,), float(incident.window.end)
    yield "incident_start_timestamp_seconds", (incident.id,), _unix_seconds(incident.opened_at)


def _suspects(incident: Incident) -> list[tuple[object, ...]]:
    """Return (rank, node, gpu_uuid) of the first suspects; one unknown when the incident names nobody."""
    named: list[tuple[object, ...]] = [(who.rank, who.node, who.gpu_uuid) for who in incident.suspects]
    most = MAX_SUSPECTS - (incident.scope == "node")  # the alert about the node is one more
    return list(dict.fromkeys(named))[:most] or [(UNKNOWN, UNKNOWN, UNKNOWN)]


def _fact_rows(incident: Incident) -> Iterator[IncidentRow]:
    """Yield what an incident is, whether it is open or not, without its id."""
    what = (incident.check, incident.status, incident.scope, incident.nature, incident.confidence, incident.state)
    yield "incident_info", what, 1.0
    for who in incident.suspects[:MAX_SUSPECTS]:
        yield "incident_suspect_info", (who.role, who.rank, who.node, who.gpu_uuid, who.slot), 1.0
    yield "incident_suspects", (), float(len(incident.suspects))
    for check, count in sorted(Counter(finding.check for finding in incident.findings).items()):
        yield "incident_findings", (check,), float(count)
    yield "incident_finding_attempt", (), float(incident.attempt)
    yield "incident_finding_step", (), float(incident.step)
    yield "incident_other_nodes", (), float(incident.other_nodes)
    yield from _onset_rows(incident)
    yield from _outcome_rows(incident)


def _onset_rows(incident: Incident) -> Iterator[IncidentRow]:
    window = incident.window
    if window is not None:
        yield "incident_onset_attempt", ("start",), float(window.start_attempt)
        yield "incident_onset_attempt", ("end",), float(window.end_attempt)
        yield "incident_onset_step", ("start",), float(window.start)
        yield "incident_onset_step", ("end",), float(window.end)
        yield "incident_contained", (), float(window.contained)


def _outcome_rows(incident: Incident) -> Iterator[IncidentRow]:
    moments = {"opened": incident.opened_at, "recovered": incident.recovered_at, "closed": incident.closed_at}
    for moment, at in moments.items():
        yield "incident_timestamp_seconds", (moment,), _unix_seconds(at)
    if incident.recovered_by is not None:
        yield "incident_recovery_attempt", (), float(incident.recovered_by)
    if incident.resume is not None:
        yield "incident_last_good_attempt", (incident.resume.trust,), float(incident.resume.attempt)
        yield "incident_last_good_step", (incident.resume.trust,), float(incident.resume.step)
    yield "incident_lost_steps", (), float(incident.cost.steps)
    yield "incident_lost_seconds", (), incident.cost.seconds
    yield "incident_lost_device_seconds", (), incident.cost.device_hours * 3600


def _unix_seconds(time_text: str | None) -> float | None:
    return timestamp_of(time_text) if time_text else None
