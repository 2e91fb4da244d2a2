"""Take in events that training processes post, and keep them.

The rank that found a lie has one second to tell somebody before it exits. So an accepted event is on the disk before
the answer is, and whoever got a 200 may die. Framework-free: the console's and ``lastgood serve``'s routes both hand
over body, headers and the client's address.

Who may post: whoever shows the token, and without one only this machine itself. A web page must not be able to post
through a visitor's browser, so without a token the request has to name a loopback host, must not have come through
a proxy, and needs a JSON content type (which a page cannot send to another origin unasked). Not covered: quotas.
"""

from __future__ import annotations

import fcntl
import hmac
import ipaddress
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from lastgood.errors import JournalError
from lastgood.events import Event, event_from_dict, event_from_line, plain
from lastgood.journal_read import FileTail

MAX_BODY_BYTES: Final = 4 << 20
MAX_EVENTS: Final = 10_000
_JSON_TYPES: Final = ("application/json", "application/cloudevents+json", "application/cloudevents-batch+json")
_PROXY_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class Refusal(Exception):
    """Why a request is not taken: HTTP status and a sentence."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class EventSink(Protocol):
    """What takes the accepted events in: a :class:`lastgood.ledger.Ledger`."""

    def ingest(self, events: Iterable[Event]) -> None:
        """Take in events."""


class EventIntake:
    """Accept posted events, keep them in ``<state_dir>/events/<run>.jsonl`` and hand them to the ledger."""

    def __init__(self, state_dir: Path, ledger: EventSink, token: str | None = None) -> None:
        self._directory = Path(state_dir) / "events"
        self._ledger = ledger
        self._token = token
        self._seen: dict[str, set[tuple[str, str]]] = {}  # run -> keys of the facts in its file
        self._lock = Lock()

    def accept(self, body: bytes, headers: Mapping[str, str], client_host: str) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON answer for one request to ``POST /api/events``.

        200 when events were taken (``accepted``, ``duplicates``, and ``rejected``: index and reason of each that is
        not an event of lastgood); 400 when none could be; 401, 413 and 415 with the reason; 503 when they cannot be
        kept. Progress is passed on but not kept: the next one replaces it.
        """
        try:
            self._admit({name.lower(): value for name, value in headers.items()}, client_host)
            events, rejected = _parse(body)
            return self._take(events, rejected)
        except Refusal as refusal:
            return refusal.status, {"error": str(refusal)}

    def _admit(self, headers: Mapping[str, str], client_host: str) -> None:
        given = headers.get("authorization")
        if given is not None:
            scheme, _, token = given.partition(" ")
            if not (self._token and scheme.lower() == "bearer" and same(token.strip(), self._token)):
                raise Refusal(401, "this is not the token: send 'Authorization: Bearer $LASTGOOD_TOKEN' of this server")
        elif not _is_local(headers, client_host):
            raise Refusal(401, "only this machine may post without a token: set LASTGOOD_TOKEN here and there")
        if headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON_TYPES:
            raise Refusal(415, f"Content-Type must be one of {', '.join(_JSON_TYPES)}")

    def _take(self, events: list[Event], rejected: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        if rejected and not events:
            return 400, {"error": rejected[0]["reason"], "rejected": rejected}
        try:
            with self._lock:
                new = [event for run in dict.fromkeys(e.run for e in events) for event in self._keep(run, events)]
        except OSError as problem:
            return 503, {"error": f"events cannot be kept in {self._directory} ({problem.strerror}): see --state"}
        self._ledger.ingest(new)
        return 200, {"accepted": len(new), "duplicates": len(events) - len(new), "rejected": rejected}

    def _keep(self, run: str, events: list[Event]) -> list[Event]:
        """Append the new events of one run to its file, synced; return them, progress included."""
        path = self._directory / f"{run}.jsonl"
        seen = self._seen_of(run, path)
        new: dict[tuple[str, str], Event] = {}
        for event in events:
            if event.run == run and event.key not in seen:
                new.setdefault(event.key, event)
        lines = [event.to_line().encode() + b"\n" for event in new.values() if event.type != "progress"]
        if lines:
            append_synced(path, b"".join(lines))
        seen |= {event.key for event in new.values() if event.type != "progress"}
        return list(new.values())

    def _seen_of(self, run: str, path: Path) -> set[tuple[str, str]]:
        if run not in self._seen:
            self._seen[run] = _keys_in(path)
        return self._seen[run]


def append_synced(path: Path, lines: bytes) -> None:
    """Append whole lines, synced, also while another process does; a line torn by a crash before is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        while lines:
            lines = lines[os.write(fd, lines) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def same(given: str, token: str) -> bool:
    """Compare tokens in a time that does not tell how much of them agrees."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode(errors="replace"))


def is_loopback(host: str) -> bool:
    """Tell whether an address or host name is this machine's own."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_local(headers: Mapping[str, str], client_host: str) -> bool:
    if not is_loopback(client_host) or any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        named = urlsplit(f"//{headers.get('host', 'localhost')}").hostname or ""
    except ValueError:
        return False
    return is_loopback(named)


def _parse(body: bytes) -> tuple[list[Event], list[dict[str, Any]]]:
    """Return the events of a single object or a batch, and index and reason of each that is none."""
    if len(body) > MAX_BODY_BYTES:
        raise Refusal(413, f"{len(body)} bytes are more than the {MAX_BODY_BYTES} one request may have: post fewer")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Refusal(400, f"the body is not JSON: {str(problem)[:200]}") from None
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


def _keys_in(path: Path) -> set[tuple[str, str]]:
    """Return the keys of the events that a file holds (none when there is no file)."""
    keys = set()
    try:
        for _, line in FileTail(path).poll():
            try:
                keys.add(event_from_line(line or b"").key)
            except JournalError:
                continue  # the ledger names it
    except FileNotFoundError:
        pass
    return keys
