"""Every kind of corruption on every floating-point type: what changes, what does not, and what is said about it."""

from __future__ import annotations

import math
import random
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lastgood.corruption import corrupt_
from lastgood.errors import ConfigError
from lastgood.fault_specs import KINDS
from lastgood.rot import rot_

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MANTISSA = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
DTYPES = st.sampled_from(sorted(MANTISSA, key=str))
SEEDS = st.integers(0, 2**32)


def values(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(INTEGERS[tensor.element_size()])


def flipped(before: torch.Tensor, after: torch.Tensor) -> dict[int, set[int]]:
    """Return flat index -> positions of the bits that differ."""
    width = before.element_size() * 8
    both = (bits(before) ^ bits(after)).tolist()
    return {i: {b for b in range(width) if x % 2**width >> b & 1} for i, x in enumerate(both) if x}


@settings(max_examples=150, deadline=None)
@given(DTYPES, st.sampled_from(KINDS), st.integers(1, 700), SEEDS)
def test_what_is_said_to_have_changed_has_changed_and_nothing_else(
    dtype: torch.dtype, kind: str, count: int, seed: int
) -> None:
    tensor = values(dtype, count, seed)
    before = tensor.clone()
    change = corrupt_(tensor, kind, seed=seed, width=4)
    wrong = flipped(before, tensor)
    assert len(wrong) == (change.values if change else 0)
    assert change or kind in ("tile-swap", "stuck-0", "stuck-1")
    if change and before.isfinite().all() and tensor.isfinite().all():
        difference = (tensor.double() - before.double()).abs()
        assert change.largest_difference == float(difference.max())
        assert change.largest_relative_difference == pytest.approx(
            max(d / abs(b) if b else math.inf for d, b in zip(difference.tolist(), before.tolist(), strict=True) if d)
        )
    elif change:
        assert change.largest_difference == math.inf


@settings(max_examples=100, deadline=None)
@given(DTYPES, st.sampled_from(["sign", "exponent", "mantissa-high", "mantissa-low"]), st.integers(1, 500), SEEDS)
def test_one_bit_of_its_part_of_one_value_flips(dtype: torch.dtype, kind: str, count: int, seed: int) -> None:
    tensor = values(dtype, count, seed)
    before = tensor.clone()
    assert corrupt_(tensor, kind, seed=seed) is not None
    ((bit,),) = flipped(before, tensor).values()
    mantissa, width = MANTISSA[dtype], dtype.itemsize * 8
    low, high = {
        "sign": (width - 1, width),
        "exponent": (mantissa, width - 1),
        "mantissa-high": (mantissa // 2, mantissa),
        "mantissa-low": (0, mantissa // 2),
    }[kind]
    assert low <= bit < high


@settings(max_examples=100, deadline=None)
@given(DTYPES, st.sampled_from(["warp", "stuck-0", "stuck-1"]), st.integers(1, 1000), SEEDS)
def test_a_lane_of_eight_warps_has_one_wrong_bit(dtype: torch.dtype, kind: str, count: int, seed: int) -> None:
    tensor = values(dtype, count, seed)
    before = tensor.clone()
    change = corrupt_(tensor, kind, seed=seed)
    assume(change is not None)
    wrong = flipped(before, tensor)
    places = sorted(wrong)
    assert len({place % 32 for place in places}) == 1
    assert len(places) <= 8
    assert places[-1] - places[0] <= 7 * 32
    assert len(set.union(*wrong.values())) == 1
    if kind == "warp":
        warps = -(-(count - places[0] % 32) // 32)
        assert len(places) == min(8, warps)
    else:
        (bit,) = set.union(*wrong.values())
        after = bits(tensor)[places] >> bit & 1
        assert set(after.tolist()) == {int(kind[-1])}


@pytest.mark.parametrize("kind", ["stuck-0", "stuck-1"])
@pytest.mark.parametrize("dtype", MANTISSA, ids=str)
def test_a_stuck_bit_is_one_that_changes_something_if_any_does(kind: str, dtype: torch.dtype) -> None:
    for value in (1.0, -2.0, 1.75, 3e-3):
        tensor = torch.full((256,), value, dtype=dtype)
        assert corrupt_(tensor, kind, seed=3) is not None
        assert (tensor != value).any()


@settings(max_examples=60, deadline=None)
@given(DTYPES, st.integers(2, 1000), SEEDS)
def test_two_tiles_change_places_and_no_value_is_lost(dtype: torch.dtype, count: int, seed: int) -> None:
    tensor = values(dtype, count, seed)
    before = tensor.clone()
    change = corrupt_(tensor, "tile-swap", seed=seed)
    assume(change is not None)
    assert torch.equal(tensor.sort().values, before.sort().values)
    size = min(64, count // 2)
    places = sorted(flipped(before, tensor))
    assert len({place // size for place in places}) == 2
    assert len(places) <= 2 * size


@settings(max_examples=60, deadline=None)
@given(DTYPES, st.sampled_from(KINDS), st.integers(1, 500), SEEDS)
def test_equal_tensors_are_corrupted_alike(dtype: torch.dtype, kind: str, count: int, seed: int) -> None:
    one, other = values(dtype, count, seed), values(dtype, count, seed)
    assert str(corrupt_(one, kind, seed=seed)) == str(corrupt_(other, kind, seed=seed))
    assert torch.equal(bits(one), bits(other))


# a file on disk


def saved(folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    state = {"a": torch.randn(300, 3), "b": torch.arange(40.0), "c": torch.tensor(7.0)}
    path = folder / "state.pt"
    torch.save(state, path)
    return path, state


@pytest.mark.parametrize("seed", range(12))
def test_one_byte_of_one_tensor_on_disk_changes_and_torch_loads_it_without_a_word(tmp_path: Path, seed: int) -> None:
    path, state = saved(tmp_path)
    before = path.read_bytes()
    assert path.name in rot_(path, seed)
    after = path.read_bytes()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    loaded = torch.load(path, weights_only=True)
    wrong = [name for name in state if not torch.equal(bits(loaded[name]), bits(state[name]))]
    assert len(wrong) == 1


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes/data/1", "text " * 100, zipfile.ZIP_DEFLATED)
    with pytest.raises(ConfigError, match=r"holds no tensor data that torch\.save wrote"):
        rot_(path, random.randrange(100))
