"""Hold the store: one snapshot for pages and routes, kept when the runs cannot be read."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.app import console_states as states
from tests.conftest import Clock

from lastgood.gone import Gone
from lastgood.state import RunState
from lastgood_console import store as store_module
from lastgood_console.alerts.fleet import FleetAlerts, Heartbeat
from lastgood_console.components.heads import freshness
from lastgood_console.store import Store, current, use


class FakeLedger:
    """A ledger that holds what a test gives it."""

    def __init__(self, *found: RunState, path: Path | None = None) -> None:
        self.found, self.path, self.refreshed = found, path, 0
        self.last_read_at: float | None = None
        self.broken = False
        self.gone = Gone()

    def refresh(self) -> None:
        self.refreshed += 1
        if self.broken:
            raise OSError("stale file handle")
        self.last_read_at = 1000.0 + self.refreshed

    def runs(self) -> dict[str, RunState]:
        return {state.run: state for state in self.found}

    def progress(self, name: str) -> Any:
        return {"step": 99} if name == "quiet" else None

    def path_of(self, name: str) -> Path | None:
        return self.path


def test_a_snapshot_holds_states_progress_and_when_they_were_read(clock: Clock) -> None:
    store = Store(FakeLedger(states.clean()), clock=clock)
    assert store.snapshot().states == {}
    store.refresh()
    snapshot = store.snapshot()
    assert (list(snapshot.states), snapshot.progress, snapshot.read_at) == (["quiet"], {"quiet": {"step": 99}}, 1001.0)


def test_a_snapshot_does_not_change_under_its_reader(clock: Clock) -> None:
    ledger = FakeLedger(states.clean())
    store = Store(ledger, clock=clock)
    store.refresh()
    before = store.snapshot()
    ledger.found = ()
    store.refresh()
    assert (list(before.states), list(store.snapshot().states)) == (["quiet"], [])


def test_a_snapshot_has_another_number_with_news_alone(clock: Clock, tmp_path: Path) -> None:
    first, fleet = states.clean(), FleetAlerts(tmp_path)
    ledger = FakeLedger(first)
    store = Store(ledger, fleet=fleet, clock=clock)
    store.refresh()
    numbers = [store.snapshot().number]

    def look() -> None:
        store.refresh()
        numbers.append(store.snapshot().number)

    clock.advance(30)
    look()
    assert numbers[-1] == numbers[-2], "only ages are different"
    ledger.found = (replace(first, last_event_at="2026-11-29T03:00:00Z"),)
    look()
    assert numbers[-1] > numbers[-2], "a state is another one"
    ledger.found = (*ledger.found, states.gradient())
    look()
    assert numbers[-1] > numbers[-2], "a run more"
    fleet.beat(Heartbeat("alertmanager", "ours", 5.0, True))
    look()
    assert numbers[-1] > numbers[-2], "the path of alerts is alive"


def test_a_failing_refresh_keeps_the_last_content_and_is_said_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = FakeLedger(states.clean())
    store = Store(ledger, clock=clock)
    store.refresh()
    ledger.broken = True
    with caplog.at_level(logging.ERROR, logger="lastgood.console"):
        store._refresh_and_complain()
        store._refresh_and_complain()
    assert list(store.snapshot().states) == ["quiet"]
    assert [record.getMessage() for record in caplog.records].count(caplog.records[0].getMessage()) == 1


def test_the_thread_refreshes_until_it_is_stopped(clock: Clock) -> None:
    ledger = FakeLedger(states.clean())
    store = Store(ledger, clock=clock)
    store.start(every_seconds=0.01)
    while ledger.refreshed < 3:
        pass
    store.stop()
    seen = ledger.refreshed
    assert seen >= 3
    assert store._thread is not None
    assert not store._thread.is_alive()


def test_silence_is_counted_from_the_newest_write_of_an_active_attempt(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "journal" / "000001"
    folder.mkdir(parents=True)
    for name, age in (("rank-0.jsonl", 900), ("rank-0.progress.jsonl", 40)):
        (folder / name).touch()
        os.utime(folder / name, (clock() - age, clock() - age))
    store = Store(FakeLedger(states.clean(ended=False), path=tmp_path), clock=clock)
    store.refresh()
    assert store.snapshot().silent_seconds == {"quiet": 40.0}


def test_a_run_that_has_ended_is_not_silent(tmp_path: Path, clock: Clock) -> None:
    store = Store(FakeLedger(states.clean(), path=tmp_path), clock=clock)
    store.refresh()
    assert store.snapshot().silent_seconds == {}


def test_without_a_store_the_message_says_how_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_current", None)
    with pytest.raises(RuntimeError, match="lastgood console"):
        current()
    kept = use(Store(FakeLedger()))
    assert current() is kept


def test_stale_data_says_so_with_the_time_of_the_last_read() -> None:
    assert freshness(1000.0, 1004.0, 60.0) == "data 4 s old"
    stale = freshness(1000.0, 1360.0, 60.0)
    assert "data 6 min old, last read 00:16:40 UTC" in stale
    assert "lg-stale" in stale
    assert freshness(None, 5.0, 60.0) == "nothing read yet"
