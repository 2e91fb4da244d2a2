"""Fingerprint tensors on their bit patterns, so that equal bytes give equal numbers on every rank.

::

    fingerprint = sum over words of mix(word ^ (lo32(index) * G + key(name) + hi32(index) * C))  mod 2^64

The sum of integers does not depend on order and can be merged over chunks, shards and ranks with int64 addition. The
index and the name are inside the mix, so a swap of two elements, the exchange of two tiles and one bit flipped in
many elements (a warp's lane) change it; an XOR over the words misses all three. Floats are never cast: -0.0 and 0.0
differ, and so do two NaNs with other payloads.

A *word* is 32 bits. Elements of up to 32 bits are one word each, sign-extended, and ``index`` is the element's flat
index; wider elements are several words, low word first, with index = element index * words per element + word. The
mix is a 32-bit finalizer (a bijection), its result read as a signed number. So one changed word *always* changes the
fingerprint, and several changed words are missed with probability of about 0.67 * 2^-32 in one lane. The second lane
has other constants, for fingerprints that are stored.

Eager torch works in chunks: temporary memory is three chunks whatever the tensor's size. Where checks are compiled,
whole rows of a tensor are read by one fused kernel instead (:mod:`lastgood.fingerprint_compiled`), with the same
results. Fingerprints are not read back to the host, and every function works on any device. Not covered: sparse and
quantized tensors (TypeError), and the resharding of DTensors (pass the local shard with its ``offset``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from lastgood import fingerprint_compiled
from lastgood.mixing import LANES, WORD, mix_, ramp

WRAPPERS: Final = frozenset({"module", "_orig_mod"})
"""Path segments that DistributedDataParallel and ``torch.compile`` put into parameter names."""

CPU_CHUNK: Final = 1 << 16
DEVICE_CHUNK: Final = 1 << 22
"""Words per chunk: three buffers of 256 KiB stay in a core's cache; on a GPU 16 MiB fill it."""

NONFINITE_BITS: Final[dict[torch.dtype, int]] = {
    torch.float64: 0x7FF0_0000_0000_0000,
    torch.float32: 0x7F80_0000,
    torch.bfloat16: 0x7F80,
    torch.float16: 0x7C00,
    torch.float8_e5m2: 0x7C,
    torch.float8_e4m3fn: 0x7F,
}
"""A value is NaN or infinite iff its bits without the sign are at least this (``float8_e4m3fn`` has NaN only)."""

SQUARES_FLOOR: Final = 1e-30
"""Below this, float32 squares may have been lost to underflow."""

_SIGNED: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def canonical_name(name: str) -> str:
    """Strip the segments ``module`` and ``_orig_mod`` that wrappers add anywhere in a dotted path.

    >>> canonical_name("module._orig_mod.layers.0.module.weight")
    'layers.0.weight'
    """
    *path, last = name.split(".")
    return ".".join([part for part in path if part not in WRAPPERS] + [last])


@lru_cache(maxsize=1 << 16)
def key_of(name: str) -> int:
    """Return the 32-bit key of a tensor's canonical name, the same in every process and version."""
    return int.from_bytes(hashlib.blake2b(canonical_name(name).encode(), digest_size=4).digest(), "little")


def hex64(value: int) -> str:
    """Return 16 hexadecimal digits of a fingerprint modulo 2^64 (int64 values may be negative)."""
    return f"{value % (1 << 64):016x}"


def fingerprint(tensor: Tensor, name: str, *, lane: int = 0, offset: int = 0) -> Tensor:
    """Return the fingerprint as a 0-dim int64 tensor on the tensor's device, without a host read.

    ``offset`` is the flat index of the first element in the whole tensor: the fingerprints of consecutive pieces add
    up, modulo 2^64, to the fingerprint of the whole. Raises TypeError for tensors that have no plain words.
    """
    return _sums(tensor, key_of(name), (lane,), offset)[0]


@dataclass(frozen=True, slots=True)
class TensorDigests:
    """Fingerprints of a set of named tensors. ``names`` are canonical; ``values`` is int64 of shape [n, lanes]."""

    names: tuple[str, ...]
    values: Tensor
    _index: dict[str, int] = field(repr=False, compare=False)

    def total(self) -> Tensor:
        """Return the whole set's fingerprint, int64 of shape [lanes]: the sum modulo 2^64."""
        return self.values.sum(0)

    def hex(self, i: int | None = None) -> str:
        """Return 16 hexadecimal digits per lane of tensor ``i``, or of the whole set. Reads from the device."""
        row = self.total() if i is None else self.values[i]
        return "".join(hex64(value) for value in row.tolist())

    def by_name(self) -> dict[str, str]:
        """Return canonical name -> hexadecimal digits, with one read from the device."""
        rows = self.values.tolist()
        return {name: "".join(map(hex64, rows[i])) for name, i in self._index.items()}


