"""Whole histories: for each, the trust of every checkpoint, the window, last good, and how the incident goes on."""

from __future__ import annotations

import pytest
from tests.exporter.histories import History, trusts, window

from lastgood.state import Incident, RunState

SPARE = ("node-a", "node-d", "node-c")
AT_50 = (1, 50, "checkpoints/a1-step-000050")
REPLAY_OFF = {"replay": "switched off"}


def demo(upto: int = 66, **start: object) -> History:
    """The demo before its fault: saves every 25 steps, replay at 1 and every 50, replica every 50."""
    history = History().start(**start).save(0)  # type: ignore[arg-type]
    if "not_run" not in start:
        history.audit(1, phase="first")
    for step in range(25, upto + 1, 25):
        if step % 50 == 0:
            history.audit(step, check="replica", phase="loop", state_step=step - 1)
            if "not_run" not in start:
                history.audit(step)
        history.save(step)
    return history


def resume(history: History, nodes: tuple[str, ...] = SPARE) -> History:
    """Attempt 2 of the demo, from step 50 to the end."""
    history.start(50, AT_50, nodes=nodes).audit(51, phase="first").save(75).audit(100).save(100).save(125)
    return history.audit(150).save(150).end(150, "completed")


def last_good(state: RunState) -> tuple[int, int, str]:
    return (state.last_good.attempt, state.last_good.step, state.last_good.trust)


def accused(incident: Incident) -> list[str]:
    return [s.node for s in incident.suspects if s.role == "accused"]


# --- the demo's table, row by row ------------------------------------------------------------------------------------


def gradient() -> History:
    history = demo(75).audit(100, failed=[3]).find("replay", 100, [3])
    return history.rule("attributed", ("replay", 100, "audit"), accused=[3], nature="persistent", resume=AT_50).end(100)


def test_gradient_replay_finds_it_at_100_and_75_is_suspect() -> None:
    state = gradient().state()
    (incident,) = state.incidents
    assert (incident.status, accused(incident), incident.state) == ("attributed", ["node-b"], "open")
    assert window(incident) == (1, 50, 1, 100, False)
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "trusted", (1, 75): "suspect"}
    assert last_good(state) == (1, 50, "trusted")
    assert state.last_good.reason == "All 6 devices passed a replay at step 50."
    assert incident.covered == ((1, 75, "checkpoints/a1-step-000075"),)
    assert (incident.cost.steps, incident.cost.rising) == (50, True)


def test_gradient_recovers_without_the_node_and_75_stays_suspect() -> None:
    state = resume(gradient()).state()
    (incident,) = state.incidents
    assert (incident.state, incident.recovered_by) == ("recovered", 2)
    assert trusts(state)[1, 75] == "suspect"
    assert {trust for (attempt, _), trust in trusts(state).items() if attempt == 2} == {"trusted"}
    assert last_good(state) == (2, 150, "trusted")
    assert incident.resume is not None
    assert (incident.resume.step, incident.cost.steps, incident.cost.rising) == (50, 50, False)


def nan() -> History:
    history = demo().audit(67, phase="immediate", failed=[3])
    history.find("finite", 67, [3], phase="local", contained=True).find("replay", 67, [3], phase="immediate")
    both = ("finite", 67, "local"), ("replay", 67, "immediate")
    return history.rule("attributed", *both, accused=[3], nature="transient", resume=AT_50).end(67)


def test_nan_is_one_incident_whose_window_is_that_of_the_immediate_replay() -> None:
    state = nan().state()
    (incident,) = state.incidents
    assert (incident.status, accused(incident), incident.check) == ("attributed", ["node-b"], "finite")
    assert window(incident) == (1, 50, 1, 67, False)
    assert incident.covered == ()
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "trusted"}
    assert last_good(state) == (1, 50, "trusted")
    assert resume(nan()).incident().state == "recovered"


