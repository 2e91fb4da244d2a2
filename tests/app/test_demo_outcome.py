"""What each row of the demo must come out as, and that a demo which does not is called so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.events import Event
from lastgood.state import (
    Attempt,
    Checkpoint,
    Cost,
    FailedSave,
    Finding,
    Incident,
    LastGood,
    Place,
    RunState,
    Suspect,
    Window,
)
from lastgood_console.demo.expected import Expected, Schedule, expect
from lastgood_console.demo.options import Options
from lastgood_console.demo.outcome import complaints, exit_code

AT = "2026-11-29T02:58:02.000000Z"
COST = Cost(steps=50, seconds=5.0, device_hours=0.01, rising=False)


# --- the rules -------------------------------------------------------------------------------------------------------


def found(**options: Any) -> Expected:
    expected = expect(Options(run_dir=Path("x"), **options))
    assert expected is not None
    return expected


def test_the_gradient_row_is_the_table_s() -> None:
    row = found(fault="gradient")
    assert (row.check, row.step, row.status, row.window) == ("replay", 100, "attributed", (50, 100))
    assert (row.accused, row.suspect, row.resume, row.end) == (frozenset({3}), (75,), 50, "recovered")


def test_the_nan_row_is_the_table_s() -> None:
    row = found(fault="nan")
    assert (row.check, row.step, row.status, row.window) == ("finite", 67, "attributed", (50, 67))
    assert (row.suspect, row.resume, row.end) == ((), 50, "recovered")


def test_the_reduce_rows_are_the_table_s() -> None:
    everyone, one = found(fault="reduce-all"), found(fault="reduce-one")
    assert (everyone.status, everyone.accused, everyone.contained) == ("confirmed", frozenset(), True)
    assert (one.status, one.accused, one.contained) == ("attributed", frozenset({3}), True)
    assert (everyone.step, everyone.resume, everyone.end) == (one.step, one.resume, one.end) == (67, 50, "recovered")


@pytest.mark.parametrize("fault", ["weight", "optimizer"])
def test_the_flip_rows_are_the_table_s(fault: str) -> None:
    row = found(fault=fault)
    assert (row.check, row.step, row.window, row.refused) == ("replica", 75, (50, 75), 75)
    assert (row.status, row.suspect, row.resume, row.end) == ("attributed", (), 50, "recovered")


def test_the_data_row_is_the_table_s() -> None:
    row = found(fault="data")
    assert (row.check, row.step, row.status, row.contained, row.end) == ("finite", 67, "cleared", True, "closed")


def test_two_nodes_cannot_settle_a_gradient() -> None:
    row = found(fault="gradient", nodes=2)
    assert (row.status, row.candidates, row.window) == ("undecided", frozenset({1, 3}), (50, 100))
    assert (row.suspect, row.end) == ((75,), "open")


def test_three_single_ranks_settle_it() -> None:
    assert found(fault="gradient", ranks_per_node=1, rank=1).accused == frozenset({1})


def test_two_replicas_cannot_outvote_each_other() -> None:
    row = found(fault="weight", nodes=2, ranks_per_node=1, rank=1)
    assert (row.status, row.candidates, row.end) == ("undecided", frozenset({0, 1}), "open")


def test_probes_find_the_gradient_at_the_next_save() -> None:
    row = found(fault="gradient", save_probe=True)
    assert (row.step, row.window, row.refused, row.suspect, row.resume) == (75, (50, 75), 75, (), 50)


@pytest.mark.parametrize("fault", ["gradient", "none"])
def test_without_replay_nothing_is_found(fault: str) -> None:
    assert expect(Options(fault=fault, replay=False)) is None


@pytest.mark.parametrize("fault", ["nan", "data"])
def test_without_replay_a_nan_stays_suspicious(fault: str) -> None:
    row = found(fault=fault, replay=False)
    assert (row.status, row.contained, row.resume) == ("suspicious", True, 50)
    assert (row.end, row.relaunches) == ("recovered", False)


@pytest.mark.parametrize(
    ("fault", "step", "found_at", "window", "resume", "suspect"),
    [
        ("gradient", 1, 1, (0, 1), 0, ()),  # the first step is audited
        ("gradient", 30, 50, (25, 50), 0, ()),  # attempt 2 computes the same save 25: it was good
        ("gradient", 60, 100, (50, 100), 50, (75,)),
        ("gradient", 80, 100, (75, 100), 50, ()),
        ("gradient", 150, 150, (125, 150), 100, ()),
        ("nan", 80, 80, (75, 80), 50, ()),
        ("nan", 50, 50, (25, 50), 0, ()),  # the step's own check comes before the audit
        ("weight", 75, 75, (50, 75), 50, ()),  # flipped just before its save
        ("weight", 49, 50, (25, 49), 25, ()),  # found in the loop; nothing after step 0 was audited afterwards
        ("weight", 90, 100, (75, 99), 50, ()),
        ("weight", 150, 150, (125, 150), 125, ()),  # at a save, only a save's comparison proves the whole state
        ("optimizer", 49, 50, (25, 50), 25, ()),  # the loop reads weights only, the audit of step 50 had passed
        ("optimizer", 48, 50, (25, 49), 25, ()),  # one update later the weights differ too
    ],
)
def test_other_steps_follow_by_the_same_rules(
    fault: str, step: int, found_at: int, window: tuple[int, int], resume: int, suspect: tuple[int, ...]
) -> None:
    row = found(fault=fault, step=step)
    assert (row.step, row.window, row.resume, row.suspect) == (found_at, window, resume, suspect)


def test_a_shorter_schedule_follows_the_same_rules() -> None:
    row = found(fault="gradient", step=27, steps=60, save_every=10, audit_every=20)
    assert (row.step, row.window, row.resume, row.suspect) == (40, (20, 40), 20, (30,))


def test_without_a_second_attempt_no_window_is_narrowed() -> None:
    row = found(fault="gradient", step=80, nodes=2)
    assert (row.window, row.suspect) == ((50, 100), (75,))


@pytest.mark.parametrize("step", [1, 24, 25, 26, 49, 50, 51, 67, 75, 99, 100, 101, 149, 150])
@pytest.mark.parametrize("fault", ["gradient", "nan", "weight", "optimizer"])
@pytest.mark.parametrize("probes", [False, True])
def test_every_window_contains_its_onset_and_never_the_resume_step(fault: str, step: int, probes: bool) -> None:
    row = found(fault=fault, step=step, save_probe=probes)
    assert row.window is not None
    assert row.resume is not None
    start, end = row.window
    assert row.resume <= start < step <= end <= row.step
    assert row.resume in Schedule(Options()).saves()


# --- the judgement ---------------------------------------------------------------------------------------------------


def place(rank: int, node: str) -> Place:
    return Place(rank, node, f"cpu-{rank % 2}", rank % 2)


def attempt(number: int, nodes: str, from_step: int, last_step: int, reason: str) -> Attempt:
    places = tuple(place(rank, f"node-{nodes[rank // 2]}") for rank in range(6))
    return Attempt(number, 6, places, None, True, True, from_step, AT, AT, last_step, AT, AT, reason, 0)


def save(number: int, step: int, trust: Any = "trusted") -> Checkpoint:
    path = f"checkpoints/a{number}-step-{step:06}"
    return Checkpoint(number, step, path, AT, None, True, 1, 0.1, 0.1, "f" * 32, {}, trust)


def injection(step: int = 67, rank: int = 3, tensor: str = "head.weight") -> Event:
    data = {"site": "gradient", "fault": "scale", "step": step, "rank": rank, "tensor": tensor, "permanent": True}
    return Event("i-1", "/lastgood/demo/1/rank/3", "injection", AT, "demo", 1, data, rank=rank, step=step)


def gradient_incident() -> Incident:
    finding = Finding("f-1", "replay", 1, 100, 100, "audit", False, (3,), (), None, None, "aa", "bb", ())
    return Incident(
        id="r-1", aliases=(), run="demo", state="recovered", status="attributed", scope="gpu",
        suspects=(Suspect(3, "node-b", "cpu-1", 1, "accused"),), nature="persistent", confidence="exact",
        check="replay", attempt=1, step=100, findings=(finding,), verdicts=(),
        window=Window(1, 50, 1, 100, False, "replay last passed at step 50"), reasons_for=("x",), reasons_against=(),
        unknown=(), resume=LastGood(1, 50, "checkpoints/a1-step-000050", "trusted", "newest trusted"),
        covered=((1, 75, "checkpoints/a1-step-000075"),), opened_at=AT, recovered_at=AT, recovered_by=2,
        closed_at=None, closed_by=None, cost=COST,
    )  # fmt: skip


def gradient_state() -> RunState:
    incident = gradient_incident()
    saves = (*(save(1, step) for step in (0, 25, 50)), save(1, 75, "suspect"), *(save(2, s) for s in (75, 100, 150)))
    return RunState(
        run="demo", attempts=(attempt(1, "abc", 0, 100, "integrity"), attempt(2, "adc", 50, 150, "completed")),
        rounds=(), checks=(), findings=incident.findings, verdicts=(), incidents=(incident,), checkpoints=saves,
        failed_saves=(), injections=(injection(),), restarts=(), annotations=(),
        last_good=LastGood(2, 150, "checkpoints/a2-step-000150", "trusted", "newest trusted"),
        first_event_at=AT, last_event_at=AT, event_count=9, events_digest="0" * 64,
    )  # fmt: skip


def test_a_demo_that_came_out_right_has_no_complaint() -> None:
    assert complaints(gradient_state(), Options()) == ()
    assert exit_code(gradient_state(), Options()) == 0


REFUSED = FailedSave(1, 75, "checkpoints/a1-step-000075", AT, "integrity", {})
WRONG_RANK = (Suspect(5, "node-c", "cpu-1", 1, "accused"),)
INSIDE = LastGood(1, 75, "checkpoints/a1-step-000075", "unverified", "")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"suspects": WRONG_RANK}, "Expected the accused ranks to be 3; it is 5."),
        ({"status": "undecided"}, "Expected the verdict to be attributed; it is undecided."),
        ({"state": "open"}, "Expected the incident's state to be recovered; it is open."),
        ({"window": None}, "The incident has no window."),
        ({"window": Window(1, 67, 1, 100, False, "")}, "The window (67, 100] does not contain the fault's step 67."),
        ({"resume": INSIDE}, "The last good checkpoint checkpoints/a1-step-000075 lies inside the window."),
        ({"scope": "node"}, "Expected the scope to be gpu; it is node."),
    ],
)
def test_a_wrong_verdict_is_said(change: dict[str, Any], complaint: str) -> None:
    state = replace(gradient_state(), incidents=(replace(gradient_incident(), **change),))
    assert complaint in complaints(state, Options())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"injections": ()}, "The fault gradient was never injected."),
        ({"injections": (injection(step=66),)}, "Expected the first injection's step to be 67; it is 66."),
        ({"injections": (injection(rank=2),)}, "Expected the injected ranks to be 3; it is 2."),
        ({"incidents": ()}, "There are 0 incidents; one was expected."),
        ({"failed_saves": (REFUSED,)}, "Expected the refused saves to be none; it is 75."),
        ({"checkpoints": (save(1, 50), save(1, 75))}, "Expected the suspect saves to be 75; it is none."),
        ({"attempts": (attempt(1, "abc", 0, 100, "integrity"),)}, "Expected the number of attempts to be 2; it is 1."),
        (
            {"attempts": (attempt(1, "abc", 0, 100, "integrity"), attempt(2, "abc", 50, 150, "completed"))},
            "Attempt 2 ran on node-b, which was accused.",
        ),
        (
            {"attempts": (attempt(1, "abc", 0, 100, "integrity"), attempt(2, "adc", 50, 149, "completed"))},
            "Expected the last step to be 150; it is 149.",
        ),
    ],
)
def test_a_wrong_course_is_said(change: dict[str, Any], complaint: str) -> None:
    assert complaint in complaints(replace(gradient_state(), **change), Options())


def test_a_finding_without_a_fault_is_a_complaint() -> None:
    state = replace(gradient_state(), injections=(), attempts=gradient_state().attempts[1:])
    assert "There is a finding of replay at step 100." in complaints(state, Options(fault="none"))


def test_a_flip_in_another_tensor_than_the_named_one_is_a_complaint() -> None:
    finding = replace(gradient_incident().findings[0], check="replica", step=75, tensor="norm.bias")
    incident = replace(gradient_incident(), findings=(finding,), step=75)
    state = replace(gradient_state(), incidents=(incident,))
    assert "Expected the tensor to be head.weight; it is norm.bias." in complaints(state, Options(fault="weight"))
