"""A drill's plan, reach, score and sums, without any training: made-up truths against made-up journals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exporter.histories import History

from lastgood.drill import summary
from lastgood.drill.plan import (
    ALL_ROWS,
    ARBITER,
    COLUMNS,
    CONTROL,
    FULL,
    QUICK,
    ROWS,
    WHENS,
    Trial,
    make_plan,
    plan_data,
    read_plan,
)
from lastgood.drill.reach import CONSERVATION_LIMIT, RULES, Demand, demands, firsts
from lastgood.drill.score import Outcome, score
from lastgood.drill.truth import Truth, read_truth
from lastgood.events import CHECKS
from lastgood.fault_specs import Fault
from lastgood.projection import FLOAT32_TOLERANCE
from lastgood.stepvector import CALIBRATION_LIMIT

STEPS = 24


def truth(wrong: Mapping[int, Sequence[int]] | None = None, since: int | None = None, **facts: Any) -> Truth:
    """Return a truth of three ranks; ``wrong``: step -> ranks with odd weights; ``since``: all drift from then on."""
    wrong = wrong or {}
    rows = tuple(
        tuple(
            f"odd{s}" if r in wrong.get(s, ()) else f"drift{s}" if since and s >= since else f"w{s}" for r in range(3)
        )
        for s in range(STEPS + 1)
    )
    facts = {"scales": (1.0,) * (STEPS + 1), "changed": {1: (), 8: (), 16: (), 24: ()}} | facts
    return Truth(**{"weights": rows, "state": rows, **facts})


CLEAN = truth()


def trial(row: str = "gradient", when: str = "permanent", step: int = 10, rank: int = 1, kind: str = "scale") -> Trial:
    site, state = ROWS.get(row, (row, ""))
    chance = 0.3 if when == "intermittent" else 0.0
    fault = Fault(site, kind, rank, step, permanent=when == "permanent", state=state, chance=chance)
    return Trial(name="t", row=row, kind=kind, when=when, faults=(fault,), reference="clean-1")


def history(what: Trial, happened: Sequence[int] = (), replays: Sequence[int] = (), **data: Any) -> History:
    told = History(run=what.name).start(nodes=("node-1", "node-2", "node-3"), per_node=1)
    for step, replay in [(s, False) for s in happened] + [(s, True) for s in replays]:
        facts = {"site": what.faults[0].site, "fault": what.kind, "step": step, "rank": what.faults[0].rank}
        told.write("injection", step, **facts, replay=replay, **data)
    return told


def blamed(told: History, step: int, rank: int = 1, check: str = "replay", **facts: Any) -> History:
    told.find(check, step, [rank], phase="audit", **facts)
    return told.rule("attributed", (check, step, "audit"), accused=[rank], action="record")


def permanent_found() -> tuple[Trial, History, Truth]:
    """A wrong gradient from step 10 on, found at the audit of step 16; checkpoint 12 is in the window."""
    what = trial()
    told = history(what, range(10, 25)).audit(1, phase="first").save(0).audit(8).save(12)
    return what, blamed(told.audit(16, failed=[1]), 16), truth(since=10, changed={1: (), 8: (), 16: (1,), 24: (1,)})


# the plan


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 8), st.booleans())
def test_every_plan_can_be_run(seed: int, ranks: int, full: bool) -> None:
    plan = make_plan(seed, ranks, FULL if full else QUICK)
    assert len({t.name for t in plan}) == len(plan)
    names = [t.name for t in plan]
    for number, one in enumerate(plan):
        for fault in one.faults:
            fault.check_reach(world_size=ranks, steps=one.steps)
        if one.reference:
            assert names.index(one.reference) < number
            assert plan[names.index(one.reference)].seed == one.seed
        assert (one.row == CONTROL) == (not one.faults and one.rot is None)
    assert read_plan(plan_data(plan)) == plan


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert make_plan(3, 3) == make_plan(3, 3) != make_plan(4, 3)


def test_the_default_has_every_site_with_every_kind_and_the_full_one_whenever_too() -> None:
    cells = {(row, kind) for row in ROWS for kind in COLUMNS}
    assert {(t.row, t.kind) for t in make_plan(0, 3)} >= cells
    full = {(t.row, t.kind, t.when) for t in make_plan(0, 3, FULL)}
    assert full >= {(row, kind, when) for row, kind in cells for when in WHENS}
    assert {t.row for t in make_plan(0, 3)} == {*ALL_ROWS, CONTROL}


def test_two_broken_devices_are_different_ones_with_different_faults() -> None:
    pairs = [t.faults for t in make_plan(0, 3, FULL) if t.row == ARBITER]
    assert pairs
    assert all(len({f.rank for f in pair}) == 2 and len({f.kind for f in pair}) == 2 for pair in pairs)
    assert not [t for t in make_plan(0, 2) if t.row == ARBITER]


def test_a_part_of_a_plan_keeps_what_it_is_compared_to() -> None:
    plan = make_plan(0, 3, only="weight-scale")
    assert {t.row for t in plan} == {"weight", CONTROL}
    assert {t.reference for t in plan if t.reference} == {t.name for t in plan if not t.reference}


def test_controls_have_as_many_steps_as_asked() -> None:
    plan = make_plan(0, 3, dataclasses.replace(QUICK, controls=2500))
    controls = [t for t in plan if t.name.startswith("control")]
    for sort in ("clean", "sharded"):
        assert [t.steps for t in controls if t.sort == sort] == [1000, 1000, 500]
    assert {t.sort for t in controls} == {"clean", "sharded"}


# what must be found


def test_the_limit_of_conservation_is_the_documented_one() -> None:
    assert CONSERVATION_LIMIT == FLOAT32_TOLERANCE * CALIBRATION_LIMIT


def asked(what: Trial, seen: Truth, *steps: int, **data: Any) -> list[Demand]:
    injected = [{"site": what.faults[0].site, "step": step, **data} for step in steps]
    return firsts([*demands(what, seen, injected)])


def test_nothing_is_asked_where_nothing_happened() -> None:
    assert asked(trial(), truth(changed={8: (1,)})) == []


def test_replay_must_see_a_changed_gradient_of_an_audited_step() -> None:
    assert asked(trial(), truth(changed={8: (), 16: (1,)}), 10) == [Demand(("replay", "finite"), 16, 16)]
    assert asked(trial(), truth(changed={8: (), 16: ()}), 10) == []


def test_replay_is_asked_nothing_while_the_replicas_differ() -> None:
    seen = asked(trial("weight"), truth({s: [1] for s in range(10, 25)}, changed={16: (1,)}), 10)
    assert [d.checks for d in seen] == [("replica",)]


def test_replica_must_see_weights_that_differ_at_a_comparison_or_save() -> None:
    assert asked(trial("weight"), truth({11: [1]}), 11)[0] == Demand(("replica",), 12, 12)
    assert asked(trial("weight"), truth({24: [1]}), 24)[0] == Demand(("replica",), 24, 24)
    assert asked(trial("weight"), truth({13: [1]}), 13) == []


def test_an_optimizer_state_is_read_at_saves_and_at_its_own_cadence() -> None:
    odd = tuple(("a", "b", "a") if s in (11, 15) else ("a", "a", "a") for s in range(25))
    assert asked(trial("optimizer exp_avg"), truth(state=odd), 11) == [Demand(("replica",), 16, 16)]


def test_memory_that_changes_in_a_sampled_step_must_be_seen_by_at_rest_and_nobody_else_is_asked() -> None:
    odd = truth({s: [1] for s in range(12, 25)})
    assert asked(trial("at rest"), odd, 12)[0] == Demand(("at_rest",), 12, 12)
    assert [d.checks for d in asked(trial("at rest"), odd, 13)] == [("replica",)]
    assert [d.checks for d in asked(trial("weight"), odd, 12)] == [("replica",)]


@pytest.mark.parametrize(
    ("row", "shown", "latest"),
    [
        ("local bucket", 1e-3, 10),
        ("reduced, all ranks", 5e-5, 10),
        ("reduced, one rank", 1e-3, 10),
        ("reduced, one rank", 1e-4, 11),
        ("local bucket", 3e-5, None),
        ("local bucket", "Infinity", 10),
    ],
)
def test_conservation_must_see_what_is_above_ten_times_its_tolerance(row: str, shown: Any, latest: int | None) -> None:
    seen = asked(trial(row), truth(), 10, projected_difference=shown)
    assert [(d.step, d.latest) for d in seen] == ([] if latest is None else [(10, latest)])


def test_a_value_that_is_not_finite_is_asked_of_the_same_step() -> None:
    assert asked(trial(), truth(nonfinite=(12, 13)), 12) == [Demand(("finite", "conservation"), 12, 12)]


def test_every_rule_names_known_checks() -> None:
    assert {check for rule in RULES for check in rule.checks} == {*CHECKS, "load"}


# the score of one trial


def test_a_fault_that_is_found_in_time_by_the_right_name_has_no_complaint() -> None:
    what, told, seen = permanent_found()
    got = score(what, told.state(), seen, CLEAN)
    assert (got.result, got.checks, got.latency, got.blame) == ("detected", ("replay",), 6, "right")
    assert (got.window, got.last_good, got.escapes, got.false, got.complaints) == (True, True, 0, 0, ())


def test_a_check_that_passes_what_it_must_see_is_a_miss() -> None:
    what, _, seen = permanent_found()
    silent = history(what, range(10, 25)).audit(8).audit(16).save(24)
    got = score(what, silent.state(), seen, CLEAN)
    assert got.result == "missed"
    assert got.complaints == ("replay or finite did not find it at step 16 to 16",)


def test_a_finding_at_a_later_audit_does_not_make_up_for_the_first() -> None:
    what, _, seen = permanent_found()
    late = blamed(history(what, range(10, 25)).audit(8).audit(16).audit(24, failed=[1]), 24)
    assert score(what, late.state(), seen, CLEAN).result == "missed"


def test_outside_reach_is_neither_hit_nor_miss() -> None:
    what = trial(when="transient", step=11)
    silent = history(what, [11])
    assert score(what, silent.state(), truth(since=11), CLEAN).result == "outside"
    found = blamed(history(what, [11]), 12)
    assert score(what, found.state(), truth(since=11), CLEAN).result == "beyond"


def test_what_changed_nothing_is_never_counted_as_detected() -> None:
    what = trial(when="transient", step=16)
    told = blamed(history(what, [16]), 16)
    assert score(what, told.state(), truth(changed={16: (1,)}), CLEAN).result == "no effect"


def test_a_healthy_device_that_is_accused_is_a_complaint_even_when_another_is_rightly() -> None:
    what, told, seen = permanent_found()
    told = blamed(told.audit(24, failed=[2]), 24, rank=2)
    got = score(what, told.state(), seen, CLEAN)
    assert got.blame == "wrong"
    assert got.complaints == ("rank 2 was accused, and is healthy",)


def test_of_an_error_that_all_ranks_share_nobody_may_be_accused() -> None:
    what = trial("reduced, all ranks", "transient")
    told = history(what, [10], projected_difference=1.0)
    told.find("conservation", 10, phase="reduce").rule("confirmed", ("conservation", 10, "reduce"), action="record")
    got = score(what, told.state(), truth(since=10), CLEAN)
    assert (got.result, got.blame, got.names, got.complaints) == ("detected", "undecided", False, ())
    assert score(what, blamed(told, 11, check="conservation").state(), truth(since=10), CLEAN).blame == "wrong"


def test_exact_evidence_that_names_nobody_is_a_complaint() -> None:
    what, _, seen = permanent_found()
    told = history(what, range(10, 25)).audit(8).audit(16, failed=[0, 1]).find("replay", 16, [0, 1])
    told.rule("undecided", ("replay", 16, "audit"), candidates=[0, 1], action="record")
    assert score(what, told.state(), seen, CLEAN).complaints == ("exact evidence named nobody",)


@pytest.mark.parametrize(("second", "when", "names"), [
    (False, "intermittent", False), (True, "intermittent", True), (False, "permanent", True),
])  # fmt: skip
def test_an_intermittent_fault_on_one_batch_only_may_stay_open(second: bool, when: str, names: bool) -> None:
    what = trial(when=when, step=10)
    told = history(what, [16]).audit(8).audit(16, failed=[0, 1]).find("replay", 16, [0, 1])
    told.events[-1].data["evidence"][0]["second_batch_odd"] = second  # type: ignore[index]
    told.rule("undecided", ("replay", 16, "audit"), candidates=[0, 1], action="record")
    got = score(what, told.state(), truth(since=16, changed={16: (1,)}), CLEAN)
    assert (got.result, got.blame, got.names) == ("detected", "undecided", names)
    assert bool(got.complaints) == names


def test_a_window_that_begins_after_the_onset_is_a_complaint() -> None:
    what, _, seen = permanent_found()
    late = history(what, range(10, 25)).audit(8).audit(12)
    got = score(what, blamed(late.audit(16, failed=[1]), 16).state(), seen, CLEAN)
    assert got.window is False
    assert "the window (12, 16) does not contain the first faulty step after its start" in got.complaints


def test_faulty_steps_before_an_audit_that_rightly_passed_are_escapes_and_measured() -> None:
    what = trial(when="intermittent", step=3)
    told = history(what, [3, 11]).audit(8).save(8).audit(16, failed=[1])
    seen = truth(since=3, changed={8: (), 16: (1,)})
    got = score(
        what, blamed(history(what, [3, 11, 16]).audit(8).save(8).audit(16, failed=[1]), 16).state(), seen, CLEAN
    )
    assert told
    assert (got.window, got.escapes, got.last_good, got.complaints) == (True, 1, False, ())


def test_an_intermittent_fault_that_only_a_replay_met_has_no_window_to_hold() -> None:
    what = trial(when="intermittent", step=3)
    told = blamed(history(what, [4], replays=[12]).audit(8).audit(12, failed=[1]), 12)
    assert score(what, told.state(), truth(since=4), CLEAN).window is None


def test_a_last_good_checkpoint_that_is_faulty_is_a_complaint() -> None:
    what, told, _ = permanent_found()
    seen = truth({6: [1]}, since=6, changed={16: (1,)})
    early = history(what, range(10, 25)).audit(1, phase="first").save(6).audit(8)
    got = score(what, blamed(early.audit(16, failed=[1]), 16).state(), seen, CLEAN)
    assert told
    assert got.complaints == ("the last good checkpoint 6 is a faulty one",)


def test_a_finding_before_the_fault_is_false() -> None:
    what, told, seen = permanent_found()
    told.find("replica", 4, [2], phase="loop").rule("attributed", ("replica", 4, "loop"), accused=[2], action="record")
    got = score(what, told.state(), seen, CLEAN)
    assert got.false == 1
    assert "1 findings before any fault" in got.complaints


def test_one_broken_device_must_not_switch_replay_off() -> None:
    what, told, seen = permanent_found()
    told.write("check", 24, check="replay", phase="audit", state_step=24, result="not_run",
               reason="the job is not deterministic: so it seems", exceptions=[])  # fmt: skip
    assert any("switched replay off" in c for c in score(what, told.state(), seen, CLEAN).complaints)


@pytest.mark.parametrize(("refused", "result"), [(True, "detected"), (False, "missed")])
def test_a_file_that_rotted_must_be_refused(refused: bool, result: str) -> None:
    what = Trial(name="t", row="checkpoint", kind="byte", when="permanent", rot=1, reloads=True, reference="clean-1")
    told = History(run="t").start(nodes=("node-1", "node-2", "node-3"), per_node=1)
    got = score(what, told.state(), truth(rotten="byte 1", refused=refused), CLEAN)
    assert got.result == result
    assert bool(got.complaints) != refused


def test_a_control_with_a_finding_or_a_refused_load_is_an_alarm() -> None:
    what = Trial(name="t", row=CONTROL, sort="clean")
    told = History(run="t").start(nodes=("node-1", "node-2", "node-3"), per_node=1)
    assert score(what, told.state(), CLEAN, None).result == "clean"
    assert score(what, told.state(), truth(refused=True), None).result == "alarm"
    assert score(what, blamed(told, 8).state(), CLEAN, None).complaints == (
        "1 findings in a clean job", "rank 1 was accused",
    )  # fmt: skip


# the sums


def outcome(**facts: Any) -> Outcome:
    usual = {"trial": "t", "row": "gradient", "kind": "scale", "when": "permanent", "result": "detected"}
    return Outcome(
        **{**usual, "blame": "right", "names": True, "window": True, "last_good": True, "latency": 3, **facts}
    )


def missed(*outcomes: Outcome) -> list[str]:
    return [t.name for t in summary.targets(outcomes) if not t.reached]


def test_a_drill_in_which_all_went_well_reaches_every_target() -> None:
    clean = outcome(row=CONTROL, result="clean", blame="", names=False, window=None, last_good=None)
    assert missed(outcome(), outcome(result="outside", blame=""), outcome(result="no effect"), clean) == []


@pytest.mark.parametrize(
    ("facts", "target"),
    [
        ({"result": "missed"}, "inside reach: detected"),
        ({"blame": "undecided"}, "exact evidence: the right device named"),
        ({"blame": "wrong"}, "no healthy device accused"),
        ({"result": "outside", "blame": "wrong"}, "no healthy device accused"),
        ({"window": False}, "permanent: the window contains the onset"),
        ({"window": False, "when": "transient"}, "others: the window contains"),
        ({"last_good": False}, "no faulty save is the last good one"),
        ({"row": CONTROL, "result": "alarm"}, "controls without a finding"),
        ({"complaints": ("odd",)}, "nothing else went wrong"),
    ],
)
def test_each_target_can_be_missed(facts: dict[str, Any], target: str) -> None:
    assert any(name.startswith(target) for name in missed(outcome(), outcome(**facts)))


def test_tallies_count_results_blame_and_latency() -> None:
    got = summary.tally([outcome(latency=1), outcome(latency=9), outcome(result="missed", latency=None, blame="")])
    assert (got.trials, got.inside, got.detected, got.missed, got.right) == (3, 3, 2, 1, 2)
    assert (got.latency_median, got.latency_worst, got.windows, got.windows_right) == (5, 9, 2, 2)


def test_the_document_holds_every_trial_and_every_row() -> None:
    told = summary.document([outcome(), outcome(row="weight")], {"seed": 0})
    assert [t["row"] for t in told["trials"]] == ["gradient", "weight"] == list(told["rows"])
    assert told["kinds"]["scale"]["trials"] == 2


def test_a_truth_is_read_as_it_was_written() -> None:
    data = {
        "weights": [["a", "b"]], "state": [["c", "d"]], "nonfinite": [3], "scales": [1.0], "changed": {"8": [1]},
        "rotten": "", "refused": None, "seconds": 2.5,
    }  # fmt: skip
    read = read_truth(data)
    assert read.changed == {8: (1,)}
    assert not read.agrees(0, state=False)
