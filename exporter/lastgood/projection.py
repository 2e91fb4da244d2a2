"""Project a gradient bucket onto random signs, so that a sum of buckets can be checked by a sum of numbers.

A reduce is linear: the ranks' projections must add up to the projection of the reduced bucket. A value that is wrong
inside the reduce, on the wire or in the result, breaks this on every rank's screen although all replicas agree.

The signs are tiled: one sign per element of a tile of 64, the same for all tiles (a matrix-vector product), times one
sign per tile, chosen by the key, in float64. That reads the bucket at memory speed without a vector of signs as large
as the bucket. The tile is short because rounding grows with its length: a product over 4,096 elements is as fast and
has seven times the noise (6e-7 of the norm against 9e-8). The signs are hashes of the index, equal on every rank,
device and torch version.

The products are summed in float32 or wider and no sign is zero, so the projection is *never finite when a value is
not*: NaN stays NaN, and infinities give an infinity or, when they cancel, NaN. The reverse does not hold (finite
float32 values near 1e38 can overflow in a tile): recount on the bits before a non-finite projection is a finding.

Not covered: an exchange of elements with equal signs (half of those inside one tile), and changes smaller
than the tolerance. It is no fingerprint; it tolerates the rounding of a reduce, which a fingerprint cannot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from lastgood.fingerprint import SQUARES_FLOOR, key_of
from lastgood.mixing import made, sign_bits

TILE: Final = 64
BLOCK: Final = 16384 * TILE
"""Elements that are read at once on a CPU: 4 MiB in float32. Smaller pieces cost more in calls than the cache saves."""
ROW: Final = 4096
DEVICE_BLOCK: Final = 1024 * BLOCK

WINDOWS: Final = 4093
"""Different sign sequences that keys choose between (a prime)."""

FLOAT32_TOLERANCE: Final = 4e-6
"""Clean float32 reduces stay at 3e-7 to 4e-7 of the local norms."""


def numbers_of(tensor: Tensor) -> Tensor:
    """Return a tensor's numbers as a dense one: of a sparse gradient its values, of complex numbers both parts."""
    dense = tensor._values() if tensor.layout == torch.sparse_coo else tensor
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def project(x: Tensor, *, key: int, scale: float | None = None, near: bool | None = None) -> tuple[Tensor, Tensor]:
    """Return (projection, square sum) of a floating-point tensor: 0-dim float64 on its device.

    ``key`` chooses the signs of the tiles: ranks that compare must pass the same. Accelerators are not read back.
    ``scale``: also multiply the (contiguous) tensor by it, in place and after it was read, while it is in the cache;
    every element is scaled exactly once, also when reading fails. ``near``: the host may read a number (as on a CPU);
    otherwise squares are summed in float64 from the start. Raises TypeError for other types.
    """
    flat = x.detach().reshape(-1)
    near = flat.device.type == "cpu" if near is None else near
    projection = torch.zeros((), dtype=torch.float64, device=flat.device)
    squares = torch.zeros_like(projection)
    start = 0
    try:
        _require_floating(flat)
        signs = tile_signs(flat.numel(), key, flat.device)
        with full_precision(flat.device.type):
            for start, piece in _pieces(flat):
                block = widened(piece)
                projection += _signed_sum(block, signs[start // TILE :])
                squares += _square_sum(block, near)
                if scale is not None:
                    piece.mul_(scale)
    except Exception:
        if scale is not None:
            flat[start:].mul_(scale)
        raise
    if near and not SQUARES_FLOOR < float(squares) < math.inf:
        squares = _exact_square_sum(flat) / (scale or 1.0) ** 2
    return projection, squares


def square_sum(x: Tensor, *, near: bool | None = None) -> Tensor:
    """Return the square sum of a floating-point tensor alone: 0-dim float64 on its device. ``near``: as above."""
    _require_floating(x)
    flat = x.detach().reshape(-1)
    near = flat.device.type == "cpu" if near is None else near
    squares = torch.zeros((), dtype=torch.float64, device=flat.device)
    for _, piece in _pieces(flat):
        squares += _square_sum(widened(piece), near)
    return squares if not near or SQUARES_FLOOR < float(squares) < math.inf else _exact_square_sum(flat)


def project_only(x: Tensor, *, key: int) -> Tensor:
    """Return the projection alone, for a second look at a bucket whose norm is known: 40 % of the time."""
    _require_floating(x)
    flat = x.detach().reshape(-1)
    signs = tile_signs(flat.numel(), key, flat.device)
    projection = torch.zeros((), dtype=torch.float64, device=flat.device)
    with full_precision(flat.device.type):
        for start, piece in _pieces(flat):
            projection += _signed_sum(widened(piece), signs[start // TILE :])
    return projection


def _require_floating(x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(f"cannot project {x.dtype}: only floating-point gradients are reduced; leave this tensor out")


def _signed_sum(block: Tensor, signs: Tensor) -> Tensor:
    sums = _tile_sums(block)
    return torch.dot(sums.double(), signs[: sums.numel()])


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest clean difference of projections, as a share of the local norms, for a reduce in ``dtype``.

    Four roundings of a narrow type cover its reduce. In float32 and float64 the rounding of the projection itself is
    of the same size (in float64 3 to 6 eps were measured), so both get 34 eps: 4e-6 and 7e-15.
    """
    eps = torch.finfo(dtype).eps
    return eps * FLOAT32_TOLERANCE / torch.finfo(torch.float32).eps if dtype.itemsize >= 4 else 4 * eps


@contextmanager
def full_precision(device_type: str) -> Iterator[None]:
    """Switch autocast off: a bfloat16 product would drown a fault in rounding.

    Not with ``torch.autocast``: its end clears the cache of casts, which all threads share, also that of the user's
    own autocast region.
    """
    enabled = torch.is_autocast_enabled(device_type)
    torch.set_autocast_enabled(device_type, False)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device_type, enabled)


def _pieces(flat: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield (start, view) of pieces that fit the cache."""
    size = BLOCK if flat.device.type == "cpu" else DEVICE_BLOCK
    yield from ((start, flat[start : start + size]) for start in range(0, flat.numel(), size))


def widened(piece: Tensor) -> Tensor:
    """Return a piece in float32 or wider. Only narrower types are copied."""
    wide = torch.promote_types(piece.dtype, torch.float32) if piece.element_size() > 1 else torch.float32
    return piece.to(wide)


def _tile_sums(block: Tensor) -> Tensor:
    """Return the signed sum of each tile; the last may be a shorter one."""
    tile = tile_of(block.dtype, block.device)
    whole = block.numel() // TILE * TILE
    sums, rest = torch.mv(block[:whole].view(-1, TILE), tile), block[whole:]
    return torch.cat([sums, torch.dot(rest, tile[: rest.numel()]).view(1)]) if rest.numel() else sums


def _square_sum(block: Tensor, near: bool) -> Tensor:
    """Return the float64 square sum of a block.

    On a CPU a float64 accumulation of float32 values is 60 times slower than float32 norms, and one norm of millions
    of values is off by 7e-4. So norms of rows are squared and added in float64 (5e-9); the caller looks whether
    squares left the range of float32.
    """
    if not near:
        norm: Tensor = torch.linalg.vector_norm(block, dtype=torch.float64)
        return norm * norm
    whole = block.numel() // ROW * ROW
    rows: Tensor = torch.linalg.vector_norm(block[:whole].view(-1, ROW), dim=1).double()
    rest: Tensor = torch.linalg.vector_norm(block[whole:]).double()
    return torch.dot(rows, rows) + rest * rest


def _exact_square_sum(flat: Tensor) -> Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for _, piece in _pieces(flat):
        wide = piece.double()
        squares += torch.dot(wide, wide)
    return squares


@lru_cache(maxsize=16)
def tile_of(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the signs of the elements of a tile, +1 or -1."""
    return made(_signs(TILE, "lastgood.projection.tile", device).to(dtype))


def tile_signs(elements: int, key: int, device: torch.device) -> Tensor:
    """Return one float64 sign per tile: a window, placed by the key, of one sequence that all buckets share."""
    tiles = -(-elements // TILE)
    start = key % WINDOWS
    return _sequence(1 << (tiles + WINDOWS).bit_length(), device)[start : start + tiles]


@lru_cache(maxsize=8)
def _sequence(tiles: int, device: torch.device) -> Tensor:
    return made(_signs(tiles, "lastgood.projection.tiles", device))


def _signs(count: int, name: str, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return 1 - 2 * sign_bits(count, key_of(name), device).double()
