"""Deep JSON and long numbers in requests: refused with a reason, never an exception."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.exporter.test_ingest import JSON, LOCAL, Sink, body, event
from tests.exporter.test_serve import Client, client, ledger, runs

from lastgood.admission import MOST_NESTED
from lastgood.events import plain
from lastgood.ingest import EventIntake

__all__ = ["client", "ledger", "runs"]  # fixtures


def nested(levels: int) -> bytes:
    return body(event(1)).replace(b'"text": "1"', b'"text": "1", "more": ' + b"[" * levels + b"]" * levels)


@pytest.mark.parametrize("levels", [MOST_NESTED, 960, 970, 985, 2_000, 100_000])
def test_a_body_that_is_nested_too_deeply_is_refused(tmp_path: Path, levels: int) -> None:
    status, answer = EventIntake(tmp_path, Sink()).accept(nested(levels), JSON, LOCAL)
    assert (status, list(answer)) == (400, ["error"])


def test_a_body_may_be_nested_as_a_journal_is(tmp_path: Path) -> None:
    assert EventIntake(tmp_path, Sink()).accept(nested(MOST_NESTED - 10), JSON, LOCAL)[0] == 200


def test_whatever_is_journaled_has_an_end() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert "a list that is nested too deeply" in json.dumps(plain(deep))


@pytest.mark.parametrize(("size", "status"), [("9" * 5_000, b" 413 "), ("٣", b" 411 "), ("0" * 30, b" 413 ")])
def test_a_length_that_is_no_number_of_bytes_is_refused(client: Client, size: str, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=5) as raw:
        raw.sendall(f"POST /api/events HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        assert status in raw.recv(1000)
