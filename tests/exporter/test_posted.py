"""Kept events on disk: what is accepted stays, what is refused leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.exporter.test_ingest import JSON, LOCAL, Sink, body, event, kept

from lastgood.ingest import EventIntake


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
