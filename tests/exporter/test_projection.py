"""The projection against a plain float64 sum of signs, its promises about non-finite values, and its tolerance."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood import projection
from lastgood.fingerprint import count_nonfinite
from lastgood.projection import TILE, numbers_of, project, tolerance
from lastgood.stepvector import relative

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SIZES = (0, 1, 7, 63, 64, 65, 4097, 300_000)


def normal(size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def sign_vector(size: int, key: int) -> torch.Tensor:
    """The whole vector of signs that the projection never builds."""
    tile = projection.tile_of(torch.float64, torch.device("cpu"))
    tiles = projection.tile_signs(size, key, torch.device("cpu"))
    return torch.outer(tiles, tile).reshape(-1)[:size]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_equals_the_plain_sum_of_signed_values(dtype: torch.dtype, size: int) -> None:
    x = normal(size, dtype)
    got, squares = project(x, key=11)
    wide = x.double()
    assert float(squares) == pytest.approx(float(torch.dot(wide, wide)), rel=1e-5)
    assert abs(float(got) - float(torch.dot(wide, sign_vector(size, 11)))) <= 1e-6 * float(wide.norm())
    assert (got.dtype, got.shape, squares.dtype, squares.shape) == (torch.float64, (), torch.float64, ())


def test_signs_are_balanced_and_differ_between_keys() -> None:
    a, b = sign_vector(100_000, 1), sign_vector(100_000, 2)
    assert set(a.tolist()) == {-1.0, 1.0}
    assert abs(float(a.mean())) < 0.02
    assert 0.4 < float((a == b).double().mean()) < 0.6


def test_signs_are_pinned_so_that_every_rank_and_version_has_the_same() -> None:
    tile = projection.tile_of(torch.float32, torch.device("cpu"))
    assert "".join("+" if s > 0 else "-" for s in tile.tolist()[:32]) == "+--++--+--+----++++--+++++++--++"
    x = torch.arange(1.0, 1001.0)
    assert float(project(x, key=7)[0]) == float(project(x.clone(), key=7)[0]) == -282.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 63, 64, 4095, 4096])
def test_is_never_finite_when_a_value_is_not(dtype: torch.dtype, bad: float, where: int) -> None:
    x = normal(4097, dtype)
    x[where] = bad
    got, squares = project(x, key=3)
    assert not math.isfinite(float(got))
    assert not math.isfinite(float(squares))


@given(st.lists(st.tuples(st.integers(0, 699), st.sampled_from([math.inf, -math.inf])), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_infinities_that_cancel_leave_nan_and_never_a_number(places: list[tuple[int, float]]) -> None:
    x = normal(700)
    for index, bad in places:
        x[index] = bad
    assert not math.isfinite(float(project(x, key=3)[0]))


def test_two_opposite_infinities_in_one_tile_are_nan() -> None:
    signs = sign_vector(64, 0)
    x = torch.zeros(64)
    x[:2] = torch.tensor([math.inf, -math.inf]) * signs[0] * torch.tensor([1.0, float(signs[0] * signs[1])])
    assert math.isnan(float(project(x, key=0)[0]))


def test_large_half_precision_values_do_not_overflow() -> None:
    x = torch.full((5000,), 60_000.0, dtype=torch.float16)
    got, squares = project(x, key=1)
    assert math.isfinite(float(got))
    assert float(squares) == pytest.approx(5000 * float(x[0]) ** 2, rel=1e-5)


@pytest.mark.parametrize("size", [1e25, 1e-25])
def test_squares_outside_the_range_of_float32_are_right(size: float) -> None:
    x = torch.full((1000,), size)
    assert float(project(x, key=1)[1]) == pytest.approx(1000 * size**2, rel=1e-5)


def test_autocast_does_not_round_it() -> None:
    x = normal(10_000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = float(project(x, key=1)[0])
    assert inside == float(project(x, key=1)[0])


def test_strides_and_gradients_do_not_matter() -> None:
    x = torch.nn.Parameter(normal(4096).view(64, 64))
    got, _ = project(x.t(), key=5)
    assert not got.requires_grad
    assert float(got) == float(project(x.detach().t().contiguous(), key=5)[0])


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot project torch\.int64: only floating-point gradients are reduced"):
        project(torch.arange(3), key=0)


def reduced(
    dtype: torch.dtype, world: int, size: int, correlated: bool, seed: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Local gradients, already times 1/world, and their sum in the type of the reduce, one rank after the other."""
    local = [normal(size, torch.float64, seed * 100 + r) for r in range(world)]
    local = [(g.abs() if correlated else g) ** 3 / world for g in local]
    local = [g.to(dtype) for g in local]
    total = local[0].clone()
    for gradient in local[1:]:
        total += gradient
    return local, total


