"""Hold the overview: how many runs need a decision, which first, and what is said about each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.app import console_states as states
from tests.app.pages import markup, open_page, shown

from lastgood.state import Unreadable
from lastgood_console.components.triage import consequence, headline, row, rows


def test_the_headline_counts_the_runs_that_need_a_decision() -> None:
    assert headline(rows([states.gradient(False), states.clean()])) == "One run needs a decision."
    assert headline(rows([states.gradient(False), states.undecided()])) == "2 runs need a decision."
    assert headline(rows([states.clean(), states.cleared(), states.gradient()])) == "3 runs, no open incident."
    assert headline(rows([states.clean()])) == "1 run, no open incident."


def test_newest_trouble_stands_first_and_ended_runs_last() -> None:
    found = rows([states.clean(), states.gradient(), states.late(), states.undecided()])
    assert [r.state.run for r in found] == ["two-nodes", "vit-h-ablation", "demo", "quiet"]


def test_the_consequence_says_what_to_do_about_the_runs_in_trouble() -> None:
    said = consequence(rows([states.gradient(False), states.undecided(), states.late(), states.clean(ended=False)]))
    assert "demo: resume from step 50; rank 3 on node-b is accused." in said
    assert "two-nodes: resume from step 50; rank 1 on node-a or rank 3 on node-b may be wrong." in said
    assert "vit-h-ablation: replay is 514 steps late." in said
    assert said.endswith("1 is healthy.")


def test_a_run_that_stopped_writing_is_not_healthy() -> None:
    silent = row(states.clean(ended=False), None, 400.0)
    assert (silent.symbol, silent.words) == ("warning", "silent for 6 min: it may have ended without a word")
    assert row(states.clean(ended=False), None, 90.0).words == "silent for 90 s"
    assert row(states.clean(ended=False), None, 55.0).words == "healthy"


def test_a_run_of_slow_steps_or_before_its_first_is_not_silent() -> None:
    assert row(states.clean(ended=False), {"step_seconds": 40.0}, 100.0).words == "healthy"
    assert row(states.clean(ended=False), {"step_seconds": 40.0}, 130.0).words == "silent for 2 min"
    assert row(states.empty(), None, 200.0).words == "healthy"
    assert row(states.empty(), None, 320.0).symbol == "warning"


@pytest.mark.parametrize("reason", ["exception", "signal"])
def test_a_run_that_ended_in_an_error_is_a_warning(reason: str) -> None:
    base = states.clean()
    broken = replace(base, attempts=(replace(base.attempts[0], end_reason=reason),))
    assert row(broken).words == f"stopped at step 150: {reason}"


def test_a_recovered_run_needs_no_decision() -> None:
    found = row(states.gradient())
    assert (found.symbol, found.words) == ("ended", "completed, recovered by attempt 2")


def test_the_page_shows_every_run_with_last_good_meters_and_strip() -> None:
    said = shown(open_page(states.gradient(recovered=False), states.late()))
    assert said.startswith("One run needs a decision.")
    assert "demo attributed to a device without a GPU attempt 2 · step 96 · 6 ranks" in said
    assert "Last good step 50 trusted 25 min old" in said
    assert "replay 1114 late" in said
    assert "at_rest off" in said
    assert "data 4 s old · 02:58:02 UTC" in said


def test_recent_incidents_are_listed_newest_first_with_their_standing() -> None:
    said = shown(open_page(states.gradient(), states.cleared()))
    first, second = said.index("r-3f2a91c0"), said.index("r-77b0aa12")
    assert first < second
    assert "attributed node-b, slot 1 (no GPU) (50, 100] 50 02:33:43 recovered by attempt 2 0.15 device-h" in said
    assert "cleared – step 67, contained none 02:33:08 closed: cleared" in said


def test_links_carry_run_and_incident() -> None:
    links = open_page(states.gradient(), states.clean()).get("page_link")
    assert {link.proto.query_string for link in links} == {"", "run=demo&incident=r-3f2a91c0", "run=quiet"}
    assert {link.proto.label for link in links} == {"Open incident", "Open nodes", "Open run", "r-3f2a91c0"}


def test_without_a_run_it_says_what_to_do() -> None:
    said = shown(open_page())
    assert "No runs in runs . Start one with lastgood demo , or point the console at a run directory." in said


def test_unreadable_places_are_named_with_file_and_line() -> None:
    broken = replace(states.clean(), unreadable=(Unreadable("journal/000001/rank-0.jsonl", 7, "not JSON"),))
    said = shown(open_page(broken))
    assert "One place of run quiet could not be read: journal/000001/rank-0.jsonl:7 (not JSON)." in said


def test_names_from_journals_are_escaped() -> None:
    hostile = replace(states.clean(), run="<img src=x onerror=alert(1)>")
    assert "<img" not in markup(open_page(hostile))
