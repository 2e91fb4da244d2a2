"""How far a checkpoint can be trusted: the order of reasons, inheritance, devices, and a person's word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.exporter.histories import History, trusts
from tests.exporter.test_lineage import Step, attempt, restarts

from lastgood.lineage import unknown_root
from lastgood.state import Attempt, Point, Window
from lastgood.trust import covered


def audited(*steps: int, **start: object) -> History:
    history = History().start(**start).save(0).audit(1, phase="first")  # type: ignore[arg-type]
    for step in steps:
        history.save(step).audit(step)
    return history


def reason(history: History, step: int, attempt: int = 1) -> str:
    (found,) = [c.reason for c in history.state().checkpoints if (c.attempt, c.step) == (attempt, step)]
    return found


# --- covered ---------------------------------------------------------------------------------------------------------


@given(restarts(), st.data())
def test_a_point_is_covered_iff_its_lineage_holds_a_step_of_the_window_or_later(
    drawn: tuple[dict[int, Attempt], dict[int, tuple[Step, ...]], set[int]], data: st.DataObject
) -> None:
    attempts, begins, unknown = drawn
    where = data.draw(st.sampled_from(sorted(attempts)))
    start = attempts[where].from_step + data.draw(st.integers(0, 5))
    window = Window(where, start, where, start + 3, False, "")
    for number, one in attempts.items():
        end = one.from_step + data.draw(st.integers(0, 5))
        went = begins[number] + tuple((number, s) for s in range(one.from_step + 1, end + 1))
        inherited = any(a == where and s > start for a, s in went)
        root = unknown_root(attempts, number)
        hidden = number in unknown and root is not None and where < root
        assert covered(attempts, window, Point(number, end)) == (inherited or hidden)


def test_a_contained_window_covers_nothing() -> None:
    attempts = {1: attempt(1)}
    assert not covered(attempts, Window(1, 66, 1, 67, True, ""), Point(1, 100))
    assert covered(attempts, Window(1, 66, 1, 67, False, ""), Point(1, 67))
    assert not covered(attempts, Window(1, 66, 1, 67, False, ""), Point(1, 66))


def test_an_attempt_that_resumed_at_the_windows_start_is_not_covered() -> None:
    attempts = {1: attempt(1), 2: attempt(2, 50, (1, 50)), 3: attempt(3, 51, (1, 51))}
    window = Window(1, 50, 1, 100, False, "")
    assert [covered(attempts, window, Point(n, 200)) for n in (1, 2, 3)] == [True, False, True]


# --- first match -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["missing", "unreadable"])
def test_what_is_on_disk_comes_before_everything_else(found: str) -> None:
    history = audited(25, 50)
    state = history.state(present={history.path(25): found})
    assert trusts(state) == {(1, 0): "trusted", (1, 25): found, (1, 50): "trusted"}


def test_a_failed_save_check_taints_and_comes_before_suspect() -> None:
    history = audited(25).save(50, checks={"replica": "failed"}).audit(75, failed=[3]).find("replay", 75, [3])
    assert trusts(history.state()) == {(1, 0): "trusted", (1, 25): "trusted", (1, 50): "tainted"}
    assert reason(history, 50) == "Its save check failed: replica."
    assert history.state().checkpoints[2].covered_by


def test_a_load_that_found_other_bytes_taints_and_names_it() -> None:
    history = audited(25, 50).start(50, (1, 50, "checkpoints/a1-step-000050"))
    history.write("checkpoint.loaded", path="checkpoints/a1-step-000050", step=50, checks={"fingerprint": "failed"})
    assert trusts(history.state())[1, 50] == "tainted"
    assert history.state().last_good.step == 25


def test_children_of_a_tainted_checkpoint_are_not_trusted() -> None:
    history = audited(25).save(50, checks={"replica": "failed"}).audit(50).save(75).audit(75)
    assert trusts(history.state())[1, 75] == "unverified"
    assert reason(history, 75) == "It descends from step 50 of attempt 1, which is tainted."


def test_a_parent_that_was_rotated_away_keeps_its_children_trusted() -> None:
    history = audited(25, 50, 75)
    gone = {history.path(step): "missing" for step in (0, 25, 50)}
    assert trusts(history.state(gone)) == {
        (1, 0): "missing",
        (1, 25): "missing",
        (1, 50): "missing",
        (1, 75): "trusted",
    }


# --- replay passes ---------------------------------------------------------------------------------------------------


def test_without_a_later_replay_a_save_is_unverified() -> None:
    history = audited(25).save(30)
    assert trusts(history.state())[1, 30] == "unverified"
    assert reason(history, 30) == "No device has passed a replay at or after step 30 yet."


def test_every_device_has_to_pass_and_the_missing_one_is_named() -> None:
    history = History().start().save(0).save(25).audit(50, not_run=[3])
    assert trusts(history.state())[1, 25] == "unverified"
    assert reason(history, 25) == ("1 of 6 devices have not passed a replay at or after step 25: node-b GPU-node-b-1.")


def test_devices_may_pass_in_different_rounds_and_attempts() -> None:
    history = audited(25).save(50).audit(60, not_run=[3]).end(70, "signal")
    assert trusts(history.state())[1, 50] == "unverified"
    history.start(50, (1, 50, "checkpoints/a1-step-000050")).audit(51, phase="first", not_run=[0])
    assert trusts(history.state())[1, 50] == "trusted"
    assert reason(history, 50) == "All 6 devices passed a replay at or after step 50, not all in the same round."


def test_a_device_that_never_came_back_leaves_its_last_saves_unverified() -> None:
    history = audited(25).save(50).end(60, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050"), nodes=("node-a", "node-d", "node-c")).audit(51).save(75)
    history.audit(100)
    assert trusts(history.state()) == {
        (1, 0): "trusted",
        (1, 25): "trusted",
        (1, 50): "unverified",
        (2, 75): "unverified",
    }
    assert reason(history, 75, 2) == "It descends from step 50 of attempt 1, which is unverified."


def test_a_pass_of_the_same_rank_on_another_device_does_not_count() -> None:
    history = audited(25).save(50).audit(60, not_run=[3]).end(70, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050"), nodes=("node-a", "node-d", "node-c")).audit(51)
    assert trusts(history.state())[1, 50] == "unverified"


def test_a_round_that_did_not_run_is_never_a_pass() -> None:
    history = History().start().save(0).save(25).audit(50, result="not_run")
    assert trusts(history.state())[1, 25] == "unverified"


def test_without_a_topology_only_a_round_that_everyone_passed_counts() -> None:
    history = History().start(topology=False).save(0).save(25).audit(50).save(75).audit(100, not_run=[0])
    assert trusts(history.state()) == {(1, 0): "trusted", (1, 25): "trusted", (1, 75): "unverified"}


# --- people, and devices that were accused twice ---------------------------------------------------------------------


def test_a_person_can_vouch_for_an_unverified_parent() -> None:
    history = audited(25).save(50).end(60, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050"), nodes=("node-a", "node-d", "node-c")).audit(51).save(75)
    history.audit(100).act("accept_checkpoint", attempt=1, step=50, path="checkpoints/a1-step-000050", by="mira")
    assert trusts(history.state())[1, 50] == "unverified"
    assert reason(history, 50).endswith("Accepted by mira.")
    assert trusts(history.state())[2, 75] == "trusted"


def test_a_load_that_was_not_verified_is_unverified_at_best() -> None:
    history = audited(25, 50).start(50, (1, 50, "checkpoints/a1-step-000050"), verified=False).audit(51).save(75)
    assert trusts(history.audit(100).state())[2, 75] == "unverified"
    assert reason(history, 75, 2) == "The bytes loaded from step 50 of attempt 1 were not verified."


def test_a_second_accusation_demotes_every_checkpoint_since_the_device_joined() -> None:
    spare = ("node-a", "node-d", "node-c")
    history = History().start(nodes=spare).save(0).audit(1).save(25).audit(25)
    history.start(25, (1, 25, "checkpoints/a1-step-000025")).audit(26).save(50).audit(50).audit(75, failed=[3])
    history.find("replay", 75, [3]).rule("attributed", ("replay", 75, "audit"), accused=[3], action="record")
    assert trusts(history.state()) == {(1, 0): "trusted", (1, 25): "trusted", (2, 50): "trusted"}
    history.audit(100, failed=[3]).find("replay", 100, [3])
    history.rule("attributed", ("replay", 100, "audit"), accused=[3])
    assert trusts(history.state()) == {(1, 0): "trusted", (1, 25): "trusted", (2, 50): "unverified"}
    assert reason(history, 50, 2) == "A device that ran since was accused twice in this run."
    assert history.state().last_good.step == 25


def test_a_person_can_vouch_for_a_parent_of_the_same_attempt() -> None:
    history = audited(25).save(50).end(60, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050"), nodes=("node-a", "node-d", "node-c")).audit(51).save(75)
    history.save(100).audit(100).act("accept_checkpoint", attempt=2, step=75, path=history.path(75), by="mira")
    assert (trusts(history.state())[2, 75], trusts(history.state())[2, 100]) == ("unverified", "trusted")


def test_a_load_that_found_other_bytes_says_nothing_about_what_is_saved_there_later() -> None:
    history = audited(25).write("checkpoint.loaded", path="latest", step=50, checks={"fingerprint": "failed"})
    assert trusts(history.save(50, "latest").audit(50).state())[1, 50] == "trusted"


def test_the_work_of_a_device_that_was_accused_twice_is_inherited() -> None:
    history = audited(25).save(50).audit(50).audit(75, failed=[3]).find("replay", 75, [3])
    history.rule("attributed", ("replay", 75, "audit"), accused=[3], action="record").audit(100, failed=[3])
    history.find("replay", 100, [3]).rule("attributed", ("replay", 100, "audit"), accused=[3]).end(100)
    history.start(25, (1, 25, "checkpoints/a1-step-000025"), nodes=("node-a", "node-d", "node-c")).audit(26).save(30)
    assert trusts(history.audit(30).state())[2, 30] == "unverified"
    assert reason(history, 30, 2) == "A device that ran since was accused twice in this run."


def test_two_saves_of_one_step_have_the_same_parent() -> None:
    history = audited(25).save(50, "first").save(50, "second").audit(50)
    parents = {c.path: c.parent for c in history.state().checkpoints}
    assert parents["first"] == parents["second"]
    assert parents["first"] is not None
    assert parents["first"].step == 25
    assert set(trusts(history.state()).values()) == {"trusted"}


# --- last good -------------------------------------------------------------------------------------------------------


def test_newest_follows_the_newest_lineage_before_a_higher_step_that_was_left_behind() -> None:
    history = audited(25, 50, 75, 100).end(100, "signal").start(50, (1, 50, "checkpoints/a1-step-000050"))
    assert (history.state().last_good.attempt, history.state().last_good.step) == (1, 50)
    history.audit(51).save(60).audit(60)
    assert (history.state().last_good.attempt, history.state().last_good.step) == (2, 60)


def test_a_trusted_checkpoint_of_another_branch_comes_before_an_unverified_one() -> None:
    history = audited(25, 50).end(50, "completed").start(0).save(10)
    assert history.state().last_good.step == 50


def test_an_unverified_checkpoint_comes_before_step_0() -> None:
    history = History().start(not_run={"replay": "one rank"}, nodes=("node-a",), per_node=1).save(0).save(25)
    good = history.state().last_good
    assert (good.step, good.trust) == (25, "unverified")
    assert good.reason == (
        "No checkpoint after step 0 is trusted. Step 25 is the newest save outside every window. "
        "Replay did not run: one rank."
    )


def test_a_run_that_began_from_nothing_and_saved_nothing_begins_again() -> None:
    good = History().start().state().last_good
    assert (good.step, good.path, good.exists, good.from_the_start) == (-1, "", False, True)
    assert good.reason == "Nothing saved yet. Resume is possible from step 0 only."


@pytest.mark.parametrize("known", [True, False])
def test_a_run_that_saved_nothing_goes_back_to_the_checkpoint_it_began_from(known: bool) -> None:
    """Of another run, so its parent is no checkpoint of this one; the journal has where it was loaded from."""
    history = History().start(5000, (1, 5000, "/other/ckpt") if known else None, known=known, verified=known)
    history.write("checkpoint.loaded", attempt=0, step=5000, path="/other/ckpt", checks={"fingerprint": "not_run"})
    good = history.audit(5001, phase="first").state().last_good
    assert (good.step, good.path, good.trust) == (5000, "/other/ckpt", "unverified")
    assert good.reason == (
        "Nothing saved yet. Attempt 1 began from step 5000; whether that is good was not checked in this run."
    )
    history.audit(5100, failed=[3]).find("replay", 5100, [3]).rule("attributed", ("replay", 5100, "audit"), accused=[3])
    (incident,) = history.end(5100).state().incidents
    assert incident.resume is not None
    assert (incident.resume.step, incident.resume.path, incident.cost.steps) == (5000, "/other/ckpt", 100)


def test_a_beginning_whose_path_nobody_wrote_down_is_a_step_without_a_path() -> None:
    good = History().start(5000, known=False, verified=False).state().last_good
    assert (good.step, good.path, good.path_known) == (5000, "", False)
    assert "Attempt 1 began from step 5000, whose path is not known here;" in good.reason


def test_a_beginning_that_an_open_window_may_reach_is_none_to_go_back_to() -> None:
    history = History().start().audit(1, phase="first").audit(100, failed=[3]).find("replay", 100, [3])
    history.rule("attributed", ("replay", 100, "audit"), accused=[3]).end(100)
    good = history.start(60, known=False, verified=False).state().last_good
    assert (good.exists, good.from_the_start) == (False, False)
    assert good.reason == (
        "Nothing saved yet, and what attempt 2 began from may be damaged: where it came from is not known."
    )


def test_of_an_attempt_whose_start_cannot_be_read_nobody_knows_what_it_began_from() -> None:
    history = History().start().audit(1, phase="first")
    history.events = history.events[1:]
    good = history.state().last_good
    assert (good.exists, good.from_the_start) == (False, False)
    assert good.reason == "Nothing saved yet. What attempt 1 began from is not known."


def test_nobody_can_vouch_for_bytes_that_are_known_to_be_bad() -> None:
    history = audited(25).save(50).end(60, "signal")
    history.start(50, (1, 50, "checkpoints/a1-step-000050"), nodes=("node-a", "node-d", "node-c")).audit(51).save(75)
    history.audit(100).act("accept", attempt=1, step=50, path="checkpoints/a1-step-000050", author="mira")
    assert trusts(history.state())[2, 75] == "trusted"
    history.write("checkpoint.loaded", path="checkpoints/a1-step-000050", step=50, checks={"fingerprint": "failed"})
    assert reason(history, 75, 2) == "It descends from step 50 of attempt 1, which is tainted."


def test_a_word_for_a_checkpoint_says_nothing_about_an_unknown_one_of_the_same_step() -> None:
    history = audited(25).save(50).end(60, "signal")
    history.act("accept", attempt=1, step=50, path="checkpoints/a1-step-000050", author="mira")
    history.start(50, known=False, verified=False).audit(51).save(75).audit(100)
    assert reason(history, 75, 2) == "It descends from a checkpoint that lastgood does not know."
    history.act("accept", attempt=2, step=50, path="", author="mira")
    assert trusts(history.state())[2, 75] == "trusted"
