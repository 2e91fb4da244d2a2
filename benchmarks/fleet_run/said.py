"""Write what was said about a run while it went on: alerts that the console got, and what people noted and decided.

Both by the console's own writers: webhooks as Alertmanager sends them go through its intake, words through the journal
of people. Which alert names fire for what is the rules'; when, is by their waiting times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final

from lastgood import records
from lastgood.events import Event, timestamp_of
from lastgood.incidents import incident_id
from lastgood.ledger import Ledger
from lastgood.posted import PostedEvents
from lastgood.state import Place
from lastgood_alerts.rules import BY_NAME
from lastgood_console.actions import Deed
from lastgood_console.alerts.fleet import FleetAlerts
from lastgood_console.alerts.intake import AlertIntake
from lastgood_console.people_journal import PeopleJournal

PEOPLE: Final = ("mira", "tomas", "aiko")
ON_CALL_SECONDS: Final = 360.0
REPAIR_SECONDS: Final = 2 * 86400.0
FINDING_RULES: Final = {
    "finite": "NonfiniteGradients", "conservation": "ConservationMismatch", "replica": "ReplicaMismatch",
    "replay": "ReplayMismatch",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; ``end`` is None while it fires. Times are unix seconds."""

    name: str
    start: float
    end: float | None
    labels: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=dict)


def found_alerts(run: str, findings: Sequence[Event], started: Sequence[float]) -> Iterator[Alert]:
    """Yield the alert of every finding that is not cleared: until the next attempt has passed its first checks."""
    for finding, verdict in pairs(findings):
        at, said = timestamp_of(finding.time), verdict.data
        if said["status"] == "cleared":
            continue
        suspect = next(iter(said["suspects"]), None)
        place = {name: str(suspect[name]) for name in ("rank", "node", "gpu_uuid")} if suspect else {}
        who = f"rank {suspect['rank']} ({suspect['node']})" if suspect else "no rank stands out"
        labels = {"run": run, "incident": name_of(run, finding), "check": finding.data["check"],
                  "status": said["status"], "scope": said["scope"], **place}  # fmt: skip
        words = {"who": who, "status": said["status"], "resume": f"Resume from step {said['resume']['step']}."}
        over = min((begin + 240 for begin in started if begin > at), default=None)
        yield Alert(FINDING_RULES[finding.data["check"]], at + 20, over, labels, words)


def vanished_alerts(run: str, silences: Sequence[tuple[float, float, int]]) -> Iterator[Alert]:
    """Yield an alert for each time that a run ended without a word; ``silences``: from, until, step."""
    for begin, until, step in silences:
        if until > begin + 300:
            words = {"value": "5", "step": str(step), "last_good": "Nothing is suspect."}
            yield Alert("RunVanished", begin + 300, until + 60, {"run": run}, words)


def hot_alerts(run: str, hot: Sequence[tuple[Place, float, float]]) -> Iterator[Alert]:
    """Yield an alert for each device that was hot for over five minutes: place, from, until."""
    for place, begin, until in hot:
        if until > begin + 300:
            labels = {"run": run, "node": place.node, "rank": str(place.rank), "gpu_uuid": place.gpu_uuid}
            words = {"node": place.node, "worst": f"rank {place.rank}", "value": "4",
                     "last_good": "Nothing is suspect."}  # fmt: skip
            yield Alert("ThermalMarginLow", begin + 300, until + 60, labels, words)


def post_alerts(run_dir: Path, state_dir: Path, alerts: Sequence[Alert], end: float) -> None:
    """Send every alert, and that it is over, to an intake of alerts whose clock says when that was."""
    ledger, now = Ledger([run_dir]), [0.0]
    ledger.refresh()
    intake = AlertIntake(PostedEvents(state_dir), FleetAlerts(state_dir), ledger, clock=lambda: now[0])
    sent = [(a.start, "firing", a) for a in alerts] + [(a.end, "resolved", a) for a in alerts if a.end is not None]
    for at, status, alert in sorted(sent, key=lambda one: (one[0], one[1], one[2].name)):
        if at < end:
            now[0] = at + 2
            body = json.dumps({"version": "4", "alerts": [_webhook(alert, status)]}).encode()
            answer = intake.accept(body, {"Content-Type": "application/json"}, "127.0.0.1")
            if answer[0] != 200:
                raise RuntimeError(f"the intake refused an alert: {answer}")


def _webhook(alert: Alert, status: str) -> dict[str, Any]:
    rule = BY_NAME[alert.name]
    labels = {"alertname": alert.name, "severity": rule.severity, **alert.labels}
    over = alert.end if status == "resolved" and alert.end is not None else None
    return {
        "status": status, "labels": labels, "startsAt": _iso(alert.start),
        "endsAt": "0001-01-01T00:00:00Z" if over is None else _iso(over),
        "annotations": {"summary": rule.summary.format(**{"run": "", **alert.labels, **alert.words})},
        "fingerprint": sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16],
        "generatorURL": "http://prometheus:9090/graph",
    }  # fmt: skip


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def write_words(run_dir: Path, run: str, findings: Sequence[Event], end: float) -> None:
    """Let people acknowledge incidents, note what they did, name causes and close what was repaired."""
    now, chance = [0.0], Random(run)
    people = PeopleJournal(
        None, host="console-0", clock=lambda: now[0], identify=lambda: f"{chance.getrandbits(32):08x}"
    )
    deeds = [deed for number, pair in enumerate(pairs(findings)) for deed in _deeds(run, number, *pair)]
    for at, deed in sorted(deeds, key=lambda one: one[0]):
        if at < end:
            now[0] = at
            people.write(run, run_dir, deed)
    people.close()


def _deeds(run: str, number: int, finding: Event, verdict: Event) -> Iterator[tuple[float, Deed]]:
    if verdict.data["status"] == "cleared":
        return
    at, who = timestamp_of(verdict.time), PEOPLE[number % len(PEOPLE)]
    about = {"author": who, "incident": name_of(run, finding)}
    nodes = ", ".join(s["node"] for s in verdict.data["suspects"]) or "no node"
    did = "Drained {}." if verdict.data["action"] == "stop" else "Watching {}: diagnose at the next restart."
    cause = f"{verdict.data['nature']} fault of the GPU: fails dcgmi diag -r 4"

    def act(action: str, reason: str = "") -> Deed:
        said = {"action": action, **about} | ({"reason": reason} if reason else {})
        return Deed("action", verdict.attempt, said, "")

    yield at + ON_CALL_SECONDS, act("acknowledge")
    yield at + 4 * ON_CALL_SECONDS, Deed("note", verdict.attempt, {"text": did.format(nodes), **about}, "")
    yield at + REPAIR_SECONDS, act("cause", cause)
    yield at + REPAIR_SECONDS + 600, act("close", "GPU replaced, burn-in passed.")


def pairs(findings: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield the first finding and the verdict of each time that something was found."""
    first: Event | None = None
    for event in findings:
        if event.type == "verdict" and first is not None:
            yield first, event
            first = None
        elif first is None:
            first = event


def name_of(run: str, finding: Event) -> str:
    """Return the id of the incident that a finding is the first of."""
    (read,) = records.findings(records.read(run, [finding]))
    return incident_id(run, read)