def digest_tensors(items: Iterable[tuple[str, Tensor]], *, lanes: int = 1) -> TensorDigests:
    """Fingerprint named tensors; ``values`` lies on the device of the first one.

    Raises ValueError when two names are one canonical name: their elements could be exchanged unseen.
    """
    if lanes not in (1, 2):
        raise ValueError(f"lanes is {lanes!r}: it must be 1 (in the loop) or 2 (for stored fingerprints)")
    index: dict[str, int] = {}
    rows: list[Tensor] = []
    for name, tensor in items:
        canonical = canonical_name(name)
        if index.setdefault(canonical, len(rows)) != len(rows):
            raise ValueError(f"two tensors are named {canonical!r}: names must be unique, give one a prefix")
        rows.append(_sums(tensor, key_of(canonical), range(lanes), 0))
    device = rows[0].device if rows else torch.device("cpu")
    empty = torch.zeros((0, lanes), dtype=torch.int64)
    values = torch.stack([row.to(device) for row in rows]) if rows else empty
    return TensorDigests(tuple(index), values, index)


def measure(tensor: Tensor, name: str, *, offset: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Read a tensor once for three 0-dim results: fingerprint int64, square sum float64, largest bits int64.

    The largest bits are those without the sign (see :data:`NONFINITE_BITS` and :func:`is_nonfinite`); they are 0 for
    integers. Square sums are not exact under merging; fingerprints, counts and largest bits are.
    """
    offset *= _parts(tensor)
    tensor = _plain(tensor)
    key, found = key_of(name), _Measures(tensor.device)
    for start, flat in _runs(tensor):
        index = (offset + start) * _words_per_element(flat)
        part = fingerprint_compiled.measure(flat, index, key) if flat.dtype in fingerprint_compiled.SQUARED else None
        if part is not None and _kept_its_squares(part):
            found.add(part.sums[0], part.squares, part.top)
            for low, high in ((0, part.low), (part.high, flat.numel())):
                _measure_eagerly(flat[low:high], index + low, key, found)
        else:
            _measure_eagerly(flat, index, key, found)
    return found.total, found.squares, found.top


@dataclass(slots=True)
class _Measures:
    """The three results of :func:`measure`, growing piece by piece."""

    device: torch.device
    total: Tensor = field(init=False)
    squares: Tensor = field(init=False)
    top: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.total = torch.zeros((), dtype=torch.int64, device=self.device)
        self.squares = torch.zeros((), dtype=torch.float64, device=self.device)
        self.top = torch.zeros((), dtype=torch.int64, device=self.device)

    def add(self, total: Tensor, squares: Tensor | None, top: Tensor | None) -> None:
        self.total += total
        if squares is not None:
            self.squares += squares
        if top is not None:
            self.top = torch.maximum(self.top, top)


def _kept_its_squares(part: fingerprint_compiled.Part) -> bool:
    """Tell whether the squares stayed in the range of float32, where they were taken in it (a CPU's)."""
    squares = part.squares
    return squares is None or squares.device.type != "cpu" or SQUARES_FLOOR < float(squares) < math.inf


def _measure_eagerly(flat: Tensor, index: int, key: int, found: _Measures) -> None:
    buffers, chunk = _Buffers(flat, _chunk_of(flat)), _chunk_of(flat)
    for start, piece in _pieces(flat, chunk):
        values = piece.to(torch.float64)
        found.add(
            _mixed_sum(_words(piece), index + start * _words_per_element(piece), key, 0, buffers),
            torch.dot(values, values),
            _magnitude_bits(piece).max() if piece.is_floating_point() else None,
        )


def is_nonfinite(max_bits: int, dtype: torch.dtype) -> bool:
    """Say whether the largest bits that :func:`measure` found belong to a NaN or an infinity."""
    return dtype.is_floating_point and max_bits >= _nonfinite_bits(dtype)


def count_nonfinite(tensor: Tensor) -> Tensor:
    """Count NaN and infinite elements on the bits, 0-dim int64 on the tensor's device; complex ones once per part."""
    tensor = _plain(tensor)
    count = torch.zeros((), dtype=torch.int64, device=tensor.device)
    if tensor.is_floating_point():
        limit = _nonfinite_bits(tensor.dtype)
        for _, flat in _pieces(tensor, _chunk_of(tensor)):
            count += (_magnitude_bits(flat) >= limit).sum()
    return count


def _plain(tensor: Tensor) -> Tensor:
    """Return the tensor without autograd, lazy conjugation or complex numbers (two real elements each)."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"cannot fingerprint a {tensor.layout} tensor: it must be dense; pass its values and indices")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _parts(tensor: Tensor) -> int:
    return 2 if tensor.is_complex() else 1


def _nonfinite_bits(dtype: torch.dtype) -> int:
    if dtype not in NONFINITE_BITS:
        known = ", ".join(str(d) for d in NONFINITE_BITS)
        raise TypeError(f"the non-finite bits of {dtype} are not known: use one of {known}")
    return NONFINITE_BITS[dtype]


def _magnitude_bits(flat: Tensor) -> Tensor:
    """Return the bits of a float chunk without the sign, in the signed integer type of its width, as a copy."""
    bits = flat.view(_SIGNED[flat.element_size()])
    return bits & torch.iinfo(bits.dtype).max


def _chunk_of(tensor: Tensor) -> int:
    """Return the elements per chunk."""
    words = CPU_CHUNK if tensor.device.type == "cpu" else DEVICE_CHUNK
    return words // _words_per_element(tensor)


def _words_per_element(tensor: Tensor) -> int:
    return max(1, tensor.element_size() // 4)


def _words(flat: Tensor) -> Tensor:
    """View a contiguous chunk as signed integers of at most 32 bits, without a copy."""
    return flat.view(_SIGNED[min(4, flat.element_size())])


def _pieces(tensor: Tensor, limit: int) -> Iterator[tuple[int, Tensor]]:
    """Yield (flat index of the first element, contiguous 1-D piece of at most ``limit`` elements) in logical order.

    Contiguous tensors are viewed. Others are cut along their first dimension, so that a copy is never larger than a
    piece: ``reshape(-1)`` would copy the whole.
    """
    if tensor.is_contiguous():
        flat = tensor.view(-1)
        yield from ((start, flat[start : start + limit]) for start in range(0, flat.numel(), limit))
        return
    row = tensor[0].numel()
    rows = limit // row
    for i in range(0, tensor.shape[0], rows or 1):
        if rows:
            yield i * row, tensor[i : i + rows].reshape(-1).contiguous()
        else:
            yield from ((i * row + start, piece) for start, piece in _pieces(tensor[i], limit))


def _runs(tensor: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield (flat index of the first element, contiguous run): a contiguous tensor whole, another in chunks."""
    return _pieces(tensor, max(1, tensor.numel()) if tensor.is_contiguous() else _chunk_of(tensor))


class _Buffers:
    """Two int32 chunks that one pass reuses."""

    def __init__(self, tensor: Tensor, chunk: int) -> None:
        size = min(tensor.numel(), chunk) * _words_per_element(tensor)
        self.mixed = torch.empty(size, dtype=torch.int32, device=tensor.device)
        self.spare = torch.empty_like(self.mixed)


def _sums(tensor: Tensor, key: int, lanes: Sequence[int], offset: int) -> Tensor:
    """Return the fingerprints of all ``lanes``, int64 of shape [lanes], reading the tensor once."""
    offset *= _parts(tensor)
    tensor = _plain(tensor)
    totals = torch.zeros(len(lanes), dtype=torch.int64, device=tensor.device)
    for start, flat in _runs(tensor):
        words, index = _words(flat), (offset + start) * _words_per_element(flat)
        part = fingerprint_compiled.sums(words, index, key, lanes)
        if part is None:
            _add_eagerly(words, index, key, lanes, totals)
            continue
        totals += part.sums
        for low, high in ((0, part.low), (part.high, words.numel())):
            _add_eagerly(words[low:high], index + low, key, lanes, totals)
    return totals


def _add_eagerly(words: Tensor, index: int, key: int, lanes: Sequence[int], totals: Tensor) -> None:
    chunk = _chunk_words(words)
    buffers = _Buffers(words, chunk)
    for start, piece in _pieces(words, chunk):
        for column, lane in enumerate(lanes):
            totals[column] += _mixed_sum(piece, index + start, key, lane, buffers)


def _mixed_sum(words: Tensor, index: int, key: int, lane: int, buffers: _Buffers) -> Tensor:
    """Return the sum of the mixed words, 0-dim int64; ``index`` is that of the first word."""
    before_carry = WORD - index % WORD
    if words.numel() > before_carry:  # hi32(index) changes inside this chunk
        head = _mixed_sum(words[:before_carry], index, key, lane, buffers)
        return head + _mixed_sum(words[before_carry:], index + before_carry, key, lane, buffers)
    steps = ramp(_chunk_words(words), words.device, lane)
    mixed, spare = buffers.mixed[: words.numel()], buffers.spare[: words.numel()]
    torch.add(steps[: words.numel()], LANES[lane].seed(index, key), out=mixed)
    mix_(mixed.bitwise_xor_(words), spare, LANES[lane])
    return mixed.sum(dtype=torch.int64)


def _chunk_words(words: Tensor) -> int:
    return CPU_CHUNK if words.device.type == "cpu" else DEVICE_CHUNK
