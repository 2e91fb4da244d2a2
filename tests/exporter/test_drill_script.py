"""A drill of a user's own script, without running it: the faults, what is told of each, the stand-in for ``watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exporter.histories import History
from torch import nn

from lastgood.drill.own_plan import TRIED, Told, complaints, document, fault_trials, seconds_per_step, share, tell
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


@pytest.mark.parametrize(
    ("what", "told", "why"),
    [
        (trial(), history(10, 11).end(40), "no replay ran from step 10 to the last, 40 (one every 50 steps)"),
        (
            trial(when="transient"),
            history(10).end(60),
            "none of its 1 faulty steps was audited (replay every 50 steps)",
        ),
        (trial("weight", "weight", "transient"), history(10, site="weight").end(40), "no replica ran from step 10"),
        (
            trial("local bucket", "bucket", "transient"),
            history(10, site="bucket"),
            "below the tolerance of conservation",
        ),
        (trial(), history(10, not_run={"replay": "no loss_fn"}), "replay did not run: no loss_fn"),
        (trial(), history(), "it never happened"),
    ],
)
def test_a_fault_that_was_not_found_is_told_with_the_reason(what: Trial, told: History, why: str) -> None:
    got = tell(what, told.state())
    assert got.found is None
    assert why in got.why_not
    assert [why in text for text in complaints([got], history().state())] == [True]


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
