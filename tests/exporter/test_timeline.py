from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.app.fixtures import states

from lastgood import timeline, timeline_density
from lastgood.events import CHECKS
from lastgood.state import Attempt, FailedSave, Incident, Parent, Point, RunState
from lastgood.timeline import TimelineEntry
from lastgood.timeline_entry import entry_of


def entries(state: RunState) -> tuple[TimelineEntry, ...]:
    return timeline.entries(state, state.incidents[0])


def of_kind(state: RunState, kind: str) -> list[TimelineEntry]:
    return [entry for entry in entries(state) if entry.kind == kind]


@pytest.mark.parametrize("row", states.ROWS)
def test_nothing_is_known_before_it_happened(row: str) -> None:
    found = entries(states.ROWS[row]())
    assert found
    assert not [e for e in found if e.at > e.known_at or e.at > e.until]
    assert [e.known_at for e in found] == sorted(e.known_at for e in found)


def test_a_finding_reaches_back_to_the_start_of_its_window() -> None:
    (found,) = of_kind(states.gradient(), "finding")
    assert (found.happened, found.step, found.tone) == ("steps (50, 100]", 100, "accused")
    assert found.at == states.at(50 * states.PACE + 1)
    assert found.known_at == states.at(100 * states.PACE + 2)


def test_a_contained_finding_happened_at_its_step() -> None:
    (found,) = of_kind(states.reduce_all(), "finding")
    assert (found.happened, found.at) == ("step 67", found.known_at)
    assert found.text == "Conservation failed: no rank stands out, bucket 0"


def test_a_refused_save_is_shown_and_told() -> None:
    (refused,) = of_kind(states.weight(), "refused")
    assert (refused.lane, refused.step, refused.tone, refused.in_story) == ("saves", 75, "tainted", True)


def test_a_save_that_failed_for_another_reason_is_missing_not_tainted() -> None:
    failed = FailedSave(1, 25, "checkpoints/x", states.at(400), "no space left on device", {})
    (found,) = of_kind(states.gradient(failed_saves=(failed,)), "failed_save")
    assert (found.tone, found.symbol) == ("missing", "–")
    assert "no space left on device" in found.text


def test_saves_carry_their_trust() -> None:
    tones = {(e.attempt, e.step): e.tone for e in of_kind(states.gradient(), "saved")}
    assert (tones[1, 50], tones[1, 75]) == ("trusted", "suspect")


def test_a_check_that_does_not_run_is_drawn_as_not_run_and_never_as_passed() -> None:
    off = [e for e in entries(states.gradient()) if e.lane == "at_rest"]
    assert {e.kind for e in off} == {"not_run"}
    assert off[0].text == "not run: switched off"


def test_a_per_step_check_is_broken_where_it_failed() -> None:
    spans = [e for e in of_kind(states.data(), "ran") if e.lane == "finite"]
    failed = [e for e in of_kind(states.data(), "failed") if e.lane == "finite"]
    assert [spans[0].until, spans[1].at] == [failed[0].at, failed[0].at]


def test_a_failed_round_and_its_finding_are_one_failure_in_the_lane() -> None:
    assert len([e for e in entries(states.gradient()) if e.lane == "replay" and e.kind == "failed"]) == 1


def test_the_injected_fault_is_ground_truth_and_no_entry() -> None:
    state = states.gradient()
    assert not [e for e in entries(state) if "inject" in e.text.lower() or "injection" in e.kind]
    (told,) = timeline.injected(state, state.incidents[0])
    assert told == "fault injected on purpose: backward, scale on rank 3 of attempt 1 at step 67 (blocks.1.mlp.up)"


def test_a_permanent_fault_is_one_sentence() -> None:
    fault = {"site": "gradient", "fault": "scale", "rank": 3, "tensor": "t", "permanent": True}
    many = tuple(states.event("injection", s * 15.0, 1, fault | {"step": s}) for s in range(67, 101))
    state = states.gradient(injections=many)
    assert timeline.injected(state, state.incidents[0]) == (
        "fault injected on purpose: gradient, scale on rank 3 of attempt 1 in steps 67 to 100 (34 times)",
    )


def test_the_story_has_what_happened_in_the_order_it_was_known() -> None:
    kinds = [e.kind for e in timeline.story(entries(states.gradient()))]
    assert kinds == [
        "finding", "verdict", "ended", "alert", "action", "restart", "started", "note", "recovered", "alert", "ended",
    ]  # fmt: skip


def test_a_restart_fills_the_gap_between_two_attempts() -> None:
    state = states.gradient()
    (restart,) = of_kind(state, "restart")
    assert (restart.at, restart.until) == (state.attempts[0].ended_at, state.attempts[1].started_at)
    assert restart.text == "Restarted in 4 min 14 s, without node-b"