def test_reduce_all_is_confirmed_and_contained_and_the_same_nodes_recover() -> None:
    history = demo().find("conservation", 67, phase="reduce", contained=True)
    history.rule("confirmed", ("conservation", 67, "reduce"), scope="job", resume=AT_50).end(67)
    incident = history.incident()
    assert (incident.status, incident.scope, incident.suspects) == ("confirmed", "job", ())
    assert window(incident) == (1, 66, 1, 67, True)
    assert (incident.covered, incident.state) == ((), "open")
    again = resume(history, ("node-a", "node-b", "node-c"))
    assert (again.incident().state, again.incident().recovered_by) == ("recovered", 2)
    assert set(trusts(again.state()).values()) == {"trusted"}


def test_reduce_one_is_attributed_and_contained() -> None:
    history = demo().find("conservation", 67, [3], phase="reduce", contained=True)
    history.rule("attributed", ("conservation", 67, "reduce"), accused=[3], nature="transient", resume=AT_50).end(67)
    incident = history.incident()
    assert (incident.status, accused(incident), window(incident)) == ("attributed", ["node-b"], (1, 66, 1, 67, True))
    assert (incident.covered, resume(history).incident().state) == ((), "recovered")


@pytest.mark.parametrize("tensor", ["blocks.0.mlp.weight", "blocks.0.mlp.weight/exp_avg"])
def test_a_flipped_weight_or_optimizer_state_is_found_at_the_save_and_the_save_is_refused(tensor: str) -> None:
    history = demo().audit(75, check="replica", phase="save", failed=[3])
    history.find("replica", 75, [3], phase="save", tensor=tensor)
    history.rule("attributed", ("replica", 75, "save"), accused=[3], resume=AT_50).refuse(75, replica="failed").end(75)
    state = history.state()
    (incident,) = state.incidents
    assert (incident.status, accused(incident), window(incident)) == ("attributed", ["node-b"], (1, 50, 1, 75, False))
    assert incident.findings[0].tensor == tensor
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "trusted"}
    assert [(s.step, s.reason) for s in state.failed_saves] == [(75, "integrity")]
    assert resume(history).incident().state == "recovered"


def test_data_is_cleared_by_the_immediate_replay_and_the_run_goes_on() -> None:
    history = demo().find("finite", 67, [0, 1, 2, 3, 4, 5], phase="loss", contained=True)
    history.rule("cleared", ("finite", 67, "loss"), scope="job", action="skip")
    history.save(75).audit(100).save(100).save(125).audit(150).save(150).end(150, "completed")
    state = history.state()
    (incident,) = state.incidents
    assert (incident.status, incident.state, incident.closed_by) == ("cleared", "closed", "cleared")
    assert (window(incident), incident.covered, incident.resume) == ((1, 66, 1, 67, True), (), None)
    assert set(trusts(state).values()) == {"trusted"}
    assert (incident.cost.steps, incident.cost.rising) == (1, False)


def test_gradient_with_two_nodes_is_undecided_and_stays_open() -> None:
    history = demo(75, nodes=("node-a", "node-b")).audit(100, failed=[1, 3]).find("replay", 100, [1, 3])
    history.rule("undecided", ("replay", 100, "audit"), candidates=[1, 3], resume=AT_50).end(100)
    state = history.state()
    (incident,) = state.incidents
    assert (incident.status, incident.state, accused(incident)) == ("undecided", "open", [])
    assert [(s.rank, s.role) for s in incident.suspects] == [(1, "candidate"), (3, "candidate")]
    assert window(incident) == (1, 50, 1, 100, False)
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "trusted", (1, 75): "suspect"}
    assert "Which of the 2 candidates it was." in incident.unknown


def test_a_clean_run_has_no_incident_and_trusts_everything() -> None:
    state = demo(150).end(150, "completed").state()
    assert (state.incidents, last_good(state)) == ((), (1, 150, "trusted"))
    assert set(trusts(state).values()) == {"trusted"}


