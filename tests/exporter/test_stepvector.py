"""What the summed vector of a step says."""

from __future__ import annotations

import math

import pytest

from lastgood.stepvector import CALIBRATION_STEPS, Tolerance, odd_ranks, relative, unpack


def vector(bucket: tuple[float, float, float], *, step: int = 5, **flags: float) -> list[float]:
    names = ("loss", "local", "reduced", "previous", "invalid")
    return [*bucket, *(flags.get(name, 0.0) for name in names), float(step), float(step * step)]


def total(*ranks: list[float]) -> list[float]:
    return [sum(column) for column in zip(*ranks, strict=True)]


def test_a_reduce_that_conserves_has_a_ratio_of_zero() -> None:
    facts = unpack(total(vector((3.0, 2.0, 8.0)), vector((1.0, 2.0, 8.0))), 2)
    assert facts.expected == (2.0,)
    assert facts.scales == (2.0,)
    assert facts.ratios == (0.0,)
    assert facts.measured
    assert not facts.nonfinite


def test_a_wrong_value_shows_relative_to_the_local_norms() -> None:
    facts = unpack(total(vector((3.0, 2.2, 8.0)), vector((1.0, 2.2, 8.0))), 2)
    assert facts.ratios[0] == pytest.approx(0.1)


def test_an_invalid_rank_leaves_the_step_unmeasured() -> None:
    facts = unpack(total(vector((0.0, 0.0, 0.0), invalid=1, local=1), vector((1.0, 2.0, 8.0))), 2)
    assert not facts.measured
    assert math.isnan(facts.ratios[0])
    assert facts.nonfinite_local == 1


def test_ranks_at_different_steps_are_noticed() -> None:
    one = (1.0, 1.0, 1.0)
    assert unpack(total(vector(one, step=7), vector(one, step=7), vector(one, step=7)), 3).same_step
    assert not unpack(total(vector(one, step=6), vector(one, step=7), vector(one, step=8)), 3).same_step


def test_a_value_made_out_of_nothing_is_infinitely_wrong() -> None:
    assert relative(0.0, 1e-9, 0.0) == math.inf
    assert relative(0.0, 0.0, 0.0) == 0.0


def test_the_rank_whose_own_result_is_off_stands_out() -> None:
    assert odd_ranks([2.0, 2.5, 2.0], expected=2.0, scale=1.0, tolerance=1e-3) == [1]
    assert odd_ranks([2.0, math.nan, 2.0], expected=2.0, scale=1.0, tolerance=1e-3) == [1]


def test_the_tenfold_limit_holds_while_the_noise_is_watched_and_no_longer() -> None:
    tolerance = Tolerance(4e-6)
    assert tolerance.value == pytest.approx(4e-5)
    for _ in range(CALIBRATION_STEPS):
        tolerance.watch([3e-7])
    assert tolerance.value == pytest.approx(4e-6)


def test_a_noisy_job_raises_its_tolerance_by_at_most_tenfold() -> None:
    tolerance = Tolerance(4e-6)
    for _ in range(CALIBRATION_STEPS):
        tolerance.watch([1e-5, 1.0])
    assert tolerance.value == pytest.approx(4e-5)
