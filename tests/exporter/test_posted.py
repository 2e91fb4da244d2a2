"""Kept events on disk: what is accepted stays, what is refused leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.app.fixtures import states
from tests.exporter.test_ingest import JSON, LOCAL, Sink, body, event, kept

from lastgood.alert_story import alert_text
from lastgood.events import Event, utc
from lastgood.fold import derive
from lastgood.ingest import EventIntake
from lastgood.posted import PostedEvents, read_events
from lastgood.run_record import RunRecord
from lastgood.synced_files import append_synced, rewrite_synced


def test_a_full_disk_leaves_nothing_of_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, left = os.write, [300]

    def fill(fd: int, content: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        done = write(fd, content[: left[0]])
        left[0] -= done
        return done

    intake = EventIntake(tmp_path, Sink())
    assert intake.accept(body(event(1)), JSON, LOCAL)[0] == 200
    with monkeypatch.context() as full:
        full.setattr(os, "write", fill)
        assert intake.accept(body(event(2), event(3)), JSON, LOCAL)[0] == 503
    assert kept(tmp_path) == [event(1)]
    assert intake.accept(body(event(2), event(3)), JSON, LOCAL)[1]["accepted"] == 2
    assert len(kept(tmp_path)) == 3


def alert(n: int) -> Event:
    data = {"name": "X", "status": "firing", "labels": {}, "starts_at": utc(n), "fingerprint": "f", "source": "grafana"}
    return Event(f"alert-{n}", "/lastgood/llama/alerts", "alert", utc(n), "llama", 0, data)


def test_of_the_alerts_of_a_run_the_newest_are_kept_and_the_others_counted(tmp_path: Path) -> None:
    posted = PostedEvents(tmp_path, most_alerts=10)
    posted.keep([event(1)])
    for n in range(45):
        posted.keep([alert(n)])
    found = read_events(tmp_path / "events" / "llama.jsonl")
    told = [one for one in found if one.data.get("status") == "truncated"]
    shown = [one for one in found if one.data.get("status") == "firing"]
    assert sum(one.data["truncated"] for one in told) + len(shown) == 45
    assert len(shown) <= 20
    assert [one.id for one in shown] == [f"alert-{n}" for n in range(45 - len(shown), 45)]
    assert event(1) in found
    assert posted.keep([event(1), *shown]) == []


def test_alerts_that_made_room_are_counted_in_words(tmp_path: Path) -> None:
    posted = PostedEvents(tmp_path, most_alerts=10)
    posted.keep(alert(n) for n in range(21))
    (told, *_) = read_events(tmp_path / "events" / "llama.jsonl")
    assert alert_text(told, states.gradient().incidents[0], None) == "11 older alerts are kept no longer"


def test_a_record_holds_no_more_alerts_than_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastgood.run_record.MOST_ALERTS", 10)
    record = RunRecord("llama", None, derive)
    record.add([event(1)], None)
    for n in range(100):
        record.add([alert(n)], None)
    state = record.fold(0.0, 10.0)
    assert state is not None
    held = [one.id for one in state.annotations if one.type == "alert"]
    assert len(held) <= 20
    assert held[-1] == "alert-99"
    assert event(1) in state.annotations


def test_a_file_that_is_replaced_takes_no_line_with_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append_synced(path, b"1\n2\n")
    waiting = os.open(path, os.O_RDONLY)
    rewrite_synced(path, lambda lines: lines[1:])
    append_synced(path, b"3\n")
    os.close(waiting)
    assert path.read_bytes() == b"2\n3\n"
    assert [found.name for found in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_rewrite_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.jsonl"
    append_synced(path, b"1\n2\n")

    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        rewrite_synced(path, lambda lines: lines[1:])
    assert path.read_bytes() == b"1\n2\n"
    assert [found.name for found in tmp_path.iterdir()] == ["x.jsonl"]
