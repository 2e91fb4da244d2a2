"""Hold the incident page: verdict, panels, reasons, what to do, evidence; and what an address may not match."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tests.app import console_states as states
from tests.app.fixtures import states as fixture
from tests.app.pages import markup, open_page, shown

from lastgood.state import FailedSave, RunState
from lastgood.timeline import entries, story
from lastgood.wording import moment
from lastgood_console.cache import step_clock, timeline_picture
from lastgood_console.components.checkpoint_table import bytes_text, checkpoints_html
from lastgood_console.components.decision import avoid_panel, reasons, resume_panel, standing, things_to_do
from lastgood_console.components.selection import select
from lastgood_console.components.tables import MOST_ROWS, clocks, story_html
from lastgood_console.components.time_frame import frame_of


def page(state: RunState, **params: str) -> str:
    return shown(open_page(state, page="incident", **params))


@cache
def story_page(recovered: bool = True) -> str:
    """Return the default story's page, opened once for all tests that read it."""
    return page(states.gradient(recovered))


def test_the_first_screen_answers_who_lied_from_where_to_resume_and_what_not_to_use() -> None:
    said = story_page(False)
    assert "ATTRIBUTED to a device without a GPU · confidence exact · persistent fault" in said
    assert "Rank 3 (node-b, slot 1) computed wrong gradients in steps (50, 100]." in said
    assert 'RESUME FROM step 50 trusted All six devices passed a replay at step 50. monitor.resume("check' in said
    assert "on every rank, after loading it, without node-b" in said
    assert "DO NOT USE step 75 ! suspect Saved by attempt 1 inside the window." in said
    assert "COST SO FAR 50 steps" in said
    assert "AGAINST Rank 3 agreed with its own second run." in said
    assert "scontrol update nodename=node-b state=drain reason=r-3f2a91c0" in said


def test_only_commands_that_exist_are_offered() -> None:
    said = story_page(False) + page(states.undecided())
    assert "lastgood launch" not in said
    assert "lastgood respond" not in said


def test_an_undecided_incident_accuses_nobody_and_drains_nobody() -> None:
    said = page(states.undecided())
    assert "UNDECIDED between two devices" in said
    assert "Rank 1 (node-a) or rank 3 (node-b)" in said
    assert "scontrol" not in said
    assert "without node-a and node-b" in said


def test_a_cleared_incident_needs_no_resume() -> None:
    said = page(states.cleared())
    assert "CLEARED not hardware" in said
    assert "RESUME FROM not needed Step 67 was skipped on all ranks and training went on." in said
    assert "DO NOT USE nothing The wrong value was kept out of the weights: no checkpoint holds it." in said
    assert "monitor.resume" not in said


def test_a_recovered_incident_says_where_the_run_has_come_since() -> None:
    said = story_page()
    assert "recovered by attempt 2 after 1 min 22 s" in said
    assert "Attempt 2 resumed here and recovered. Last good now: step 150 of attempt 2." in said


def test_a_resume_checkpoint_that_has_gone_missing_is_not_offered() -> None:
    state = states.gradient(recovered=False)
    saves = tuple(
        replace(c, trust="missing", reason="the path is gone") if c.point.step == 50 else c for c in state.checkpoints
    )
    good = replace(state.last_good, step=25, path=states.path_of(1, 25))
    panel = resume_panel(replace(state, checkpoints=saves, last_good=good), state.incidents[0])
    assert (panel.trust, panel.command) == ("missing", None)
    assert panel.lines[0] == "Step 50 was trusted at the verdict and is missing now: the path is gone."
    assert panel.lines[-1] == "Last good now: step 25 of attempt 1, trusted (checkpoints/a1-step-000025)."


def test_a_step_that_was_skipped_offers_nothing_to_resume_from() -> None:
    state = states.gradient(recovered=False)
    panel = resume_panel(state, replace(state.incidents[0], state="recovered", recovered_by=1))
    assert (panel.number, panel.trust, panel.command) == ("not needed", None, None)
    assert panel.lines[0].startswith("No resume needed: the step was skipped and training went on.")


@pytest.mark.parametrize("reason", ["Journaled as saved; the path is gone.", "the path is gone"])
def test_what_became_of_the_checkpoint_of_the_verdict_ends_with_one_full_stop(reason: str) -> None:
    state = states.gradient(recovered=False)
    saves = tuple(replace(c, trust="missing", reason=reason) if c.step == 50 else c for c in state.checkpoints)
    good = replace(state.last_good, step=25, path=states.path_of(1, 25))
    incident = replace(state.incidents[0], resume=good)
    panel = resume_panel(replace(state, checkpoints=saves, last_good=good), incident)
    assert (panel.number, panel.trust) == ("step 25", "trusted")
    assert panel.command == 'monitor.resume("checkpoints/a1-step-000025")'
    assert panel.lines[0] == f"Step 50 was trusted at the verdict and is missing now: {reason.removesuffix('.')}."


