"""A budget stretches cadences as far as it must and no farther, and what it goes by is measured."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lastgood.budget import KINDS, LONGEST, SLACK, Costs, Kind, adapted, every_step_share, share, stretched
from lastgood.cadences import REVIEW_EVERY, Cadences
from lastgood.comm import World
from lastgood.config import load
from lastgood.errors import ConfigError
from lastgood.spending import WARM_UP, Spending
from lastgood.stopwatch import HostClock

DEFAULT: dict[Kind, int] = {"replica": 50, "state": 200, "replay": 200, "at_rest": 100}
MEASURED = Costs(step=1.18, every_step=0.0153, run={"replica": 0.034, "state": 0.108, "replay": 1.3, "at_rest": 0.074})

seconds = st.floats(0, 100)
costs = st.builds(
    Costs,
    step=st.floats(1e-4, 100),
    every_step=st.floats(0, 1),
    run=st.dictionaries(st.sampled_from(KINDS), seconds),
)
steps = st.dictionaries(st.sampled_from(KINDS), st.integers(1, 1000))
budgets = st.floats(1e-4, 0.99)


# --- the decision ----------------------------------------------------------------------------------------------------


@given(costs, steps, budgets)
@example(Costs(step=1.0, every_step=1.0, run={"replica": 5e-324}), {"replica": 1}, 0.25)
def test_cadences_keep_to_the_budget_or_are_as_long_as_they_may_be(
    c: Costs, configured: dict[Kind, int], b: float
) -> None:
    every = stretched(c, configured, b)
    costly = [kind for kind in configured if c.run.get(kind, 0.0) > 0]
    assert share(c, every) <= b or all(every[kind] == LONGEST * configured[kind] for kind in costly)


@given(costs, steps, budgets)
def test_no_cadence_is_shorter_than_configured_or_longer_than_sixteen_times(
    c: Costs, configured: dict[Kind, int], b: float
) -> None:
    every = stretched(c, configured, b)
    assert every.keys() == configured.keys()
    assert all(every[kind] // configured[kind] in (1, 2, 4, 8, 16) for kind in configured)
    assert all(every[kind] % configured[kind] == 0 for kind in configured)


@given(costs, steps, budgets, budgets)
def test_a_wider_budget_makes_no_check_rarer(c: Costs, configured: dict[Kind, int], one: float, two: float) -> None:
    tight, wide = stretched(c, configured, min(one, two)), stretched(c, configured, max(one, two))
    assert all(wide[kind] <= tight[kind] for kind in configured)


@given(costs, steps, budgets)
def test_what_fits_is_left_as_it_is_configured(c: Costs, configured: dict[Kind, int], b: float) -> None:
    if share(c, configured) <= b:
        assert stretched(c, configured, b) == configured


@given(costs, steps, budgets, st.dictionaries(st.sampled_from(KINDS), st.sampled_from([1, 2, 4, 8, 16])))
def test_from_whatever_was_in_force_the_budget_is_kept_at_once_and_then_nothing_moves(
    c: Costs, configured: dict[Kind, int], b: float, factors: dict[Kind, int]
) -> None:
    current = {kind: steps * factors.get(kind, 1) for kind, steps in configured.items()}
    after = adapted(current, c, configured, b)
    assert share(c, after) <= max(b, share(c, stretched(c, configured, b)))
    assert adapted(after, c, configured, b) == after


@given(costs, steps, budgets, st.floats(SLACK**0.5, 1 / SLACK**0.5))
def test_costs_that_waver_by_a_tenth_make_no_cadence_go_to_and_fro(
    c: Costs, configured: dict[Kind, int], b: float, more: float
) -> None:
    wavering = dataclasses.replace(c, every_step=c.every_step * more, run={k: v * more for k, v in c.run.items()})
    there = adapted(configured, c, configured, b)
    back = adapted(adapted(there, wavering, configured, b), c, configured, b)
    again = adapted(adapted(back, wavering, configured, b), c, configured, b)
    assert again == back


def test_the_measured_costs_of_the_defaults_are_stretched_where_it_costs_least() -> None:
    assert 0.019 < share(MEASURED, DEFAULT) < 0.021
    assert stretched(MEASURED, DEFAULT, 0.0165) == DEFAULT | {"replay": 800}
    assert every_step_share(MEASURED) > 0.01
    assert stretched(MEASURED, DEFAULT, 0.01) == {kind: LONGEST * steps for kind, steps in DEFAULT.items()}


def test_a_check_that_has_not_run_yet_is_not_stretched() -> None:
    known = dataclasses.replace(MEASURED, run={"replay": 1.3})
    assert stretched(known, DEFAULT, 0.001) == DEFAULT | {"replay": 3200}


def test_a_check_that_cannot_run_any_more_is_dropped() -> None:
    left: dict[Kind, int] = {"replica": 50}
    assert adapted(DEFAULT, MEASURED, left, 0.5) == left


# --- the measurement -------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def warmed() -> tuple[Spending, Clock]:
    spending = Spending(HostClock(clock := Clock()))
    for _ in range(WARM_UP):
        with spending.on("every_step"):
            clock.now += 100.0
        spending.step(500.0)
    return spending, clock


def test_a_step_without_its_checks_and_one_run_of_each_are_told_apart() -> None:
    spending, clock = warmed()
    for step in range(10):
        with spending.on("every_step"):
            clock.now += 0.25
        if step % 5 == 0:
            with spending.on("at_rest", runs=0):
                clock.now += 1.0
            with spending.on("at_rest"):
                clock.now += 2.0
        spending.step(1.25 if step % 5 else 4.25)
    assert spending.take() == Costs(step=1.0, every_step=0.25, run={"at_rest": 3.0})
    assert spending.take() is None


def test_a_save_between_two_steps_does_not_count_as_a_step() -> None:
    spending, _ = warmed()
    for seconds in (1.0, 1.0, 60.0, None, 1.0):
        spending.step(seconds)
    taken = spending.take()
    assert taken is not None
    assert taken.step == 1.0


def test_a_check_that_raises_is_counted() -> None:
    spending, clock = warmed()
    with suppress(ZeroDivisionError), spending.on("replay"):
        clock.now += 2.0
        raise ZeroDivisionError
    spending.step(3.0)
    assert spending.take() == Costs(step=1.0, every_step=0.0, run={"replay": 2.0})


# --- the cadences of a job of one rank --------------------------------------------------------------------------------


def cadences(budget: float | None, **settings: int) -> Cadences:
    why_not = {"replica": "one rank", "replay": "one rank"}
    return Cadences(load({}, run_dir="r", budget=budget, **settings), World(), why_not)


def look(cadences: Cadences) -> Any:
    cadences.begin_review()
    return cadences.end_review()


def spend(cadences: Cadences, clock: Clock, at_rest: float) -> None:
    cadences.spending.stopwatch = HostClock(clock)
    for step in range(REVIEW_EVERY):
        if not step:
            with cadences.spending.on("at_rest"):
                clock.now += at_rest
        cadences.spending.step(1.0)


def test_without_a_budget_the_share_is_known_and_no_cadence_changes() -> None:
    c, clock = cadences(None, at_rest_every=10), Clock()
    assert c.share() is None
    spend(c, clock, 5.0)
    assert look(c) is None
    assert c.share() == pytest.approx(0.5 / 1.5)
    assert c.every("at_rest") == 10


def test_a_budget_stretches_says_so_once_and_shortens_when_it_is_cheap_again() -> None:
    c, clock = cadences(0.1, at_rest_every=10), Clock()
    spend(c, clock, 5.0)
    told = look(c)
    assert told is not None
    assert told["cadence"] == {"finite": 1, "conservation": 1, "replica": None, "replay": None, "at_rest": 80}
    assert (told["state_every"], told["budget"]) == (None, 0.1)
    assert told["share"] == c.share() == pytest.approx(0.0625 / 1.0625)
    spend(c, clock, 5.0)
    assert look(c) is None
    assert [step for step in range(1, 200) if c.due("at_rest", step)] == [80, 160]
    for _ in range(2):
        spend(c, clock, 0.01)
        look(c)
    assert c.every("at_rest") == 10


def test_one_slow_run_among_others_stretches_nothing() -> None:
    c, clock = cadences(0.1, at_rest_every=10), Clock()
    for seconds in (0.01, 5.0, 0.01, 5.0, 0.01):
        spend(c, clock, seconds)
        look(c)
    assert c.every("at_rest") == 10


def test_checks_of_every_step_that_take_more_than_the_budget_are_known() -> None:
    c, clock = cadences(0.1), Clock()
    c.spending.stopwatch = HostClock(clock)
    for _ in range(REVIEW_EVERY):
        with c.spending.on("every_step"):
            clock.now += 0.5
        c.spending.step(1.0)
    look(c)
    assert c.over() == pytest.approx(0.5)


@pytest.mark.parametrize("budget", [0, 1.0, -0.1, float("nan"), True])
def test_a_budget_that_is_no_share_is_refused(budget: object) -> None:
    with pytest.raises(ConfigError, match="budget="):
        load({}, run_dir="r", budget=budget)


def test_a_budget_comes_from_the_environment_too() -> None:
    assert load({"LASTGOOD_BUDGET": "0.02"}, run_dir="r").budget == 0.02