def test_a_restart_that_nobody_journaled_is_seen_by_its_gap_and_its_nodes() -> None:
    (restart,) = of_kind(states.gradient(restarts=()), "restart")
    assert (restart.text, restart.who) == ("Restarted in 4 min 14 s, without node-b", "lastgood")


def test_a_restart_with_seconds_that_are_no_number_is_still_shown() -> None:
    event = states.event("restart", 1_500, 1, {"seconds": "NaN"})
    assert of_kind(states.gradient(restarts=(event,)), "restart")


def test_notes_and_actions_name_who_said_them_and_are_listed_once() -> None:
    notes = [e for e in entries(states.gradient()) if e.lane == "notes"]
    assert [(e.text, e.who) for e in notes] == [
        ("Incident acknowledged", "mira"),
        ("Note: drained node-b, ticket 4711", "mira"),
    ]


def test_notes_of_another_incident_stay_away() -> None:
    other = states.event("note", 1_000, 1, {"text": "elsewhere", "incident": "r-0ther"})
    assert "elsewhere" not in str(entries(states.gradient(annotations=(other,))))


def test_a_cleared_incident_needs_no_later_attempt() -> None:
    state = states.data()
    later = replace(state.attempts[0], number=2, parent=Parent(1, 150, "x"), from_step=150)
    shown = timeline.attempts_of(replace(state, attempts=(*state.attempts, later)), state.incidents[0])
    assert [a.number for a in shown] == [1]


def test_of_many_attempts_the_first_and_the_last_three_are_shown() -> None:
    state = states.two_nodes()
    many = tuple(replace(state.attempts[0], number=n) for n in range(1, 420))
    shown = timeline.attempts_of(replace(state, attempts=many), state.incidents[0])
    assert [a.number for a in shown] == [1, 2, 3, 417, 418, 419]


def test_steps_between_two_known_times_are_interpolated() -> None:
    clock = timeline.StepClock(states.gradient())
    half = clock.at(Point(1, 37))
    assert states.at(25 * states.PACE + 1) < (half or "") < states.at(50 * states.PACE + 1)
    assert clock.at(Point(9, 1)) is None


def test_a_step_has_ended_from_its_own_time_on_until_that_of_the_next() -> None:
    clock = timeline.StepClock(states.gradient())
    times = [25 * states.PACE, 25 * states.PACE + 1, 26 * states.PACE, 26 * states.PACE + 1, -1, 9_000_000]
    assert [clock.step_at(1, states.at(seconds)) for seconds in times] == [24, 25, 25, 26, 0, 100]
    assert clock.step_at(9, states.at(0)) is None


def test_a_clock_that_ran_backwards_is_not_followed() -> None:
    state = states.gradient()
    saves = tuple(replace(s, saved_at=states.at(0)) if s.step == 25 else s for s in state.checkpoints)
    clock = timeline.StepClock(replace(state, checkpoints=saves))
    times = [clock.at(Point(1, step)) or "" for step in range(0, 101, 5)]
    assert times == sorted(times)


def test_a_save_in_the_background_does_not_move_its_step_to_when_it_was_complete() -> None:
    state = states.gradient()
    clock = timeline.StepClock(state)
    late = [replace(s, saved_at=states.at(26 * states.PACE), seconds=states.PACE - 1, blocked_seconds=0.0) for s in
            state.checkpoints if s.step == 25]  # fmt: skip
    others = [s for s in state.checkpoints if s.step != 25]
    again = timeline.StepClock(replace(state, checkpoints=(*others, *late)))
    assert again.at(Point(1, 25)) == clock.at(Point(1, 25))


def long_run() -> tuple[RunState, Incident]:
    """Return a run of 200 000 steps with a save and a round every 100 and the incident at the end."""
    state = states.gradient()
    shift = 200_000
    first: Attempt = replace(state.attempts[0], last_step=shift, last_step_at=states.at(shift * 15), ended_at=None)
    saves = tuple(states.save(1, s, s * 15.0) for s in range(0, shift, 100))
    rounds = tuple(states.round_of("replay", "audit", 1, s) for s in range(0, shift, 100))
    window = states.Window(1, shift - 200, 1, shift, False, "")
    found = states.finding("replay", shift, "audit", window)
    about = replace(states.incident(found, window), recovered_at=None, recovered_by=None)
    return replace(state, attempts=(first,), checkpoints=saves, rounds=rounds, findings=(found,), restarts=()), about


def test_a_long_run_narrows_to_the_window_and_stays_small() -> None:
    state, about = long_run()
    found = timeline.entries(state, about)
    assert len(found) < timeline_density.MOST_MARKS
    assert min(e.step or 200_000 for e in found if e.kind == "saved") > 199_000


