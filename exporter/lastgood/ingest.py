"""Take in events that training processes post, and keep them.

The rank that found a lie has one second to tell somebody before it exits. So an accepted event is on the disk before
the answer is, and whoever got a 200 may die. Framework-free: the console's and ``lastgood serve``'s routes both hand
over body, headers and the client's address. Who may post is :mod:`lastgood.admission`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from lastgood.admission import Refusal, authorise, expect_type, lower_names, read_json
from lastgood.errors import JournalError
from lastgood.events import Event, event_from_dict, plain
from lastgood.posted import PostedEvents

MAX_BODY_BYTES: Final = 4 << 20
MAX_EVENTS: Final = 10_000
_JSON_TYPES: Final = ("application/json", "application/cloudevents+json", "application/cloudevents-batch+json")


class EventSink(Protocol):
    """What takes the accepted events in: a :class:`lastgood.ledger.Ledger`."""

    def ingest(self, events: Iterable[Event]) -> None:
        """Take in events."""


class EventIntake:
    """Accept posted events, keep them (``posted``) and hand them to the ledger."""

    def __init__(self, state_dir: Path, ledger: EventSink, token: str | None = None) -> None:
        self.posted = PostedEvents(state_dir)
        self._ledger = ledger
        self._token = token

    def accept(self, body: bytes, headers: Mapping[str, str], client_host: str) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON answer for one request to ``POST /api/events``.

        200 when events were taken (``accepted``, ``duplicates``, and ``rejected``: index and reason of each that is
        not an event of lastgood); 400 when none could be; 401, 413 and 415 with the reason; 503 when they cannot be
        kept. Progress is passed on but not kept: the next one replaces it.
        """
        try:
            known = lower_names(headers)
            authorise(known, client_host, self._token)
            expect_type(known, _JSON_TYPES)
            return self._take(*_parse(body))
        except Refusal as refusal:
            return refusal.status, {"error": str(refusal)}

    def _take(self, events: list[Event], rejected: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        if rejected and not events:
            return 400, {"error": rejected[0]["reason"], "rejected": rejected}
        try:
            new = self.posted.keep(events)
        except OSError as problem:
            where = self.posted.directory
            return 503, {"error": f"events cannot be kept in {where} ({problem.strerror}): see --state"}
        self._ledger.ingest(new)
        return 200, {"accepted": len(new), "duplicates": len(events) - len(new), "rejected": rejected}


def _parse(body: bytes) -> tuple[list[Event], list[dict[str, Any]]]:
    """Return the events of a single object or a batch, and index and reason of each that is none."""
    content = read_json(body, MAX_BODY_BYTES)
    items = content if isinstance(content, list) else [content]
    if len(items) > MAX_EVENTS:
        raise Refusal(413, f"{len(items)} events are more than the {MAX_EVENTS} one request may have: post fewer")
    return _sort_out(items)


def _sort_out(items: list[Any]) -> tuple[list[Event], list[dict[str, Any]]]:
    events, rejected = [], []
    for index, item in enumerate(items):
        try:
            events.append(event_from_dict(plain(item)))
        except JournalError as problem:
            rejected.append({"index": index, "reason": str(problem)})
    return events, rejected
