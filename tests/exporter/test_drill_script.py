"""A drill of a user's own script, without running it: the faults, what is told of each, the stand-in for ``watch``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exporter.histories import History
from torch import nn

from lastgood.drill.own_plan import (
    TRIED,
    Step,
    Told,
    answer,
    complaints,
    document,
    fault_trials,
    noted,
    seconds_per_step,
    share,
    tell,
)
from lastgood.drill.own_reach import Noted
from lastgood.drill.own_script import Unwatched, layer_of
from lastgood.drill.plan import Trial
from lastgood.fault_specs import Fault


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 8), st.integers(2, 500))
def test_every_fault_is_one_that_the_run_has(seed: int, ranks: int, steps: int) -> None:
    trials = fault_trials(seed, ranks, steps)
    assert len({t.name for t in trials}) == len(TRIED)
    for trial in trials:
        trial.faults[0].check_reach(world_size=ranks, steps=steps)


def trial(row: str = "gradient", site: str = "gradient", when: str = "permanent") -> Trial:
    fault = Fault(site, "scale", 1, 10, permanent=when == "permanent")
    return Trial(name="t", row=row, kind="scale", when=when, faults=(fault,))


def history(*steps: int, site: str = "gradient", **start: Any) -> History:
    told = History(run="t").start(nodes=("node-1", "node-2", "node-3"), per_node=1, **start)
    for step in steps:
        told.write("injection", step, site=site, fault="scale", step=step, rank=1, replay=False)
    return told


def test_a_fault_that_was_found_is_told_with_who_and_when() -> None:
    told = history(10, 11, 12).save(0).audit(50, failed=[1]).find("replay", 50, [1])
    told.rule("attributed", ("replay", 50, "audit"), accused=[1])
    got = tell(trial(), told.state())
    assert (got.first, got.found, got.checks, got.accused, got.wrong) == (10, 50, ("replay",), (1,), False)
    assert (got.why_not, got.last_good) == ("", 0)


WEIGHT = trial("weight", "weight", "transient")
OPTIMIZER = trial("optimizer", "optimizer", "transient")
AT_REST = trial("at rest", "at-rest")


def at(step: int, site: str, **data: Any) -> History:
    """Return a run in which the fault happened once, with more of its truth."""
    told = history()
    return told.write("injection", step, site=site, fault="scale", step=step, rank=1, replay=False, **data)


def compared(told: History, *steps: int, phase: str = "loop") -> History:
    for step in steps:
        told.audit(step, check="replica", phase=phase, state_step=step - 1)
    return told


@pytest.mark.parametrize(
    ("what", "told", "why"),
    [
        (trial(), history(10, 11).end(40), "no replay ran from step 10 to the last, 40 (one every 50 steps)"),
        (trial(), history(10, 11, 50).audit(50).end(60), "replay found nothing in step 50, which was audited"),
        (trial(), history(10, not_run={"replay": "no loss_fn"}), "replay did not run: no loss_fn"),
        (WEIGHT, at(10, "weight", tensor="0.weight").end(40), "no replica ran from step 10 to the last, 40"),
        (WEIGHT, compared(at(10, "weight", tensor="0.weight"), 50), "replica found nothing at step 50"),
        (OPTIMIZER, compared(at(10, "optimizer", tensor="a.exp_avg"), 50, phase="state"), "replica found nothing at"),
        (AT_REST, at(10, "at-rest", tensor="0.weight").end(40), "at_rest did not run: switched off"),
    ],
)
def test_what_is_inside_reach_and_not_found_is_a_complaint(what: Trial, told: History, why: str) -> None:
    got = tell(what, told.state())
    assert (got.found, got.result) == (None, "missed")
    assert why in got.why_not
    assert [why in text for text in complaints([got], history().state())] == [True]


@pytest.mark.parametrize(
    ("what", "told", "why"),
    [
        (
            trial(when="transient"),
            history(10).end(60),
            "none of its 1 faulty steps was audited (replay every 50 steps)",
        ),
        (trial(), history(), "it never happened"),
        (
            OPTIMIZER,
            compared(at(10, "optimizer", tensor="a.exp_avg"), 50),
            "no comparison from step 10 on read the optimizer state",
        ),
        (
            WEIGHT,
            compared(at(10, "weight", tensor="0.weight"), 50, 100, phase="gather"),
            "replica ran 2 times from step 10 on (one every 50 steps), on what was gathered: no other rank holds",
        ),
    ],
)
def test_what_is_outside_reach_is_told_with_the_reason_and_is_no_complaint(
    what: Trial, told: History, why: str
) -> None:
    got = tell(what, told.state())
    assert (got.found, got.result) == (None, "outside")
    assert why in got.why_not
    assert [*complaints([got], history().state())] == []


@pytest.mark.parametrize(("site", "tensor"), [("weight", "0.weight"), ("optimizer", "0.weight.exp_avg")])
def test_a_shard_without_a_replica_is_outside_reach_and_one_with_is_not(site: str, tensor: str) -> None:
    what, told = trial(site, site, "transient"), compared(at(10, site, tensor=tensor), 50, phase="state")
    got = tell(what, told.state(), Noted(alone=frozenset({"0.weight"})))
    assert got.result == "outside"
    assert "no other rank holds the same part of 0.weight" in got.why_not
    assert "only at_rest looks there, from the first forward to the last backward" in got.why_not
    assert tell(what, told.state(), Noted(alone=frozenset({"0.bias"}))).result == "missed"


@pytest.mark.parametrize(
    ("site", "shown", "result"),
    [
        ("bucket", 1e-3, "missed"),
        ("bucket", 1e-5, "outside"),
        ("reduce-one", 1e-4, "missed"),
        ("bucket", None, "missed"),
    ],
)
def test_a_wrong_average_is_outside_reach_below_ten_times_the_tolerance(
    site: str, shown: float | None, result: str
) -> None:
    truth = {} if shown is None else {"projected_difference": 2 * shown}
    told = at(10, site, tensor="bucket 0", **truth).end(40)
    noted = Noted(scales=(2.0,) * 40, limits=(4e-6,) * 40)
    got = tell(trial("local bucket", site, "transient"), told.state(), noted)
    assert got.result == result
    assert got.why_not.startswith("conservation found nothing" if result == "missed" else "1.0e-05 of the norms")


def test_a_loss_scaler_skips_what_is_not_finite() -> None:
    what = dataclasses.replace(trial(), kind="nan")
    told = history(10)
    assert tell(what, told.state(), Noted(scaled=True)).result == "outside"
    assert tell(what, told.state()).why_not == "finite found nothing in step 10"


def test_what_the_ranks_noted_is_put_together_by_step() -> None:
    ranks = [[Step(1.0, 3.0, 4e-6), Step(2.0, 6.0, 5e-6)], [Step(1.1, 4.0, 4e-6), Step(2.1, 8.0, 5e-6)]]
    assert noted(ranks, ["a"], True) == Noted(frozenset({"a"}), True, (2.5, 5.0), (4e-6, 5e-6))
    assert noted([[Step(1.0)], []], [], False).scales == ()


def test_the_answer_counts_what_was_inside_reach() -> None:
    found = Told(trial="t", row="weight", kind="bit", when="transient", rank=1, found=3)
    outside = dataclasses.replace(found, found=None, result="outside")
    assert answer([found]) == "These settings would have caught every one of them."
    assert "every one inside reach of a check: 1 of 2" in answer([found, outside])
    assert "this says nothing about these settings" in answer([outside])


def test_a_run_that_was_ended_at_its_time_limit_is_said_where_nothing_was_found() -> None:
    got = tell(trial(), history(10, 11).state(), ended_after=60.4)
    assert got.why_not == "the run had not ended after 60 s, and was ended (--time-limit)"
    found = tell(trial(), history(10).audit(50, failed=[1]).find("replay", 50, [1]).state(), ended_after=60.4)
    assert (found.found, found.why_not, found.ended_after) == (50, "", 60.4)


def test_a_healthy_device_that_was_accused_is_a_complaint() -> None:
    told = history(10).find("replay", 50, [2]).rule("attributed", ("replay", 50, "audit"), accused=[2])
    got = tell(trial(), told.state())
    assert [*complaints([got], history().state())] == ["t: rank 2 was accused, the fault was on rank 1"]


def test_a_finding_in_the_clean_run_is_a_complaint() -> None:
    clean = history().find("replay", 50, [2])
    assert [*complaints([], clean.state())] == ["the clean run has 1 findings"]


def test_the_cost_is_the_share_of_the_time_of_later_steps() -> None:
    plain, watched = [float(i) for i in range(20)], [1.1 * i for i in range(20)]
    assert share(plain, watched) == pytest.approx(0.1)
    assert seconds_per_step(plain[:6]) is None
    assert share(plain, watched[:5]) is None


def test_the_report_holds_every_fault() -> None:
    one = Told(trial="t", row="weight", kind="bit", when="transient", rank=1)
    assert document([one], {"seed": 1})["faults"][0]["row"] == "weight"


def test_an_unwatched_script_gets_the_same_calls() -> None:
    model = nn.Linear(2, 1)
    monitor = Unwatched(model, lambda m, batch: m(batch).sum())
    with monitor.phase("evaluation"), monitor.checkpoint(Path("x")), monitor:
        assert float(monitor.loss(torch.zeros(1, 2)).detach()) == pytest.approx(float(model.bias.detach().sum()))
    monitor.resume(None, step=3)
    monitor.close()


@pytest.mark.parametrize("seed", range(5))
def test_the_layer_has_parameters_and_no_children(seed: int) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    assert isinstance(layer_of(model, seed), nn.Linear)
