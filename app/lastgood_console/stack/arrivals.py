"""Tell which alerts have arrived at the console, and how long after its finding was journaled each one did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lastgood.errors import JournalError
from lastgood.events import Event, event_from_line
from lastgood.journal_read import FileTail
from lastgood.ledger import Ledger
from lastgood.state import RunState
from lastgood.wording import moment

KEPT: Final = "events"
"""Folder of the console's state that holds the alerts of runs."""


class Arrivals:
    """Follow what a console keeps in ``state``. Alerts from before this object was made are no news."""

    def __init__(self, runs: list[Path], state: Path) -> None:
        self._folder = state / KEPT
        self._ledger = Ledger(runs, state_dir=state)
        self._tails: dict[Path, FileTail] = {}
        for _ in self._new_alerts():
            pass

    def poll(self) -> list[str]:
        """Return a line about each alert that has arrived since the last poll."""
        alerts = list(self._new_alerts())
        if alerts:
            self._ledger.refresh()
        return [arrival_text(alert, self._ledger.run(alert.run)) for alert in alerts]

    def _new_alerts(self) -> Iterator[Event]:
        for path in sorted(self._folder.glob("*.jsonl")):
            tail = self._tails.setdefault(path, FileTail(path))
            try:
                lines = [line for _, line in tail.poll() if line]
            except OSError:
                continue  # the console says so
            for line in lines:
                event = _event(line)
                if event is not None and event.type == "alert":
                    yield event


def arrival_text(alert: Event, state: RunState | None) -> str:
    """Return one line about an alert."""
    name, status = alert.data.get("name"), alert.data["status"]
    if status != "firing":
        return f"alert {name} of run {alert.run}: {status}"
    seconds = latency_seconds(alert, state)
    if seconds is None:
        return f"alert {name} arrived ({alert.data.get('severity')}, run {alert.run})"
    return (
        f"alert {name} arrived {seconds:.1f} s after the finding was journaled "
        f"({alert.data.get('severity')}, run {alert.run}, incident {alert.data['incident']})"
    )


def latency_seconds(alert: Event, state: RunState | None) -> float | None:
    """Return the seconds from the finding that an alert is about to its arrival; None for an alert about no finding.

    That finding is the newest of the incident's that was there when the rule fired.
    """
    named, check = alert.data.get("incident"), alert.data.get("check")
    incident = next((i for i in state.incidents if named in (i.id, *i.aliases)), None) if state and named else None
    findings = [f for f in incident.findings if check in (None, f.check)] if incident else []
    before = [f.at for f in findings if f.at <= alert.data["starts_at"]]
    return (moment(alert.time) - moment(max(before))).total_seconds() if before else None


def _event(line: bytes) -> Event | None:
    try:
        return event_from_line(line)
    except JournalError:
        return None  # the ledger names it
