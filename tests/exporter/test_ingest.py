"""Posted events: who may post, what is taken, and that a 200 means kept."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lastgood.admission import is_loopback
from lastgood.events import Event, event_from_line, utc
from lastgood.ingest import MAX_BODY_BYTES, EventIntake

JSON = {"Content-Type": "application/json"}


class Sink:
    """Remember what the intake hands on."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def ingest(self, events: Iterable[Event]) -> None:
        self.events += events


def event(n: int, run: str = "llama", type: str = "note") -> Event:
    data = {"text": str(n)} if type == "note" else {"step": n}
    return Event(f"rank-0-{n}", f"/lastgood/{run}/1/rank/0", type, utc(n), run, 1, data)


def body(*events: Event) -> bytes:
    return json.dumps([one.to_dict() for one in events]).encode()


def kept(state_dir: Path, run: str = "llama") -> list[Event]:
    path = state_dir / "events" / f"{run}.jsonl"
    return [event_from_line(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def test_events_are_kept_by_run_and_handed_to_the_ledger(tmp_path: Path) -> None:
    sink = Sink()
    events = [event(1), event(2, "other"), event(3)]
    answer = EventIntake(tmp_path, sink).accept(body(*events), JSON, "127.0.0.1")
    assert answer == (200, {"accepted": 3, "duplicates": 0, "rejected": []})
    assert kept(tmp_path) == [event(1), event(3)]
    assert kept(tmp_path, "other") == [event(2, "other")]
    assert sorted(sink.events, key=lambda one: one.time) == events


def test_a_single_event_is_taken_as_well_as_a_batch(tmp_path: Path) -> None:
    headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
    assert EventIntake(tmp_path, Sink()).accept(event(1).to_line().encode(), headers, "::1")[0] == 200
    assert kept(tmp_path) == [event(1)]


def test_an_event_posted_again_is_a_duplicate_also_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        intake = EventIntake(tmp_path, sink := Sink())
        intake.accept(body(event(1), event(1)), JSON, "127.0.0.1")
        answer = intake.accept(body(event(1), event(2)), JSON, "127.0.0.1")
    assert answer == (200, {"accepted": 0, "duplicates": 2, "rejected": []})
    assert sink.events == []
    assert kept(tmp_path) == [event(1), event(2)]


def test_progress_is_handed_on_and_not_kept(tmp_path: Path) -> None:
    intake = EventIntake(tmp_path, sink := Sink())
    assert intake.accept(body(event(1, type="progress")), JSON, "127.0.0.1")[1]["accepted"] == 1
    assert len(sink.events) == 1
    assert kept(tmp_path) == []


REMOTE, LOCAL = "10.0.0.7", "127.0.0.1"


@pytest.mark.parametrize(
    ("token", "client", "headers", "status"),
    [
        (None, LOCAL, {}, 200),
        (None, "::ffff:127.0.0.1", {}, 200),
        ("secret", LOCAL, {}, 401),
        ("secret", LOCAL, {"Authorization": "Bearer secret"}, 200),
        (None, REMOTE, {}, 401),
        ("secret", REMOTE, {}, 401),
        ("secret", REMOTE, {"Authorization": "Bearer secret"}, 200),
        ("secret", REMOTE, {"AUTHORIZATION": "bearer secret"}, 200),
        ("secret", REMOTE, {"Authorization": "Bearer secre"}, 401),
        ("secret", REMOTE, {"Authorization": "Bearer sécret"}, 401),
        ("secret", REMOTE, {"Authorization": "secret"}, 401),
        ("secret", LOCAL, {"Authorization": "Bearer wrong"}, 401),
        (None, REMOTE, {"Authorization": "Bearer "}, 401),
        (None, REMOTE, {"Authorization": "Bearer None"}, 401),
        (None, LOCAL, {"X-Forwarded-For": "10.0.0.7"}, 401),
        (None, LOCAL, {"Host": "evil.example:8490"}, 401),
        (None, LOCAL, {"Host": "localhost:8490"}, 200),
        (None, LOCAL, {"Host": "[::1]:8490"}, 200),
        (None, "testclient", {}, 401),
        (None, LOCAL, {"Content-Type": "text/plain"}, 415),
        (None, LOCAL, {"Content-Type": ""}, 415),
        (None, LOCAL, {"Content-Encoding": "gzip"}, 415),
    ],
)
def test_whoever_shows_the_token_may_post_and_without_one_only_this_machine(
    tmp_path: Path, token: str | None, client: str, headers: dict[str, str], status: int
) -> None:
    answer = EventIntake(tmp_path, Sink(), token).accept(body(event(1)), JSON | headers, client)
    assert answer[0] == status
    assert len(kept(tmp_path)) == (status == 200)
    if status != 200:
        assert answer[1]["error"]


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (b"", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 200_000, 400, "not JSON"),
        (b"3", 400, "not an event of lastgood"),
        (b'[{"type": "lastgood.note"}]', 400, "dataschema"),
        (body(event(1)).replace(b'"llama"', b'"../../x"'), 400, "event.run"),
        (b"[" + b"0," * 20_000 + b"0]", 413, "20001 events"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "post fewer"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_reason(
    tmp_path: Path, content: bytes, status: int, reason: str
) -> None:
    got, answer = EventIntake(tmp_path, Sink()).accept(content, JSON, LOCAL)
    assert (got, reason in answer["error"]) == (status, True)
    assert not (tmp_path / "events").exists()


def test_one_bad_event_does_not_cost_the_good_ones(tmp_path: Path) -> None:
    content = json.dumps([{"type": "x"}, event(1).to_dict()]).encode()
    status, answer = EventIntake(tmp_path, Sink()).accept(content, JSON, LOCAL)
    assert (status, answer["accepted"]) == (200, 1)
    assert answer["rejected"] == [{"index": 0, "reason": "not an event of lastgood"}]


def test_events_that_cannot_be_kept_are_not_accepted_and_can_be_sent_again(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("a file where the directory should be")
    intake = EventIntake(tmp_path, sink := Sink())
    status, answer = intake.accept(body(event(1)), JSON, LOCAL)
    assert (status, sink.events) == (503, [])
    assert "--state" in answer["error"]
    (tmp_path / "events").unlink()
    assert intake.accept(body(event(1)), JSON, LOCAL)[1]["accepted"] == 1


def test_events_that_could_not_be_synced_are_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    assert EventIntake(tmp_path, sink := Sink()).accept(body(event(1)), JSON, LOCAL)[0] == 503
    assert sink.events == []


def test_a_line_torn_by_a_crash_does_not_swallow_the_next(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "llama.jsonl").write_text(event(1).to_line()[:40])
    EventIntake(tmp_path, Sink()).accept(body(event(1)), JSON, LOCAL)
    lines = (tmp_path / "events" / "llama.jsonl").read_bytes().splitlines()
    assert event_from_line(lines[1]) == event(1)


def test_a_link_in_the_state_directory_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "state" / "events").mkdir(parents=True)
    (tmp_path / "victim").write_text("")
    (tmp_path / "state" / "events" / "llama.jsonl").symlink_to(tmp_path / "victim")
    status, _ = EventIntake(tmp_path / "state", Sink()).accept(body(event(1)), JSON, LOCAL)
    assert (status, (tmp_path / "victim").read_text()) == (503, "")


@pytest.mark.parametrize(
    ("host", "local"), [("localhost", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False)]
)
def test_loopback_is_told_from_the_rest(host: str, local: bool) -> None:
    assert is_loopback(host) == local


def test_a_server_killed_right_after_its_200_still_knows_the_event(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LASTGOOD_")}
    command = [sys.executable, "-m", "lastgood.serve", str(tmp_path / "runs"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout
        port = int(process.stdout.readline().rpartition("/")[0].rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/api/events", body(event(1)), JSON)
        answer: Any = connection.getresponse()
        process.send_signal(signal.SIGKILL)
        assert answer.status == 200
        connection.close()
    assert kept(tmp_path / "runs" / ".lastgood") == [event(1)]
