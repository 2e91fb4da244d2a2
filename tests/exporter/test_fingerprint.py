"""The fingerprint against an independent numpy form, its properties, and the faults that an XOR misses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood import fingerprint as fp
from lastgood.mixing import ramp

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128, torch.float8_e5m2, torch.float8_e4m3fn)
SIZES = (0, 1, 7, 17, 4097)


def numpy_mix(x: np.ndarray, lane: int) -> np.ndarray:
    """The mix, written a second time: unsigned arithmetic, logical shifts, published constants."""
    shifts, factors = (
        ((16, 13, 16), (0x85EBCA6B, 0xC2B2AE35)),
        ((16, 15, 16), (0x7FEB352D, 0x846CA68B)),
    )[lane]
    for shift, factor in zip(shifts, (*factors, 1), strict=True):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x


def numpy_fingerprint(words: np.ndarray, name: str, lane: int, offset: int = 0) -> int:
    """``words``: int32 in the order of the definition."""
    g, c, k = ((0x9E3779B1, 0x85EBCA77, 1), (0xC2B2AE3D, 0x27D4EB2F, 0x165667B1))[lane]
    index = np.arange(words.size, dtype=np.uint64) + np.uint64(offset)
    low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
    key = np.uint32(fp.key_of(name) * k % 2**32)
    seed = low * np.uint32(g) + key + high * np.uint32(c)
    mixed = numpy_mix(words.view(np.uint32) ^ seed, lane).view(np.int32)
    return sum(mixed.tolist()) % 2**64


def numpy_words(tensor: torch.Tensor) -> np.ndarray:
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    width = min(4, tensor.element_size())
    return raw.view({1: np.int8, 2: np.int16, 4: np.int32}[width]).astype(np.int32)


def random_bits(dtype: torch.dtype, size: int, seed: int = 0) -> torch.Tensor:
    """Every bit pattern, NaN payloads and -0.0 among them."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).bool()
    width = torch.empty((), dtype=dtype).element_size()
    return torch.randint(0, 256, (size * width,), generator=generator, dtype=torch.uint8).view(dtype)


def value(tensor: torch.Tensor, name: str = "w", lane: int = 0, offset: int = 0) -> int:
    return int(fp.fingerprint(tensor, name, lane=lane, offset=offset)) % 2**64


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp, "CPU_CHUNK", 64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("size", "lane"), list(itertools.product(SIZES, (0, 1))))
def test_agrees_with_the_numpy_form_on_every_bit_pattern(dtype: torch.dtype, size: int, lane: int) -> None:
    tensor = random_bits(dtype, size)
    assert value(tensor, lane=lane) == numpy_fingerprint(numpy_words(tensor), "w", lane)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_the_numpy_form_over_many_chunks(dtype: torch.dtype, small_chunks: None) -> None:
    tensor = random_bits(dtype, 4097)
    assert value(tensor, lane=1) == numpy_fingerprint(numpy_words(tensor), "w", 1)


@pytest.mark.parametrize("offset", [0, 5, 2**32 - 40, 2**32, 3 * 2**32 - 1, 2**40 + 3])
def test_the_high_word_of_the_index_counts_also_where_it_changes_inside_a_chunk(offset: int) -> None:
    tensor = random_bits(torch.float32, 100)
    assert value(tensor, offset=offset) == numpy_fingerprint(numpy_words(tensor), "w", 0, offset)


def test_is_pinned_to_numbers_that_stored_records_rely_on() -> None:
    digests = fp.digest_tensors([("a.weight", torch.arange(10.0)), ("b", torch.tensor(-0.0))], lanes=2)
    assert fp.key_of("a.weight") == 0xDE3B9784
    assert [digests.hex(0), digests.hex(1)] == ["00000001d9c2d1f9ffffffff1d50b5f4", "ffffffffef063d25ffffffff84e32b36"]


