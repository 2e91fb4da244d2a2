"""Write what this rank knows: into its journal, to the console, and, on rank 0, into a folded state of the run.

Rank 0 keeps the run's events in memory (read once at start, then extended by what it writes), so that a verdict can
name the checkpoint to resume from without reading the journals again while training is about to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lastgood import wording
from lastgood.background import Background
from lastgood.delivery import Delivery, NoDelivery
from lastgood.events import Event, fact_id, source_of
from lastgood.findings import finding_id, resume_data
from lastgood.fold import derive
from lastgood.journal import JournalWriter
from lastgood.journal_read import JournalTail
from lastgood.notice import warn
from lastgood.state import Incident, Place, RunState

DELIVERED = (
    "finding",
    "verdict",
    "checkpoint.saved",
    "checkpoint.failed",
    "checkpoint.loaded",
    "run.started",
    "run.ended",
    "check",
    "progress",
    "cadence",
    "device.excursion",
)


class Publisher:
    """The pen of one rank. ``on_error(part)`` counts failures; nothing raises."""

    def __init__(
        self,
        run_dir: Path,
        run: str,
        attempt: int,
        place: Place,
        *,
        journaling: bool = True,
        delivery: Delivery | NoDelivery | None = None,
        on_error: Callable[[str], None] = lambda part: None,
    ) -> None:
        self.run_dir, self.run, self.attempt, self.place = run_dir, run, attempt, place
        self.on_error = on_error
        self.delivery = delivery or NoDelivery()
        self.places: dict[int, tuple[Place, ...]] = {}
        self.history: list[Event] = []
        self.files = Background("lastgood-journal")
        self._writer = JournalWriter(
            run_dir,
            run,
            attempt,
            f"rank-{place.rank:05d}",
            rank=place.rank,
            node=place.node,
            on_event=self._on_event,
            on_error=lambda error: on_error("journal"),
            background=self.files,
        )
        self._journaling = journaling

    def remember(self, places: tuple[Place, ...]) -> None:
        """Rank 0: read what earlier attempts wrote, once."""
        try:
            self.history, _ = JournalTail(self.run_dir).poll()
        except Exception as error:  # an unreadable past must not keep a run from starting
            self.on_error("journal")
            warn(f"could not read the run's earlier journal: {error}")
        self.places[self.attempt] = places

    def write(self, type: str, data: Mapping[str, Any], step: int) -> None:
        """Journal an event of this rank."""
        if self._journaling:
            self._writer.write(type, data, step=step)

    def progress(self, data: Mapping[str, Any], step: int) -> None:
        """Journal the progress of the run (rank 0, every 30 s)."""
        if self._journaling:
            self._writer.progress(data, step)

    def write_facts(self, findings: Sequence[Mapping[str, Any]], verdict: Mapping[str, Any] | None) -> None:
        """Journal findings and their verdict as collective facts: every rank gives them the same ids and data."""
        if not self._journaling:
            return
        source = source_of(self.run, self.attempt)
        for data in findings:
            self._writer.write("finding", data, step=data["step"], event_id=finding_id(data), source=source)
        if verdict is not None:
            first = findings[0]
            key = fact_id("verdict", first["check"], first["step"], first["phase"])
            self._writer.write("verdict", verdict, step=first["step"], event_id=key, source=source)

    def foresee(
        self, findings: Sequence[Mapping[str, Any]], verdict: Mapping[str, Any]
    ) -> tuple[dict[str, Any] | None, str]:
        """Rank 0: return the checkpoint to resume from and a sentence, as they will be once these facts are written."""
        try:
            state = self._state_with(findings, verdict)
            incident = _incident_of(state, findings)
            headline = wording.headline(incident) if incident else ""
            return resume_data(state.last_good), headline
        except Exception as error:  # the verdict stands without it
            self.on_error("check")
            warn(f"could not name the last good checkpoint: {error!r}")
            return None, ""

    def close(self, timeout: float = 1.0) -> None:
        """Close the files, which are the record, and send what is queued, in ``timeout`` seconds together at most."""
        deadline = time.monotonic() + timeout
        self._writer.close(timeout)
        self.delivery.close(max(0.0, deadline - time.monotonic()))

    def _on_event(self, event: Event) -> None:
        if self.place.rank == 0 and event.type != "progress":
            self.history.append(event)
        if event.type in DELIVERED:
            self.delivery.post(event)

    def _state_with(self, findings: Sequence[Mapping[str, Any]], verdict: Mapping[str, Any]) -> RunState:
        source, now = source_of(self.run, self.attempt), self.history[-1].time
        extra = [
            Event(finding_id(f), source, "finding", now, self.run, self.attempt, f, step=f["step"]) for f in findings
        ]
        first = findings[0]
        key = fact_id("verdict", first["check"], first["step"], first["phase"])
        extra.append(Event(key, source, "verdict", now, self.run, self.attempt, verdict, step=first["step"]))
        return derive(self.run, [*self.history, *extra], topologies=self.places)


def _incident_of(state: RunState, findings: Sequence[Mapping[str, Any]]) -> Incident | None:
    ids = {finding_id(f) for f in findings}
    return next((i for i in state.incidents if ids & {f.id for f in i.findings}), None)