def test_without_a_checkpoint_before_the_window_the_way_is_step_zero() -> None:
    incident = replace(states.gradient_incident(False), resume=None)
    panel = resume_panel(states.gradient(False), incident)
    assert (panel.number, panel.command) == ("nothing", None)
    assert panel.lines[-1] == "Start again from step 0."


def test_a_refused_save_is_told_where_nothing_is_covered() -> None:
    base = states.gradient(recovered=False)
    refused = FailedSave(1, 75, states.path_of(1, 75), states.at(76), "integrity", {"replica": "failed"})
    state = replace(base, checkpoints=base.checkpoints[:3], failed_saves=(refused,))
    panel = avoid_panel(state, replace(base.incidents[0], covered=()))
    assert panel.number == "nothing"
    assert panel.lines[-1] == "The save at step 75 was refused by a check; nothing was written."
    assert "refused" in checkpoints_html(state)


def test_many_covered_saves_are_counted() -> None:
    base = states.gradient(recovered=False)
    covered = [states.checkpoint(1, s, s, "suspect", "inside", "r-3f2a91c0") for s in (60, 70, 80, 90)]
    panel = avoid_panel(replace(base, checkpoints=(*base.checkpoints[:3], *covered)), base.incidents[0])
    assert (panel.number, panel.trust) == ("4 saves", "suspect")
    assert "steps 60 to 90" in panel.lines[0]


def test_reasons_are_never_empty_and_at_most_three() -> None:
    incident = replace(states.gradient_incident(False), reasons_for=("a", "b", "c", "d", "e"), unknown=())
    found = reasons(incident)
    assert found["WHY"] == ("A.", "B.", "C.", "… and 2 more in the evidence.")
    assert found["UNKNOWN"] == ("Nothing known.",)


def test_what_to_do_names_the_attempt_that_followed_the_advice() -> None:
    state = states.gradient(recovered=False)
    first = things_to_do(state, state.incidents[0], Path("/runs/a b"))
    assert (first[0].done, first[0].command) == ("attempt 2 running, step 96", None)
    assert first[-1].command == "lastgood checkpoint verify '/runs/a b/checkpoints/a1-step-000050'"


def test_an_open_incident_tells_its_age() -> None:
    incident = states.gradient_incident(False)
    assert standing(incident, states.at(103 + 14 * 60)) == ("open 14 min", "known since 02:33:43 UTC")


def test_an_incident_of_another_day_tells_its_date() -> None:
    incident = states.gradient_incident(False)
    day = f"{moment(incident.opened_at):%d %b}"
    assert standing(incident, states.at(103 + 86_400))[1] == f"known since {day} 02:33:43 UTC"


def test_each_table_begins_with_the_date_and_has_it_where_the_day_changes() -> None:
    days = [states.at(0), states.at(60), None, states.at(86_400), states.at(86_460)]
    first, second = (f"{moment(states.at(at)):%d %b}" for at in (0, 86_400))
    assert clocks(days) == [f"{first} 02:32:00", "02:33:00", "–", f"{second} 02:32:00", "02:33:00"]
    told = story(entries(state := states.gradient(), state.incidents[0]))[:1]
    later = replace(told[0], at=states.at(86_400), known_at=states.at(86_460))
    table = story_html([*told, *told, later])
    assert (table.count(f"{first} "), table.count(f"{second} ")) == (2, 1)  # two clocks, once
    said = story_page()
    assert said.count(f"UTC, {moment(states.at(0)):%d %b %Y}") == 2


def test_a_reopened_incident_tells_the_age_of_its_reopening() -> None:
    incident = replace(states.gradient_incident(False), state="reopened", reopened_at=states.at(103 + 32 * 3600))
    assert standing(incident, states.at(103 + 32 * 3600 + 180))[0] == "reopened 3 min"
    assert standing(replace(incident, reopened_at=None), states.at(1_000))[0] == "reopened"


def test_the_story_has_two_clocks_and_the_ground_truth_is_no_evidence() -> None:
    said = story_page()
    assert "What happened, and when we knew" in said
    assert "steps (50, 100] 02:33:42 Replay failed: rank 3" in said
    assert "Ground truth, not evidence: fault injected on purpose" in said


def test_peers_are_context_and_their_numbers_stand_in_a_table() -> None:
    said = story_page()
    assert "Rank 3 against its peers local gradient norm" in said
    assert "context only: a metric never accuses" in said
    assert "Step Rank 3 Median p10 p90 1 " in said


def test_evidence_and_trust_tables_say_what_ran_and_what_did_not() -> None:
    said = story_page()
    assert f"replay failed steps (50, 100] {moment(states.at(0)):%d %b} 02:33:42 rank 3" in said
    assert "at_rest not run" in said
    assert "suspect Inside window (50, 100] of r-3f2a91c0." in said
    assert "Last good. Audited at steps 100 and 150." in said
    assert "Resume point of this incident." in said


def test_the_timeline_and_the_peers_are_charts_with_words() -> None:
    app = open_page(states.gradient(), page="incident")
    charts = app.get("arrow_vega_lite_chart") or app.get("vega_lite_chart")
    assert len(charts) == 2
    assert "Timeline of incident r-3f2a91c0" in str(charts[0].proto)
    assert json.loads(charts[0].proto.spec)["width"] == "container"


