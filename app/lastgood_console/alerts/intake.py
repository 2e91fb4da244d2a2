"""Take in what an alerting system posts: ``POST /api/alerts``.

An alert of a run is kept beside the events that were posted about it, where the ledger reads it within a second, also
after a restart; one that names no run that is known here is kept for the fleet until that run is. Either is on the disk
before the 200, so an alerting system that got its 200 may forget the alert, and whatever kills the console loses none.

The id of an alert's event is computed from fingerprint, start and status. So the repeats that every alerting system
sends are the same event, as is the copy that a second Alertmanager of a pair sends; the order of arrival means
nothing, and *resolved* is an event of its own. A repeat with another text keeps that text for what stands
(:mod:`lastgood_console.alerts.texts`): the event of the timeline is the first one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

from lastgood.admission import Refusal, authorise, expect_type, lower_names, read_json
from lastgood.alert_story import alerts_in
from lastgood.events import AlertData, Event, utc
from lastgood.posted import PostedEvents
from lastgood.state import RunState
from lastgood_console.alerts.fleet import FLEET, WATCHDOG, FleetAlerts, Heartbeat
from lastgood_console.alerts.payload import Notice, Payload, read_payload
from lastgood_console.alerts.signature import check_signature, is_signed

MAX_BODY_BYTES: Final = 16 << 20


class Runs(Protocol):
    """What the intake asks of a ledger."""

    def run(self, name: str) -> RunState | None:
        """Return the state of one run."""


class AlertIntake:
    """Accept webhooks. ``posted`` keeps the events of runs, ``fleet`` the rest; ``clock`` returns unix seconds."""

    def __init__(
        self,
        posted: PostedEvents,
        fleet: FleetAlerts,
        runs: Runs,
        *,
        token: str | None = None,
        secret: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.fleet = fleet
        self._posted, self._runs = posted, runs
        self._token, self._secret = token, secret
        self._clock = clock

    def accept(self, body: bytes, headers: Mapping[str, str], client_host: str) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON answer for one request.

        200 when alerts were taken (``accepted``, ``duplicates``, ``heartbeats``, and ``rejected``: index and reason);
        400 when none could be; 401, 413 and 415 with the reason; 503, which senders try again, when they cannot be
        kept.
        """
        now = self._clock()
        try:
            known = lower_names(headers)
            self._admit(body, known, client_host, now)
            expect_type(known, ("application/json",))
            return self._take(read_payload(read_json(body, MAX_BODY_BYTES)), now)
        except Refusal as refusal:
            return refusal.status, {"error": str(refusal)}
        except OSError as problem:
            return 503, {"error": f"alerts cannot be kept ({problem.strerror}): see --state"}

    def _admit(self, body: bytes, headers: Mapping[str, str], client_host: str, now: float) -> None:
        by_token = self._secret is None and "authorization" in headers
        if is_signed(headers) and not by_token:
            check_signature(body, headers, self._secret, now)
        elif self._secret and not self._token:
            raise Refusal(401, "not signed: sign with this console's LASTGOOD_WEBHOOK_SECRET, or give it a token too")
        else:
            authorise(headers, client_host, self._token)

    def _take(self, payload: Payload, now: float) -> tuple[int, dict[str, Any]]:
        if payload.rejected and not payload.notices:
            return 400, {"error": payload.rejected[0]["reason"], "rejected": list(payload.rejected)}
        beats = [n for n in payload.notices if n.data["name"] == WATCHDOG]
        alerts = [n for n in payload.notices if n.data["name"] != WATCHDOG]
        new = self._keep(alerts, now)
        if beats:
            last = beats[-1].data
            self.fleet.beat(Heartbeat(last["source"], payload.sender, now, last["status"] == "firing"))
        answer = {"accepted": new, "duplicates": len(alerts) - new, "heartbeats": len(beats)}
        return 200, answer | {"rejected": list(payload.rejected)}

    def _keep(self, notices: Sequence[Notice], now: float) -> int:
        """Keep each alert once, synced, and return how many of them are new.

        An alert's run is the name that the ledger knows a run by. One that it knows none by is kept for the fleet, and
        stays there when the run turns up: the ledger hands it over.
        """
        states = {n.run: self._runs.run(n.run) for n in notices if n.run is not None}
        events = [event_of(n, states.get(n.run or ""), now) for n in notices]
        known = [event for event in events if states.get(event.run) is not None and not self.fleet.holds(event)]
        strays = [event for event in events if states.get(event.run) is None]
        new = [*self._posted.keep(known), *(self.fleet.keep(strays) if strays else ())]
        self._keep_texts(events, new, states.values())
        return len(new)

    def _keep_texts(self, events: Sequence[Event], new: Sequence[Event], states: Iterable[RunState | None]) -> None:
        """Keep what the repeats say, where it is no longer what their alerts said first."""
        ids = {event.id for event in new}
        repeats = [event for event in events if event.id not in ids and event.data["status"] == "firing"]
        if repeats:
            of_runs = (event for state in states if state for event in alerts_in(state.annotations))
            known = {event.id: str(event.data.get("summary", "")) for event in (*self.fleet.alerts, *of_runs)}
            self.fleet.texts.keep(repeats, known)


def event_of(notice: Notice, state: RunState | None, now: float) -> Event:
    """Return an alert as an event that became known at ``now`` (unix seconds)."""
    data, run = notice.data, notice.run or FLEET
    return Event(
        id=alert_id(data),
        source=f"/lastgood/{quote(run, safe='')}/alerts",
        type="alert",
        time=utc(now),
        run=run,
        attempt=attempt_at(state, data["starts_at"]),
        data=data,
        rank=data.get("rank"),
        node=data.get("node"),
    )


def alert_id(data: AlertData) -> str:
    """Return the id of an alert's event: equal for every repeat of the same fact."""
    parts = (data["fingerprint"], data["starts_at"], data["status"], str(data.get("truncated", "")))
    return f"alert-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:20]}"


def attempt_at(state: RunState | None, at: str) -> int:
    """Return the number of the newest attempt that had started at a time; 0 when none is known."""
    return max((a.number for a in state.attempts if a.started_at <= at), default=0) if state else 0