def test_with_probes_the_gradient_fault_is_refused_at_75_and_nothing_is_suspect() -> None:
    history = History().start().save(0).audit(1, phase="first").save(25, probe=True).audit(50).save(50, probe=True)
    history.audit(75, check="replica", phase="save").audit(75, phase="probe", failed=[3])
    history.find("replay", 75, [3], phase="probe").rule("attributed", ("replay", 75, "probe"), accused=[3])
    state = history.refuse(75, replica="passed", replay="failed").end(75).state()
    assert window(state.incidents[0]) == (1, 50, 1, 75, False)
    assert set(trusts(state).values()) == {"trusted"}
    assert state.incidents[0].covered == ()


def test_with_replay_off_a_nan_is_suspicious_and_last_good_is_50_unverified() -> None:
    history = demo(not_run=REPLAY_OFF).find("finite", 67, [3], phase="local", contained=True)
    history.rule("suspicious", ("finite", 67, "local"), action="skip")
    state = history.state()
    (incident,) = state.incidents
    assert (incident.status, accused(incident), incident.covered) == ("suspicious", [], ())
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "unverified", (1, 50): "unverified"}
    assert last_good(state) == (1, 50, "unverified")
    assert "Replay did not run: switched off." in state.last_good.reason
    assert any("replay did not run (switched off)" in sentence for sentence in incident.unknown)
    later = history.save(75).state()
    assert (later.incidents[0].state, later.incidents[0].recovered_by) == ("recovered", 1)


# --- the scenarios ---------------------------------------------------------------------------------------------------


def test_nan_with_a_save_since_the_last_replay_and_no_probe_makes_that_save_suspect() -> None:
    history = demo().save(60).audit(67, phase="immediate", failed=[3])
    history.find("finite", 67, [3], phase="local", contained=True).find("replay", 67, [3], phase="immediate")
    both = ("finite", 67, "local"), ("replay", 67, "immediate")
    state = history.rule("attributed", *both, accused=[3], nature="transient").end(67).state()
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "trusted", (1, 60): "suspect"}
    assert last_good(state) == (1, 50, "trusted")
    assert state.incidents[0].resume == state.last_good


def test_a_permanent_fault_between_audits_at_200_and_400() -> None:
    history = History().start().save(0).audit(1, phase="first").save(100).audit(200).save(200).save(300)
    history.audit(400, failed=[2]).find("replay", 400, [2]).rule("attributed", ("replay", 400, "audit"), accused=[2])
    state = history.end(400).state()
    assert window(state.incidents[0]) == (1, 200, 1, 400, False)
    assert trusts(state) == {(1, 0): "trusted", (1, 100): "trusted", (1, 200): "trusted", (1, 300): "suspect"}
    assert last_good(state) == (1, 200, "trusted")


def test_an_arbiter_that_lies_leaves_it_undecided_and_the_window_at_its_widest() -> None:
    history = demo().audit(60, failed=[], not_run=[5]).save(60).audit(100, failed=[3, 5])
    history.find("replay", 100, [3, 5]).rule("undecided", ("replay", 100, "audit"), candidates=[3, 5])
    state = history.end(100).state()
    assert window(state.incidents[0]) == (1, 50, 1, 100, False)
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "trusted", (1, 60): "suspect"}


def test_a_fault_from_step_1_leaves_the_step_0_checkpoint() -> None:
    history = History().start().save(0).audit(1, phase="first", failed=[3]).save(1)
    history.find("replay", 1, [3], phase="first").rule("attributed", ("replay", 1, "first"), accused=[3])
    state = history.end(1).state()
    assert window(state.incidents[0]) == (1, 0, 1, 1, False)
    assert trusts(state) == {(1, 0): "trusted", (1, 1): "suspect"}
    assert last_good(state) == (1, 0, "trusted")


def test_a_save_at_a_skipped_step_is_clean() -> None:
    history = demo().find("finite", 75, [3], phase="local", contained=True)
    history.rule("cleared", ("finite", 75, "local"), action="skip").save(75).audit(100)
    assert set(trusts(history.state()).values()) == {"trusted"}
    assert last_good(history.state()) == (1, 75, "trusted")