NONCONTIGUOUS = {
    "transposed": lambda x: x.view(64, 64).t(),
    "strided": lambda x: x[::3],
    "permuted": lambda x: x.view(4, 16, 8, 8).permute(3, 1, 0, 2),
    "expanded": lambda x: x[:8].view(8, 1).expand(8, 300),
    "narrowed": lambda x: x.view(64, 64)[3:50, 7:9],
    "channels last": lambda x: x.view(2, 8, 16, 16).contiguous(memory_format=torch.channels_last),
    "one long row": lambda x: x.view(1, 4096)[:, ::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("view", NONCONTIGUOUS)
def test_strides_do_not_matter(dtype: torch.dtype, view: str, small_chunks: None) -> None:
    tensor = NONCONTIGUOUS[view](random_bits(dtype, 4096))
    assert value(tensor) == value(tensor.contiguous())
    assert int(fp.count_nonfinite(tensor)) == int(fp.count_nonfinite(tensor.contiguous()))


def test_a_strided_tensor_is_never_copied_whole(small_chunks: None) -> None:
    tensor = torch.arange(64 * 64.0).view(64, 64).t()
    assert max(piece.numel() for _, piece in fp._pieces(tensor, 64)) == 64


@given(cuts=st.lists(st.integers(0, 1000), max_size=8), dtype=st.sampled_from(DTYPES), lane=st.sampled_from((0, 1)))
@settings(max_examples=60, deadline=None)
def test_merged_over_any_cuts_it_equals_the_whole(cuts: list[int], dtype: torch.dtype, lane: int) -> None:
    tensor = random_bits(dtype, 1000)
    edges = [0, *sorted(cuts), 1000]
    parts = [fp.fingerprint(tensor[a:b], "w", lane=lane, offset=a) for a, b in itertools.pairwise(edges)]
    assert int(torch.stack(parts).sum()) % 2**64 == value(tensor, lane=lane)


@given(i=st.integers(0, 499), new=st.integers(0, 2**63 - 1), dtype=st.sampled_from(FLOATS + INTEGERS))
@settings(max_examples=100, deadline=None)
def test_one_changed_element_always_changes_it(i: int, new: int, dtype: torch.dtype) -> None:
    tensor = random_bits(dtype, 500)
    other = tensor.clone()
    bits = other.view(fp._SIGNED[dtype.itemsize])
    bits[i] = torch.tensor(new).to(bits.dtype)
    same = torch.equal(bits, tensor.view(bits.dtype))
    assert (value(tensor) == value(other)) == same


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_single_bit_of_an_element_counts(dtype: torch.dtype) -> None:
    tensor = random_bits(dtype, 9)
    seen = {value(tensor)}
    for bit in range(dtype.itemsize * 8):
        flipped = tensor.clone()
        raw = flipped[4:5].view(torch.uint8)
        raw[bit // 8] ^= 1 << (bit % 8)
        seen.add(value(flipped))
    assert len(seen) == dtype.itemsize * 8 + 1


@given(i=st.integers(0, 299), j=st.integers(0, 299), dtype=st.sampled_from(FLOATS))
@settings(max_examples=100, deadline=None)
def test_a_swap_of_two_unequal_elements_changes_it(i: int, j: int, dtype: torch.dtype) -> None:
    tensor = random_bits(dtype, 300)
    bits = tensor.view(fp._SIGNED[dtype.itemsize])
    swapped = bits.clone()
    swapped[[i, j]] = bits[[j, i]]
    assert (value(tensor) == value(swapped.view(dtype))) == torch.equal(bits, swapped)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_bit_in_a_lane_of_eight_warps_changes_it_where_an_xor_is_blind(dtype: torch.dtype) -> None:
    tensor = torch.randn(4096, generator=torch.Generator().manual_seed(1)).to(dtype)
    other = tensor.clone()
    other.view(fp._SIGNED[dtype.itemsize])[5 : 5 + 8 * 32 : 32] ^= 1 << 6
    assert torch.equal(torch.hash_tensor(tensor).view(torch.int64), torch.hash_tensor(other).view(torch.int64))
    assert value(tensor) != value(other)


def test_negative_zero_and_nan_payloads_count() -> None:
    patterns = torch.tensor([0, -(2**31), 0x7FC00000, 0x7FC00001, 0x7F800000], dtype=torch.int32).view(torch.float32)
    assert len({value(pattern) for pattern in patterns}) == 5


def test_the_name_and_the_lane_count() -> None:
    tensor = torch.zeros(10)
    assert len({value(tensor, name, lane) for name in ("a", "b", "a.b") for lane in (0, 1)}) == 6


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("module.layers.0.weight", "layers.0.weight"),
        ("_orig_mod.module.a", "a"),
        ("a.module._orig_mod.b", "a.b"),
        ("submodule.w", "submodule.w"),
        ("module", "module"),
        ("", ""),
    ],
)
def test_wrapper_prefixes_are_stripped_anywhere(name: str, canonical: str) -> None:
    assert fp.canonical_name(name) == canonical
    assert fp.key_of(name) == fp.key_of(canonical)


def test_names_of_a_wrapped_and_compiled_model_are_those_of_the_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    compiled = torch.compile(model, backend="eager")
    plain, wrapped = (fp.digest_tensors(m.named_parameters(), lanes=2) for m in (model, compiled))
    assert plain.names == wrapped.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert torch.equal(plain.values, wrapped.values)


def test_digests_name_each_tensor_and_add_up() -> None:
    items = [("module.a", torch.randn(3, 5)), ("b", torch.arange(4)), ("empty", torch.zeros(0))]
    digests = fp.digest_tensors(items, lanes=2)
    lanes = [sum(value(t, n, lane) for n, t in items) % 2**64 for lane in (0, 1)]
    assert digests.hex() == f"{lanes[0]:016x}{lanes[1]:016x}"
    assert digests.by_name() == {name: digests.hex(i) for i, name in enumerate(digests.names)}
    assert digests.hex(2) == "0" * 32
    assert digests.values.shape == (3, 2)


def test_no_tensors_have_the_fingerprint_zero() -> None:
    digests = fp.digest_tensors([], lanes=2)
    assert (digests.names, digests.hex(), digests.by_name()) == ((), "0" * 32, {})


def test_two_tensors_of_one_canonical_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tensors are named 'a': names must be unique"):
        fp.digest_tensors([("module.a", torch.zeros(1)), ("a", torch.zeros(1))])


def test_a_third_lane_is_refused() -> None:
    with pytest.raises(ValueError, match="lanes is 3: it must be 1"):
        fp.digest_tensors([], lanes=3)


def test_sparse_tensors_are_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match="must be dense; pass its values and indices"):
        fp.fingerprint(torch.eye(3).to_sparse(), "w")


