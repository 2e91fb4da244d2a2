"""Put answers together: plain values of what the ledger holds, a page at a time. No HTTP here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lastgood.state import Checkpoint, Incident, LastGood, RunState
from lastgood_console.components.devices import DeviceRow
from lastgood_console.components.heads import rfc3339
from lastgood_console.export.document import as_data
from lastgood_console.export.formats import FORMATS


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted."""

    limit: int
    offset: int

    def of(self, name: str, found: Sequence[Any]) -> dict[str, Any]:
        """Return the part under its name, with the length of the whole."""
        part = list(found[self.offset : self.offset + self.limit])
        return {name: part, "total": len(found), "limit": self.limit, "offset": self.offset}


def run(state: RunState, base: str, heard_at: float | None = None) -> dict[str, Any]:
    """Return a run in a few words. ``base``: the path prefix of this server; ``heard_at``: see :class:`Snapshot`."""
    return {
        "run": state.run,
        "active": state.active,
        "heard_at": None if heard_at is None else rfc3339(heard_at),
        "attempt": state.attempt.number if state.attempt else None,
        "step": state.attempt.last_step if state.attempt else None,
        "last_good": last_good(state.last_good),
        "incidents": [incident(found, base) for found in state.incidents],
    }


def incident(found: Incident, base: str) -> dict[str, Any]:
    """Return an incident in a few words, with the addresses of its exports."""
    place = f"{base}/api/runs/{quote(found.run, safe='')}/incidents/{quote(found.id, safe='')}"
    return {
        "id": found.id,
        "run": found.run,
        "state": found.state,
        "status": found.status,
        "scope": found.scope,
        "opened_at": found.opened_at,
        "resume_step": found.resume.step if found.resume and found.resume.exists else None,
        "exports": {form: f"{place}.{form}" for form in FORMATS},
    }


def last_good(found: LastGood) -> Mapping[str, Any] | None:
    """Return the checkpoint to resume from; None when there is none."""
    return as_data(found) if found.exists else None


def checkpoint(found: Checkpoint, state: RunState) -> dict[str, Any]:
    """Return a checkpoint as the incident document has it."""
    good = state.last_good
    is_last = (found.attempt, found.step, found.path) == (good.attempt, good.step, good.path)
    return {**as_data(found), "last_good": is_last and good.exists}


def device(row: DeviceRow) -> dict[str, Any]:
    """Return what is known about a device."""
    return {
        "node": row.place.node,
        "gpu_uuid": row.place.gpu_uuid,
        "slot": row.place.slot,
        "last_seen": row.last_seen,
        "accused_7_days": len(row.week),
        "accused_90_days": len(row.quarter),
        "candidate": len(row.undecided),
        "runs_as": [{"run": name, "rank": rank} for name, rank in row.seats],
        "incidents": [{"run": found.run, "id": found.id} for found in row.incidents],
    }


def find(incidents: Iterable[Incident], name: str) -> Incident | None:
    """Return the incident of that id or earlier id."""
    return next((i for i in incidents if name == i.id or name in i.aliases), None)
