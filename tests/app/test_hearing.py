"""Hold what is said of a run that is heard no more: silent, in a folder that is gone, or told by an old scrape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.app import console_states as states
from tests.app.metrics_server import told as as_metrics_tell
from tests.app.pages import NOW, markup, open_page, shown
from tests.app.test_store import FakeLedger
from tests.app.test_timeline_chart import drawn

from lastgood.gone import Gone
from lastgood.state import NOT_IN_METRICS, RunState
from lastgood_console.components.heads import rfc3339
from lastgood_console.components.selection import select
from lastgood_console.components.timeline_chart import LANE_HEIGHT
from lastgood_console.components.triage import consequence, row
from lastgood_console.store import current


def going_on() -> RunState:
    """Return a run with an open incident whose attempt has not ended."""
    base = states.undecided()
    newest = replace(base.attempts[-1], ended_at=None, end_reason=None)
    return replace(base, attempts=(*base.attempts[:-1], newest))


def hear(state: RunState, page: str, seconds: float) -> str:
    """Return what a page says of a run that was last heard of so long ago."""
    found = {"incident": state.incidents[0].id} if state.incidents else {}
    app = open_page(state, page=page, run=state.run, **found)
    store = current()
    silent, at = {state.run: seconds}, {state.run: NOW - seconds}
    store._snapshot = replace(store.snapshot(), silent_seconds=silent, heard_at=at)
    app.run()
    return shown(app) + markup(app)


def test_a_silent_run_with_an_open_incident_says_so_beside_its_verdict() -> None:
    state = going_on()
    assert (row(state, None, 20.0).note, row(state, None, 490.0).note) == ("", "silent for 8 min")
    assert consequence([row(state, None, 490.0)]).endswith("; silent for 8 min.")
    said = hear(state, "", 490.0)
    assert "silent for 8 min" in said
    assert 'lg-arrow"' not in said
    assert 'lg-arrow"' in hear(state, "", 20.0)


def test_the_incident_of_a_silent_run_says_when_it_was_last_heard_of() -> None:
    said = hear(going_on(), "incident", 490.0)
    assert "last heard of 02:49:52 UTC (8 min ago)" in said
    assert "last heard of at " in said
    assert 'lg-arrow"' not in said
    assert "last heard of" not in hear(going_on(), "incident", 20.0)


@pytest.mark.parametrize("page", ["", "incident", "checkpoints"])
@pytest.mark.parametrize("state", [states.clean(ended=False), going_on()], ids=["clean", "open"])
def test_a_run_that_died_without_a_word_is_drawn_as_going_on_nowhere(page: str, state: RunState) -> None:
    """A run without an open incident too, and on each page that draws its strip."""
    said = hear(state, page, 1_800.0)
    assert "last heard of at " in said or page == ""
    assert "30 min" in said
    assert 'lg-arrow"' not in said
    assert 'lg-arrow"' in hear(state, page, 20.0)


def test_what_metrics_alone_tell_is_as_old_as_their_last_scrape() -> None:
    state = replace(states.undecided(), origin="metrics", told_at=rfc3339(NOW - 210))
    said = shown(open_page(state, page="incident", run=state.run, incident=state.incidents[0].id))
    assert "data 3 min old, last read 02:54:32 UTC" in said
    assert "data 4 s old" not in said


def test_lanes_of_which_metrics_do_not_tell_say_so() -> None:
    whole = states.undecided()
    told = as_metrics_tell(whole)
    found, all_told = drawn(told), drawn(whole)
    said = {row["y"] for row in found.rows["labels"] if row["label"] == NOT_IN_METRICS}
    middles = {lane: LANE_HEIGHT * (n + 0.5) for n, lane in enumerate(found.lanes)}
    assert {"replica", "saves", "alerts", "restarts"} <= {lane for lane, y in middles.items() if y in said}
    assert not said & {middles[lane] for lane in ("attempts", "steps", "findings")}
    assert NOT_IN_METRICS not in {row["label"] for row in all_told.rows["labels"]}
    assert len({tuple(row) for row in found.rows["labels"]}) == 1


def test_a_folder_that_is_gone_is_said_and_its_runs_are_marked() -> None:
    app = open_page(going_on(), states.clean())
    store = current()
    assert isinstance(store.ledger, FakeLedger)
    before = store.snapshot()
    store.ledger.gone = Gone({Path("/data/<b>runs"): NOW - 60}, frozenset({"quiet", going_on().run}))
    store.publish()
    assert store.snapshot().number > before.number
    said = shown(app.run())
    assert "/data/<b>runs has not been there since 02:57:02 UTC. Nothing there is read any more." in said
    assert "The 2 runs in it are shown as last read, at 02:57:58 UTC" in said
    assert said.count("not read any more: its folder is gone") >= 2
    assert "<b>runs" not in markup(app)


def test_a_run_whose_directory_is_gone_was_there_until() -> None:
    gone = Gone(runs={"lost": NOW})
    said = select({}, "lost", None, gone).problem
    assert said == "No run is called 'lost'. It was there until 02:58:02 UTC: its directory is gone. There are no runs."
    assert "It was there" not in select({}, "never", None, gone).problem


def test_a_folder_whose_runs_are_all_gone_is_not_a_new_one() -> None:
    app = open_page()
    store = current()
    assert isinstance(store.ledger, FakeLedger)
    store.ledger.gone = Gone(runs={"lost": NOW - 3600, "away": NOW - 60})
    store.publish()
    said = shown(app.run())
    assert "No runs in runs any more. 2 runs were there until 02:57:02 UTC: their directories are gone." in said
    assert "lastgood demo" not in said