def test_every_entry_stands_in_a_known_lane_and_lanes_of_checks_stay() -> None:
    found = entries(states.reduce_all())
    assert {e.lane for e in found} <= set(timeline.LANES)
    assert set(CHECKS) <= set(timeline.lanes(found))


def test_peers_come_from_the_evidence_with_their_gaps() -> None:
    (peers,) = timeline.peers(states.gradient().incidents[0])
    assert (peers.rank, peers.metric, len(peers.steps)) == (3, "grad_norm_local", 100)
    assert peers.suspect[30] is None
    assert str(peers.suspect[31]) == "nan"


@pytest.mark.parametrize(
    "item",
    [
        {"kind": "peers"},
        {"kind": "peers", "rank": "x", "steps": [1], "suspect": [1]},
        {"kind": "peers", "rank": 3, "steps": [1, 2], "suspect": "nonsense"},
        {"kind": "peers", "rank": 3, "steps": [], "suspect": []},
    ],
)
def test_evidence_that_cannot_be_read_is_left_out(item: dict[str, object]) -> None:
    base = states.gradient().incidents[0]
    found = tuple(replace(f, evidence=(item,)) for f in base.findings)
    assert timeline.peers(replace(base, findings=found)) == ()


def told(known: RunState, *events: tuple[str, float, dict[str, object]], **changes: Any) -> list[tuple[str, str, str]]:
    """Return (kind, text, who) of what people said."""
    base = known.incidents[0]
    said = tuple(states.event(k, at, 1, {"author": "mira", "incident": base.id} | data) for k, at, data in events)
    about = replace(base, actions=said, **changes)
    found = timeline.entries(replace(known, annotations=said), about)
    return [(e.kind, e.text, e.who) for e in found if e.kind in timeline.SAID_KINDS]


def test_every_action_of_a_person_is_told_in_words() -> None:
    actions = (
        ("action", 2_000, {"action": "acknowledge"}),
        ("note", 2_001, {"text": "drained"}),
        ("action", 2_002, {"action": "cause", "reason": "power supply"}),
        ("action", 2_003, {"action": "reopen", "reason": "again"}),
        ("action", 2_004, {"action": "accept", "reason": "copied by hand", "path": "checkpoints/x", "attempt": 1}),
    )
    assert [text for _, text, _ in told(states.gradient(), *actions)] == [
        "Incident acknowledged", "Note: drained", "Cause: power supply", "Incident reopened: again",
        "Checkpoint accepted: checkpoints/x: copied by hand",
    ]  # fmt: skip


def test_the_close_that_holds_is_told_once_with_its_reason() -> None:
    close = ("action", 2_000, {"action": "close", "reason": "cable replaced"})
    found = told(states.gradient(), close, closed_at=states.at(2_000), closed_by="mira", state="closed")
    assert found == [("closed", "Closed: cable replaced", "mira")]


def test_a_checkpoint_accepted_in_another_attempt_stays_away() -> None:
    accept = states.event("action", 2_000, 9, {"action": "accept", "attempt": 9, "path": "elsewhere", "author": "kim"})
    assert "elsewhere" not in str(entries(states.gradient(annotations=(accept,))))


def test_what_people_say_long_after_a_long_run_is_kept() -> None:
    state, about = long_run()
    note = states.event("note", 9_000_000, 1, {"text": "at last", "author": "mira", "incident": about.id})
    found = timeline.entries(state, replace(about, actions=(note,)))
    assert [(e.text, e.who) for e in found if e.at == states.at(9_000_000)] == [("Note: at last", "mira")]


def burst(count: int, apart: float, check: str = "Replay") -> list[TimelineEntry]:
    """Return findings of ranks 0, 1, 2 ... so many seconds apart."""
    return [
        replace(
            entry_of("findings", "finding", "accused", "◆", 1, 100, states.at(n * apart), f"{check} failed: x"),
            ranks=(n,),
        )
        for n in range(count)
    ]  # fmt: skip


def test_a_burst_of_findings_is_one_entry_that_counts_findings_and_ranks() -> None:
    (told,) = timeline.condensed(burst(212, 0.5))
    assert told.text == f"212 findings, 212 ranks: replay, until {states.at(105.5)[11:19]}"
    assert (told.at, told.until) == (states.at(0), states.at(105.5))
    assert told.ranks == tuple(range(212))


def test_few_findings_findings_far_apart_and_those_of_another_check_are_told_each() -> None:
    assert len(timeline.condensed(burst(5, 0.5))) == 5
    assert len(timeline.condensed(burst(12, 61.0))) == 12
    assert len(timeline.condensed([*burst(4, 1.0), *burst(4, 1.0, "Finite")])) == 8