def test_gradients_and_training_are_left_alone() -> None:
    weight = torch.nn.Parameter(torch.randn(5, 3))
    before = weight.detach().clone()
    assert not fp.fingerprint(weight, "w").requires_grad
    fp.measure(weight.t(), "w")
    assert torch.equal(before, weight)


def test_works_first_inside_and_then_outside_inference_mode() -> None:
    ramp.cache_clear()
    with torch.inference_mode():
        inside = value(torch.arange(7.0))
    assert value(torch.nn.Parameter(torch.arange(7.0))) == inside


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_measure_sees_a_single_nonfinite_value_and_counts_it(dtype: torch.dtype, bad: float) -> None:
    tensor = torch.linspace(-3, 3, 1001).to(dtype)
    _, squares, top = fp.measure(tensor, "w")
    assert not fp.is_nonfinite(int(top), dtype)
    assert float(squares) == pytest.approx(float((tensor.double() ** 2).sum()), rel=1e-12)
    tensor[500] = bad
    fingerprint, _, top = fp.measure(tensor, "w")
    assert fp.is_nonfinite(int(top), dtype)
    assert int(fp.count_nonfinite(tensor)) == 1
    assert int(fingerprint) % 2**64 == value(tensor)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e5m2, torch.float8_e4m3fn], ids=str)
def test_the_count_on_the_bits_equals_isfinite_on_every_pattern(dtype: torch.dtype, small_chunks: None) -> None:
    tensor = random_bits(dtype, 5000)
    expected = int((~tensor.double().isfinite()).sum())
    assert int(fp.count_nonfinite(tensor)) == expected > 0


def test_the_largest_finite_value_is_finite() -> None:
    for dtype in FLOATS:
        tensor = torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).min], dtype=dtype)
        assert not fp.is_nonfinite(int(fp.measure(tensor, "w")[2]), dtype)
        assert int(fp.count_nonfinite(tensor)) == 0


def test_squares_of_large_finite_values_do_not_overflow() -> None:
    assert float(fp.measure(torch.full((3,), 1e30), "w")[1]) == pytest.approx(3e60, rel=1e-6)


def test_integers_are_never_nonfinite() -> None:
    fingerprint, squares, top = fp.measure(torch.tensor([3, -4]), "w")
    assert (float(squares), int(top)) == (25.0, 0)
    assert not fp.is_nonfinite(2**62, torch.int64)
    assert int(fp.count_nonfinite(torch.tensor([3, -4]))) == 0
    assert int(fingerprint) % 2**64 == value(torch.tensor([3, -4]))


def test_a_float_of_unknown_bits_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"float8_e4m3fnuz are not known: use one of torch\.float64"):
        fp.count_nonfinite(torch.zeros(2).to(torch.float8_e4m3fnuz))