def test_drawing_a_chart_does_not_change_what_the_cache_holds() -> None:
    state = states.gradient()
    (incident,) = state.incidents
    frame = frame_of(state, incident, step_clock(state), "incident", None, None)
    drawn = timeline_picture(state, incident, frame, "light")
    before = copy.deepcopy(drawn)
    open_page(state, page="incident").run()
    assert timeline_picture(state, incident, frame, "light") is drawn
    assert drawn == before


def test_a_wider_timeline_says_whose_findings_it_shows_where_a_run_has_several_incidents() -> None:
    one = states.gradient()
    two = replace(one, incidents=(*one.incidents, replace(one.incidents[0], id="r-other")))
    note = "findings and alerts of this incident alone"
    for scope in ("attempt", "run"):
        assert note in shown(open_page(two, page="incident", scope=scope))
        assert note not in shown(open_page(one, page="incident", scope=scope))
    assert note not in shown(open_page(two, page="incident"))


def test_an_address_that_makes_no_sense_shows_the_incident_s_own_time() -> None:
    plain = shown(open_page(states.gradient(), page="incident"))
    odd = {"from": "yesterday", "to": "<b>"}
    said = shown(open_page(states.gradient(), page="incident", scope="everything", **odd))
    for note in (
        " · from and to of the address are not two times in order: ignored",
        "scope=everything of the address is none of these: ignored ",
    ):
        assert note in said
        said = said.replace(note, "")
    assert said == plain


def test_a_story_that_is_cut_says_so() -> None:
    state = states.gradient()
    (incident,) = state.incidents
    note = fixture.event("note", 0, 1, {"incident": incident.id, "text": "seen", "author": "mira"})
    told = tuple(replace(note, id=f"n-{n}", time=states.at(100 + n)) for n in range(MOST_ROWS + 5))
    rows = MOST_ROWS + 5 + len(story(entries(state, incident)))
    assert f"the first {MOST_ROWS} of {rows}" in page(replace(state, annotations=told))
    assert "the first" not in story_page()


def test_the_export_menu_offers_every_format() -> None:
    labels = [b.proto.label for b in open_page(states.gradient(), page="incident").get("download_button")]
    assert labels == [
        "Export incident (JSON)", "Export timeline (CSV)", "Export post-mortem (Markdown)", "Export report (HTML)",
    ]  # fmt: skip


def test_an_address_selects_run_and_incident() -> None:
    app = open_page(states.gradient(), states.undecided(), page="incident", run="demo", incident="r-3f2a91c0")
    assert "demo › incident r-3f2a91c0" in shown(app)


def test_without_an_address_the_newest_open_incident_is_shown() -> None:
    assert "two-nodes › incident r-41c07d55" in shown(open_page(states.gradient(), states.undecided(), page="incident"))


def test_an_alias_still_finds_its_incident() -> None:
    base = states.gradient()
    state = replace(base, incidents=(replace(base.incidents[0], aliases=("r-01d",)),))
    assert select({"demo": state}, "demo", "r-01d").incident == state.incidents[0]


def test_unknown_addresses_get_a_clear_message() -> None:
    said = page(states.gradient(), run="demoo")
    assert "Nothing at this address. No run is called 'demoo'. Runs: demo." in said
    said = page(states.gradient(), run="demo", incident="r-x")
    assert "Run 'demo' has no incident 'r-x'. Incidents: r-3f2a91c0." in said


def test_a_run_without_an_incident_says_what_was_seen() -> None:
    assert "No finding in 150 steps. Replay last passed 0 steps ago." in page(states.clean(), run="quiet")
    late = "Replay is 514 steps late. No finding in 8114 steps. Replay last passed 1114 steps ago."
    assert late in page(states.late())
    off = states.clean()
    off = replace(off, checks=tuple(replace(c, running=False, reason="switched off") for c in off.checks))
    assert "Replay is off: a wrong gradient would not be seen." in page(off)
    assert "Nothing saved yet. Resume is possible from step 0 only." in page(states.empty())


def test_without_a_run_it_says_what_to_do() -> None:
    assert "No runs in runs ." in shown(open_page(page="incident"))


def test_words_from_journals_are_escaped() -> None:
    base = states.gradient(recovered=False)
    bad = "<script>alert(1)</script>"
    finding = replace(base.findings[0], tensor=bad, evidence=({"kind": "replay", "text": bad},), observed=bad)
    incident = replace(
        base.incidents[0], findings=(finding,), reasons_for=(bad,), reasons_against=(bad,), unknown=(bad,)
    )
    saves = tuple(replace(c, path=bad, reason=bad) for c in base.checkpoints)
    state = replace(base, incidents=(incident,), findings=(finding,), checkpoints=saves)
    assert "<script" not in markup(open_page(state, page="incident"))


def test_sizes_are_told_in_decimal_units() -> None:
    assert [bytes_text(n) for n in (None, 0, 999, 2_411_520, 402_000_000_000)] == [
        "–", "0 B", "999 B", "2.4 MB", "402 GB",
    ]  # fmt: skip