def sums_of(local: list[torch.Tensor], total: torch.Tensor, key: int = 9) -> tuple[float, float, float]:
    pairs = [project(g, key=key) for g in local]
    return sum(float(p) for p, _ in pairs), float(project(total, key=key)[0]), sum(float(s) for _, s in pairs)


def conserved(before: float, after: float, squares: float, limit: float) -> bool:
    """Tell whether the check that runs at every step would pass."""
    return relative(before, after, math.sqrt(squares)) <= limit


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("correlated", [False, True])
def test_clean_reduces_are_conserved_with_room_to_spare(dtype: torch.dtype, world: int, correlated: bool) -> None:
    for seed, size in enumerate((1, 7, 64, 1000, 20_000)):
        local, total = reduced(dtype, world, size, correlated, seed)
        assert conserved(*sums_of(local, total), tolerance(dtype) * 0.75)


@pytest.mark.parametrize("where", [0, 70, 19_999])
def test_a_wrong_value_of_five_millionths_of_the_norms_shows(where: int) -> None:
    local, total = reduced(torch.float32, 3, 20_000, False, 1)
    before, after, squares = sums_of(local, total)
    total[where] += 5e-6 * math.sqrt(squares)
    assert conserved(before, after, squares, tolerance(torch.float32))
    assert not conserved(before, sums_of(local, total)[1], squares, tolerance(torch.float32))


@pytest.mark.parametrize("index", range(0, 200, 13))
def test_one_value_read_as_ten_times_itself_shows(index: int) -> None:
    local, total = reduced(torch.float32, 3, 20_000, False, 2)
    total[index] *= 10
    assert not conserved(*sums_of(local, total), tolerance(torch.float32))


def test_an_all_zero_bucket_is_conserved() -> None:
    assert conserved(*sums_of([torch.zeros(100)] * 2, torch.zeros(100)), tolerance(torch.float32))


def test_tolerances_are_those_of_the_reduce_type() -> None:
    assert tolerance(torch.float32) == pytest.approx(4e-6)
    assert tolerance(torch.bfloat16) == 4 * 2**-7
    assert tolerance(torch.float16) == 4 * 2**-10
    assert tolerance(torch.float64) == pytest.approx(7.45e-15, rel=1e-3)


def test_the_sign_caches_are_bounded_and_shared_between_keys() -> None:
    projection._sequence.cache_clear()
    for key in range(100):
        project(normal(TILE * 3), key=key)
    assert projection._sequence.cache_info().currsize == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scaling_on_the_way_is_scaling(dtype: torch.dtype) -> None:
    x = normal(3 * projection.BLOCK // 2, dtype)
    scaled = x.clone()
    seen = project(scaled, key=5, scale=1 / 3)
    assert torch.equal(scaled, x.clone().mul_(1 / 3))
    assert [float(v) for v in seen] == [float(v) for v in project(x, key=5)]


def test_what_cannot_be_read_is_scaled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(2 * projection.BLOCK + 7, torch.float32)
    wanted, calls = x.clone().mul_(1 / 3), []

    def fails(block: torch.Tensor, near: bool) -> torch.Tensor:
        calls.append(block)
        if len(calls) == 2:
            raise MemoryError
        return torch.zeros((), dtype=torch.float64)

    monkeypatch.setattr(projection, "_square_sum", fails)
    with pytest.raises(MemoryError):
        project(x, key=5, scale=1 / 3)
    assert torch.equal(x, wanted)


def test_a_type_that_cannot_be_projected_is_scaled_all_the_same() -> None:
    x = torch.ones(100, dtype=torch.complex64)
    with pytest.raises(TypeError, match="cannot project"):
        project(x, key=5, scale=0.5)
    assert torch.equal(x, torch.full((100,), 0.5, dtype=torch.complex64))


def test_the_numbers_of_sparse_and_complex_tensors_hold_their_nan() -> None:
    sparse = torch.sparse_coo_tensor([[1, 3]], [[1.0, math.nan], [2.0, 3.0]], (5, 2), check_invariants=True)
    assert int(count_nonfinite(numbers_of(sparse))) == 1
    assert int(count_nonfinite(numbers_of(torch.tensor([1 + 1j, complex(0, math.inf)])))) == 1
    plain = torch.ones(3)
    assert numbers_of(plain) is plain
