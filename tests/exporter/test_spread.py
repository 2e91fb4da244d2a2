"""What lies outside the spread of a job's own repeats, and what never does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lastgood.spread import FACTOR, REPEATS, WIDEST, compared, difference, farthest, limit, spread, spreads

FLOOR = 4e-6
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NORM = st.floats(min_value=1e-30, max_value=1e30)
REPEATED = st.lists(FINITE, min_size=REPEATS, max_size=REPEATS)
SHARE = st.floats(min_value=0.0, max_value=1.0)


def within(values: list[float], share: float) -> float:
    low, high = min(values), max(values)
    return min(max(low * (1 - share) + high * share, low), high)


@given(REPEATED, SHARE, SHARE)
def test_values_from_the_range_of_the_repeats_are_never_outside(repeats: list[float], a: float, b: float) -> None:
    one, other = within(repeats, a), within(repeats, b)
    assert farthest([one], [other], [spread(repeats)], 0.0) is None


@given(REPEATED, SHARE, SHARE, st.lists(st.floats(min_value=0.0, max_value=10.0)))
def test_a_rank_that_spreads_more_never_puts_them_outside(
    repeats: list[float], a: float, b: float, elsewhere: list[float]
) -> None:
    widest = max([spread(repeats), *elsewhere])
    assert farthest([within(repeats, a)], [within(repeats, b)], [widest], 0.0) is None


@given(
    NORM,
    st.lists(st.floats(min_value=-1.0, max_value=1.0), min_size=REPEATS + 1, max_size=REPEATS + 1),
    st.floats(min_value=0.0, max_value=WIDEST / FACTOR / 2.1),
    st.one_of(st.floats(min_value=10.0, max_value=1e6), st.floats(min_value=1e-6, max_value=0.1)),
)
def test_a_factor_of_ten_is_outside(norm: float, errors: list[float], size: float, factor: float) -> None:
    *repeats, right = (norm * (1 + size * error) for error in errors)
    seen = spread(repeats)
    found = farthest([right * factor], [repeats[0]], [seen], FLOOR)
    assert found is not None
    assert (found.index, found.spread) == (0, seen)
    assert found.apart > WIDEST >= found.limit


@given(FINITE, FINITE)
def test_a_difference_has_no_direction(one: float, other: float) -> None:
    assert difference(one, other) == difference(other, one)
    assert 0 <= difference(one, other) <= 2
    assert (difference(one, other) == 0) <= (one == other or math.isclose(one, other, rel_tol=1e-15))


@given(st.integers(1, 8), st.floats(min_value=0.0, max_value=WIDEST / FACTOR), NORM)
def test_the_quantity_farthest_outside_is_named(count: int, seen: float, norm: float) -> None:
    ones = [norm] * count
    others = [norm * (10.0 if i == count - 1 else 3.0) for i in range(count)]
    found = farthest(ones, others, [seen] * count, FLOOR)
    assert found is not None
    assert found.index == count - 1


def test_tensors_without_a_gradient() -> None:
    zero, absent = [0.0] * REPEATS, [math.nan] * REPEATS
    assert spreads([[0.0, math.nan]] * REPEATS) == [0.0, 0.0]
    assert spread(zero) == spread(absent) == 0.0
    assert farthest([0.0, math.nan], [0.0, math.nan], [0.0, 0.0], FLOOR) is None
    assert farthest([math.nan], [1.0], [0.0], FLOOR) is None, "not compared where one side has none"


def test_a_tensor_that_was_zero_in_every_repeat_and_is_no_more_is_outside() -> None:
    found = farthest([0.0], [1e-20], [spread([0.0] * REPEATS)], FLOOR)
    assert found is not None
    assert found.apart == 1.0


def test_a_tensor_that_is_zero_in_some_repeats_is_not_compared() -> None:
    seen = spread([0.0, 0.0, 1e-9, 0.0, 0.0])
    assert limit(seen, FLOOR) == math.inf
    assert compared([seen, 0.0], FLOOR) == 1
    assert farthest([0.0], [1.0], [seen], FLOOR) is None


def test_numbers_that_are_not_finite() -> None:
    assert difference(math.inf, math.inf) == 0.0
    assert farthest([math.inf], [math.inf], [0.0], FLOOR) is None
    found = farthest([math.inf], [1.0], [1e-6], FLOOR)
    assert found is not None
    assert found.apart == math.inf
    assert limit(spread([1.0, math.inf]), FLOOR) == math.inf, "repeats that are sometimes infinite tell nothing"


def test_what_did_not_move_may_move_by_its_rounding() -> None:
    assert limit(0.0, FLOOR) == FLOOR
    assert farthest([1.0], [1.0 + FLOOR / 2], [0.0], FLOOR) is None
    assert farthest([1.0], [1.0 + FLOOR * 2], [0.0], FLOOR) is not None


@given(st.floats(min_value=0.0, max_value=2.0), st.floats(min_value=0.0, max_value=2.0))
def test_a_wider_spread_never_makes_a_narrower_limit(one: float, other: float) -> None:
    assume(one <= other)
    assert limit(one, FLOOR) <= limit(other, FLOOR)


@pytest.mark.parametrize("factor", [3.0, 4.0])
def test_the_documented_chance_is_an_upper_bound(factor: float) -> None:
    """Drawn with factors at which something can be seen; the chance falls with the eighth power."""
    trials = 400_000
    draws = np.random.default_rng(7)
    ranges = np.ptp(draws.normal(size=(trials, 2, 2, REPEATS)), axis=3).min(axis=2)  # calibration, then second look
    apart = np.abs(draws.normal(scale=math.sqrt(2), size=trials))
    for seen, chance in (
        ((apart > factor * ranges.max(axis=1)).sum(), 22 / factor**8),
        ((apart > factor * ranges[:, 1]).sum(), 1.4 / factor**4),
    ):
        expected = trials * chance
        assert expected / 20 < seen <= expected + 4 * math.sqrt(expected)