def test_a_restart_from_inside_a_window_is_suspect_for_ever() -> None:
    history = gradient().start(75, (1, 75, "checkpoints/a1-step-000075"), nodes=SPARE).audit(76, phase="first")
    history.save(100).audit(100).save(125).audit(150).save(150).end(150, "completed")
    state = history.state()
    assert {t for (attempt, _), t in trusts(state).items() if attempt == 2} == {"suspect"}
    assert last_good(state) == (1, 50, "trusted")
    assert state.incidents[0].state == "open"
    history.start(150, (2, 150, "checkpoints/a2-step-000150"), nodes=SPARE).audit(151, phase="first").save(175)
    assert trusts(history.state())[3, 175] == "suspect"


def test_findings_on_two_ranks_with_windows_apart_are_two_incidents() -> None:
    history = demo(75).find("finite", 10, [1], phase="local", contained=True)
    history.rule("suspicious", ("finite", 10, "local"), action="skip").audit(100, failed=[3]).find("replay", 100, [3])
    state = history.rule("attributed", ("replay", 100, "audit"), accused=[3]).end(100).state()
    assert [(i.check, i.step, i.status) for i in state.incidents] == [
        ("replay", 100, "attributed"),
        ("finite", 10, "suspicious"),
    ]
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "trusted", (1, 75): "suspect"}


def test_two_findings_on_different_ranks_with_overlapping_windows_are_one_incident() -> None:
    history = demo().audit(75, check="replica", phase="save", failed=[1]).find("replica", 75, [1], phase="save")
    history.rule("attributed", ("replica", 75, "save"), accused=[1], action="record")
    history.audit(100, failed=[3]).find("replay", 100, [3]).rule("attributed", ("replay", 100, "audit"), accused=[3])
    incident = history.incident()
    assert ([s.rank for s in incident.suspects], incident.scope) == ([1, 3], "group")
    assert window(incident) == (1, 50, 1, 100, False)


def test_a_check_that_is_switched_off_is_named_and_widens_nothing() -> None:
    history = History().start(not_run={"conservation": "switched off"}).save(0).audit(1, phase="first")
    history.save(25, checks={"finite": "passed", "replica": "passed", "conservation": "not_run"}).audit(50)
    state = history.state()
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "trusted"}
    assert state.last_good.reason == (
        "All 6 devices passed a replay at step 50. Conservation did not run (switched off)."
    )


def test_finite_under_record_with_replay_off_leaves_the_newest_unverified_before_it() -> None:
    history = demo(not_run=REPLAY_OFF).find("finite", 67, [3], phase="local")
    history.rule("suspicious", ("finite", 67, "local"), action="record").save(75).save(100)
    state = history.state()
    assert window(state.incidents[0]) == (1, 66, 1, 67, False)
    assert trusts(state) == {
        (1, 0): "trusted",
        (1, 25): "unverified",
        (1, 50): "unverified",
        (1, 75): "suspect",
        (1, 100): "suspect",
    }
    assert last_good(state) == (1, 50, "unverified")
    assert state.incidents[0].resume == state.last_good


def test_a_resume_without_a_known_parent_is_unverified_at_best() -> None:
    history = demo(50).end(50, "completed").start(60, known=False, verified=False).audit(61, phase="first")
    state = history.save(75).audit(100).save(100).state()
    assert trusts(state) == {
        (1, 0): "trusted",
        (1, 25): "trusted",
        (1, 50): "trusted",
        (2, 75): "unverified",
        (2, 100): "unverified",
    }
    assert last_good(state) == (1, 50, "trusted")


def test_a_resume_without_a_known_parent_is_covered_by_every_open_window() -> None:
    history = gradient().start(60, known=False, verified=False, nodes=SPARE).audit(61, phase="first")
    state = history.save(75).audit(100).state()
    assert trusts(state)[2, 75] == "suspect"
    assert state.incidents[0].state == "open"


