"""Folding: the same history gives the same state, whatever the order and however often; and what never happens."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exporter.histories import History, trusts, window

from lastgood.events import Event, event_from_line
from lastgood.fold import derive
from lastgood.lineage import unknown_root
from lastgood.state import Device, Incident, RunState, Unreadable
from lastgood.trust import covered
from lastgood.wording import when_phrase

NODES = ("node-a", "node-b", "node-c")
SPARE = ("node-a", "node-d", "node-c")


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw a run of several attempts with saves, rounds, findings, verdicts and what people do."""
    history = History()
    saved: list[tuple[int, int, str]] = []
    for _ in range(draw(st.integers(1, 4))):
        step = begin(draw, history, saved)
        for _ in range(draw(st.integers(0, 8))):
            step += draw(st.integers(0, 3))
            happen(draw, history, saved, step)
        if draw(st.booleans()):
            history.end(step, draw(st.sampled_from(["completed", "integrity", "signal"])))
    return history


def begin(draw: st.DrawFn, history: History, saved: list[tuple[int, int, str]]) -> int:
    how = draw(st.sampled_from(["scratch", "unknown", "resume", "resume"])) if saved else "scratch"
    parent = draw(st.sampled_from(saved)) if how == "resume" else None
    start = parent[1] if parent else (draw(st.integers(1, 9)) if how == "unknown" else 0)
    nodes = draw(st.sampled_from([NODES, SPARE]))
    history.start(start, parent, nodes=nodes, known=how != "unknown", topology=draw(st.booleans()))
    return start


def happen(draw: st.DrawFn, history: History, saved: list[tuple[int, int, str]], step: int) -> None:
    rank = draw(st.integers(0, 5))
    match draw(st.sampled_from(["save", "save", "audit", "audit", "replica", "bad", "nan", "reduce", "act"])):
        case "save":
            checks = draw(st.sampled_from([None, {"replica": "failed"}, {"replica": "passed", "finite": "not_run"}]))
            path = draw(st.sampled_from(["", "", "latest"])) or history.path(step)
            history.save(step, path, checks=checks, fingerprint=draw(st.sampled_from(["", "ab"])))  # type: ignore[arg-type]
            saved.append((history.attempt, step, path))
        case "audit":
            history.audit(step, not_run=draw(st.sampled_from([(), (), (rank,)])))
        case "replica":
            history.audit(step, check="replica", phase="loop", state_step=max(0, step - 1))
        case "bad":
            history.audit(step, failed=[rank]).find("replay", step, [rank])
            judge(draw, history, ("replay", step, "audit"), rank)
        case "nan":
            history.find("finite", step, [rank], phase="local", contained=draw(st.booleans()))
            judge(draw, history, ("finite", step, "local"), rank)
        case "reduce":
            history.find("conservation", step, phase=draw(st.sampled_from(["reduce", "flag"])))
        case "act":
            for incident in history.state().incidents[:1]:
                history.act(
                    draw(st.sampled_from(["acknowledge", "cause", "close", "reopen"])), incident=incident.id, by="mira"
                )


def judge(draw: st.DrawFn, history: History, finding: tuple[str, int, str], rank: int) -> None:
    status = draw(st.sampled_from(["none", "attributed", "undecided", "cleared", "suspicious"]))
    named = {"attributed": {"accused": [rank]}, "undecided": {"candidates": [rank, (rank + 2) % 6]}}.get(status, {})
    if status != "none":
        history.rule(status, finding, action=draw(st.sampled_from(["stop", "record"])), **named)  # type: ignore[arg-type]


@settings(deadline=None)
@given(histories(), st.randoms(use_true_random=False), st.data())
def test_any_order_and_any_copies_give_the_same_state(history: History, random: Random, data: st.DataObject) -> None:
    before = history.state()
    copies = data.draw(st.lists(st.sampled_from(history.events), max_size=10))
    shuffled = [*history.events, *copies]
    random.shuffle(shuffled)
    assert derive(history.run, shuffled, topologies=history.topologies) == before