def test_a_persons_word_makes_an_unknown_parent_acceptable() -> None:
    history = gradient().start(60, known=False, verified=False, nodes=SPARE).audit(61, phase="first")
    history.save(75).audit(100).act("accept_checkpoint", attempt=2, step=60, path="/else/step-60", by="mira")
    assert trusts(history.state())[2, 75] == "trusted"


def test_a_path_saved_twice_loses_the_older_checkpoint() -> None:
    history = History().start().save(0).audit(1, phase="first").save(25, "latest").audit(50).save(50, "latest")
    state = history.audit(100).state()
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "missing", (1, 50): "trusted"}
    assert state.checkpoints[1].reason == "Overwritten by step 50 of attempt 1."
    assert last_good(state) == (1, 50, "trusted")


def test_a_path_overwritten_by_a_suspect_save_is_not_last_good() -> None:
    history = History().start().save(0).audit(1, phase="first").save(25, "latest").audit(50).save(75, "latest")
    history.audit(100, failed=[3]).find("replay", 100, [3]).rule("attributed", ("replay", 100, "audit"), accused=[3])
    state = history.state()
    assert trusts(state) == {(1, 0): "trusted", (1, 25): "missing", (1, 75): "suspect"}
    assert last_good(state) == (1, 0, "trusted")


@pytest.mark.parametrize(("nodes", "others"), [(("node-a", "node-b"), False), (("node-a", "node-b", "node-c"), True)])
def test_an_incident_knows_whether_its_suspects_are_on_all_nodes(nodes: tuple[str, ...], others: bool) -> None:
    history = demo(75, nodes=nodes).audit(100, failed=[1, 3]).find("replay", 100, [1, 3])
    incident = history.rule("undecided", ("replay", 100, "audit"), candidates=[1, 3], resume=AT_50).incident()
    assert incident.other_nodes is others


# --- without a save of step 0 ----------------------------------------------------------------------------------------


def first_saved_at_10(**start: object) -> History:
    """A run whose first checkpoint is that of step 10."""
    return History().start(**start).audit(1, phase="first").save(10)  # type: ignore[arg-type]


def test_a_run_that_began_from_nothing_needs_no_checkpoint_of_step_0_to_be_trusted() -> None:
    history = first_saved_at_10()
    assert trusts(history.state()) == {(1, 10): "unverified"}
    assert history.state().checkpoints[0].reason == "No device has passed a replay at or after step 10 yet."
    state = history.save(20).audit(20).save(30).state()
    assert trusts(state) == {(1, 10): "trusted", (1, 20): "trusted", (1, 30): "unverified"}
    assert last_good(state) == (1, 20, "trusted")


def test_later_attempts_inherit_the_trust_of_a_run_that_began_from_nothing() -> None:
    history = first_saved_at_10().audit(20).end(20, "exception")
    state = history.start(10, (1, 10, "checkpoints/a1-step-000010")).save(20).audit(20).state()
    assert trusts(state) == {(1, 10): "trusted", (2, 20): "trusted"}


def test_a_first_save_inside_a_window_is_suspect_though_the_run_began_from_nothing() -> None:
    state = first_saved_at_10().save(20).audit(20, failed=[3]).find("replay", 20, [3]).state()
    assert trusts(state) == {(1, 10): "suspect", (1, 20): "suspect"}
    assert not state.last_good.exists


@pytest.mark.parametrize(
    "start",
    [
        {"from_step": 5, "known": False},
        {"known": False},
        {"from_step": 5, "parent": (7, 5, "another-run/step-5"), "known": False},
        {"from_step": 5, "parent": (1, 5, "not-in-the-journal"), "known": True},
    ],
)
def test_a_first_save_after_an_unknown_parent_stays_unverified(start: dict[str, object]) -> None:
    state = first_saved_at_10(**start).save(20).audit(20).state()
    assert trusts(state) == {(1, 10): "unverified", (1, 20): "unverified"}