@settings(deadline=None)
@given(histories())
def test_last_good_is_never_covered_missing_or_tainted(history: History) -> None:
    state = history.state()
    good = state.last_good
    goods = [good, *(i.resume for i in state.incidents if i.resume is not None and i.state in ("open", "reopened"))]
    for one in [g for g in goods if g.exists]:
        assert one.trust in ("trusted", "unverified")
    chosen = [c for c in state.checkpoints if (c.attempt, c.step, c.path) == (good.attempt, good.step, good.path)]
    began = [(a.number, a.from_step) for a in state.attempts]
    if good.exists:  # a save of the run, or what a lineage began from
        assert [c.trust for c in chosen] == [good.trust] or (good.attempt, good.step) in began
        assert not any(covers(state, i, good.attempt, good.step) for i in state.incidents)
    else:
        assert not chosen


@settings(deadline=None)
@given(histories())
def test_covered_by_says_what_the_rule_says(history: History) -> None:
    state = history.state()
    for c in state.checkpoints:
        by = {i.id for i in state.incidents if covers(state, i, c.attempt, c.step)}
        assert set(c.covered_by) == by
        assert c.trust != "trusted" or not by
    for i in state.incidents:
        assert set(i.covered) == {(c.attempt, c.step, c.path) for c in state.checkpoints if i.id in c.covered_by}


def covers(state: RunState, incident: Incident, attempt: int, step: int) -> bool:
    """Ask the rule itself, window by window."""
    from lastgood.state import Point

    if incident.state == "closed" and incident.status == "suspicious":  # only a suspicion is settled by a close
        return False
    attempts = {a.number: a for a in state.attempts}
    newest = {}
    for verdict in incident.verdicts:
        for name in verdict.findings:
            newest[verdict.attempt, name] = max(
                newest.get((verdict.attempt, name), verdict), verdict, key=lambda v: (v.step, v.at)
            )
    standing = [
        f for f in incident.findings if (f.attempt, f.id) not in newest or newest[f.attempt, f.id].status != "cleared"
    ]
    return any(covered(attempts, f.window, Point(attempt, step)) for f in standing if f.window is not None)


@settings(deadline=None)
@given(histories())
def test_no_evidence_no_accusation(history: History) -> None:
    for incident in history.state().incidents:
        accused = {s.device for s in incident.suspects if s.role == "accused"}
        said = {s.device for v in incident.verdicts if v.status == "attributed" for s in v.suspects}
        assert accused <= said
        assert not accused or incident.status == "attributed"
        assert all((incident.reasons_for, incident.reasons_against, incident.unknown))


@settings(deadline=None)
@given(histories())
def test_trusted_means_that_every_device_passed_a_replay_at_or_after_it(history: History) -> None:
    state = history.state()
    attempts = {a.number: a for a in state.attempts}
    for c in (c for c in state.checkpoints if c.trust == "trusted" and c.step > attempts[c.attempt].from_step):
        assert unknown_root(attempts, c.attempt) is None
        waiting: set[Device | int] = {p.device for p in attempts[c.attempt].places} or set(range(6))
        for r in state.rounds:
            if r.check == "replay" and (r.attempt, r.state_step) >= (c.attempt, c.step):
                names = {p.rank: p.device for p in attempts[r.attempt].places}
                waiting -= {names.get(k, k) for k in range(6) if r.result_of(k) == "passed"}
        assert not waiting


@settings(deadline=None, max_examples=20)
@given(histories())
def test_the_made_up_histories_are_what_a_journal_can_hold(history: History) -> None:
    assert [event_from_line(event.to_line()) for event in history.events] == history.events


# --- what the state holds --------------------------------------------------------------------------------------------


def test_of_two_copies_that_differ_the_smaller_line_counts_whichever_comes_first() -> None:
    history = History().start().audit(1).find("replay", 100, [3])
    event = history.events[-1]
    other = replace(event, time="2027-01-01T00:00:00.000000Z", rank=3, node="node-b")
    both = [derive(history.run, [*history.events[:-1], *pair]) for pair in ([event, other], [other, event])]
    assert both[0] == both[1]
    assert len(both[0].findings) == 1
    assert both[0].findings[0].at == min((event, other), key=Event.to_line).time


def test_events_of_another_run_are_left_out() -> None:
    history, foreign = History().start(), History(run="other").start().audit(1)
    assert derive("llama-7b", [*history.events, *foreign.events]).event_count == 1


def test_no_events_are_an_empty_state() -> None:
    state = derive("llama-7b", [])
    assert (state.attempts, state.incidents, state.checks, state.last_good.exists) == ((), (), (), False)
    assert (state.event_count, state.first_event_at, state.active) == (0, "", False)


def test_an_attempt_whose_start_is_not_visible_yet_has_an_unknown_past() -> None:
    history = History().start().save(0).audit(1).find("replay", 50, [3]).start(25, (1, 25, "x")).save(30)
    late = [e for e in history.events if not (e.type == "run.started" and e.attempt == 2)]
    state = derive(history.run, late, topologies=history.topologies)
    assert (state.attempts[1].parent_known, trusts(state)[2, 30]) == (False, "suspect")


def test_progress_moves_the_step_and_the_passes_and_is_not_counted() -> None:
    history = History().start().audit(1)
    before = history.state()
    history.write("progress", 40, step=40, passed={"finite": 40, "conservation": 39})
    state = history.state()
    assert (state.event_count, state.events_digest) == (before.event_count, before.events_digest)
    assert state.attempts[0].last_step == 40
    assert {c.check: c.last_pass_step for c in state.checks} == {
        "finite": 40,
        "conservation": 39,
        "replica": -1,
        "replay": 1,
        "at_rest": -1,
    }


def test_a_check_is_due_three_intervals_after_its_last_pass_or_the_attempts_start() -> None:
    history = History().start(not_run={"conservation": "own comm hook"}).audit(1).audit(50).audit(100, not_run=[2])
    history.audit(150, failed=[3])
    checks = {c.check: c for c in history.state().checks}
    assert (checks["replay"].last_pass_step, checks["replay"].due_step) == (100, 250)
    assert (checks["replica"].last_pass_step, checks["replica"].due_step) == (-1, 150)
    assert (checks["conservation"].running, checks["conservation"].reason) == (False, "own comm hook")
    assert (checks["conservation"].due_step, checks["at_rest"].reason) == (None, "switched off")


def changed(history: History, step: int, **every: int) -> History:
    cadence = {"finite": 1, "conservation": 1, "replica": 50, "replay": 50, "at_rest": None} | every
    return history.write("cadence", step, cadence=cadence, state_every=None, share=0.01, budget=0.01)


def test_a_check_is_due_by_the_cadence_in_force() -> None:
    history = changed(changed(History().start().audit(50).audit(50, check="replica"), 60, replay=800), 80, replay=400)
    state = history.state()
    checks = {status.check: status for status in state.checks}
    assert (checks["replay"].interval_steps, checks["replay"].due_step) == (400, 80 + 3 * 400)
    assert (checks["replica"].interval_steps, checks["replica"].due_step) == (50, 200)
    assert state.attempts[0].cadence_since == {"replay": 80}


def test_a_check_that_cannot_run_any_more_says_why_and_is_never_late() -> None:
    history = History().start().audit(1).audit(50)
    history.write("cadence", 100, cadence={"replica": 50, "replay": None}, not_run={"replay": "not deterministic"})
    state = history.state()
    replay = {status.check: status for status in state.checks}["replay"]
    assert (replay.running, replay.reason, replay.due_step) == (False, "not deterministic", None)
    assert replay.last_pass_step == 50
    assert state.attempts[0].not_run["replay"] == "not deterministic"


def test_a_cadence_that_is_short_again_makes_no_check_late() -> None:
    history = changed(History().start().audit(800), 20, replay=800)
    late = {status.check: status for status in history.state().checks}["replay"]
    assert late.due_step == 800 + 3 * 800
    shorter = {status.check: status for status in changed(history, 1580, replay=50).state().checks}["replay"]
    assert shorter.due_step == 1580 + 3 * 50


def test_the_attempt_says_how_far_it_got_and_how_it_ended() -> None:
    history = History().start().audit(1).save(25).audit(50).end(60, "signal")
    (attempt,) = history.state().attempts
    assert (attempt.last_step, attempt.end_reason, attempt.world_size) == (60, "signal", 6)
    assert not history.state().active
    assert history.state().attempts[0].last_step_at == history.events[-1].time


def test_a_note_written_long_after_does_not_prolong_an_attempt() -> None:
    history = History().start().end(10, "completed").wait(9999).act("note", text="ok")
    assert history.state().attempts[0].last_event_at == history.events[-2].time
    assert len(history.state().annotations) == 1


def test_unreadable_places_are_sorted_and_said_once() -> None:
    bad = [Unreadable("b", 2, "torn"), Unreadable("a", 1, "torn"), Unreadable("b", 2, "torn")]
    assert derive("llama-7b", [], unreadable=bad).unreadable == (bad[1], bad[0])


# --- windows that the scenarios do not reach -------------------------------------------------------------------------


def only_window(history: History) -> tuple[int, int, int, int, bool] | None:
    return window(history.incident())


def test_a_device_that_passed_in_the_parent_is_good_up_to_that_point_of_the_lineage() -> None:
    history = History().start().save(0).audit(30).save(50).audit(80).end(90, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050")).audit(70, failed=[3]).find("replay", 70, [3])
    assert only_window(history) == (1, 30, 2, 70, False)


def test_a_pass_at_the_branch_point_begins_the_window_in_the_child() -> None:
    history = History().start().save(0).save(50).audit(50).save(75).end(90, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050")).audit(70, failed=[3]).find("replay", 70, [3])
    assert only_window(history) == (2, 50, 2, 70, False)
    assert trusts(history.state())[1, 75] == "unverified"


def test_a_device_that_joined_later_cannot_have_been_wrong_before() -> None:
    history = History().start(nodes=SPARE).save(0).save(50).audit(50).end(50, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050")).audit(70, failed=[3]).find("replay", 70, [3])
    assert only_window(history) == (2, 50, 2, 70, False)
    assert history.incident().window.reason.startswith("rank 3 (node-b) joined at step 50")  # type: ignore[union-attr]


@pytest.mark.parametrize(("verified", "expected"), [(True, (2, 50)), (False, (1, 20))])
def test_replica_falls_back_to_a_verified_load_and_else_further_along_the_lineage(
    verified: bool, expected: tuple[int, int]
) -> None:
    history = History().start().save(0).audit(20, check="replica", phase="loop").save(50, checks={}).end(50, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050"), verified=verified)
    history.find("replica", 70, [3], phase="loop", state_step=69)
    assert only_window(history) == (*expected, 2, 69, False)


def test_a_finding_at_a_save_is_not_begun_by_a_round_that_read_the_weights_alone() -> None:
    history = History().start().save(0).save(25).audit(50, check="replica", phase="loop", state_step=49)
    assert only_window(history.find("replica", 60, [3], phase="save")) == (1, 25, 1, 60, False)
    history.events.pop()
    assert only_window(history.find("replica", 60, [3], phase="loop", state_step=59)) == (1, 49, 1, 59, False)


@pytest.mark.parametrize(("from_step", "parent"), [(0, None), (50, (1, 50, "step-50"))])
def test_what_changed_in_the_first_step_of_an_attempt_changed_in_that_step(from_step: int, parent: Any) -> None:
    """Replicas that the forward of the first step changes (`max_norm`), or a bit that flips after a verified load."""
    history = History()
    if parent:
        history = history.start().audit(50).save(50).end(60)
    history = history.start(from_step, parent).find("replica", from_step + 1, [], state_step=from_step)
    attempt = 2 if parent else 1
    assert only_window(history) == (attempt, from_step, attempt, from_step + 1, False)
    assert when_phrase(history.incident()) == f"at step {from_step + 1}"


def test_what_differs_before_any_step_is_said_so() -> None:
    history = History().start().find("replica", 0, [], phase="save", state_step=0)
    assert when_phrase(history.incident()) == "before step 1"


def test_a_wrong_sum_heard_by_the_flag_is_a_step_older_and_was_not_contained() -> None:
    history = History().start().find("conservation", 68, [3], phase="flag", contained=True)
    assert only_window(history) == (1, 66, 1, 68, False)


def test_undecided_takes_the_earliest_start_of_the_candidates() -> None:
    history = History().start().audit(20).audit(50, not_run=[1]).find("replay", 100, [1, 3])
    assert only_window(history) == (1, 20, 1, 100, False)


def test_a_replay_finding_that_names_nobody_begins_where_everyone_passed() -> None:
    history = History().start().audit(20).audit(50, not_run=[1]).find("replay", 100)
    assert only_window(history) == (1, 20, 1, 100, False)


def test_a_pass_at_the_step_of_the_finding_does_not_count() -> None:
    history = History().start().audit(20).audit(50).find("replay", 50, [3], phase="immediate")
    assert only_window(history) == (1, 20, 1, 50, False)


def test_where_the_topology_of_an_ancestor_is_missing_only_a_pass_of_everyone_counts() -> None:
    history = History().start(topology=False).save(0).audit(20).audit(40, not_run=[0]).save(50).end(50, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050")).find("replay", 70, [3])
    assert only_window(history) == (1, 20, 2, 70, False)
