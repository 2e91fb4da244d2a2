"""Corrupt a few values of a real tensor in place, the same ones for the same seed.

The values are chosen so that the damage is real: among seeded candidates the largest is taken, because a zero times
ten is still zero. The choice depends on the seed and on the tensor alone, so that replicas with equal bytes are
corrupted alike and a permanent fault hits the same lane again.

Kinds, after what broken hardware was seen to do:

- ``bit`` (any, by default one of the upper half of the mantissa), ``sign``, ``exponent``, ``mantissa-high``,
  ``mantissa-low``: one bit of one value
- ``warp``: the same bit in the same lane of 8 warps of 32 values
- ``stuck-0``, ``stuck-1``: one bit forced in one lane of 8 warps
- ``tile-swap``: two tiles of 64 values exchanged, as a wrong address would
- ``scale``, ``nan``, ``inf``: ``width`` neighbouring values
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.errors import ConfigError

CANDIDATES: Final = 256
WARP: Final = 32
WARPS: Final = 8
TILE: Final = 64
IGNORED_TARGET: Final = -100
"""What ``torch.nn.functional.cross_entropy`` leaves out: a batch of nothing else has the loss 0/0."""

TARGET_KEYS: Final = ("labels", "targets", "target", "y")

_SIGNED: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MANTISSA_BITS: Final = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
_ONE_BIT: Final = ("bit", "sign", "exponent", "mantissa-high", "mantissa-low")
_LANE: Final = ("warp", "stuck-0", "stuck-1")


@dataclass(frozen=True, slots=True)
class Change:
    """What was done. Differences are infinite where a value was or became not finite, or where a zero changed."""

    words: str
    values: int
    """How many values have other bits than before."""
    largest_difference: float
    largest_relative_difference: float

    def __str__(self) -> str:
        return self.words


def corrupt_(
    tensor: Tensor, kind: str, *, seed: int, width: int = 1, bit: int | None = None, factor: float = 10.0
) -> Change | None:
    """Corrupt values in place; return what was done, or None when nothing could change.

    ``width`` counts neighbouring values for "scale", "nan" and "inf". ``bit`` chooses the bit of "bit" and "warp".
    """
    target = _target(tensor, seed)
    if target is None:
        return None
    flat = _places(tensor.numel(), kind, target, width, seed).to(tensor.device)
    if not flat.numel():
        return None
    place: Any = torch.unravel_index(flat, tensor.shape) if tensor.shape else ()
    with torch.no_grad():
        old = tensor.detach()[place].reshape(-1).clone()
        new, words = _wrong(old, kind, seed, bit, factor)
        changed = int((_bits(new) != _bits(old)).sum())
        if not changed:
            return None
        tensor.detach()[place] = new.view(()) if not tensor.shape else new
    count = f"{old.numel()} values from" if old.numel() > 1 else "value at"
    told = f"{words}, {count} flat index {int(flat[0])}: {float(old[0]):.6g} -> {float(new[0]):.6g}"
    return Change(told, changed, *_differences(old, new))


def without_targets(batch: Any) -> Any:
    """Return a copy of the batch in which every target is ignored (integers) or not a number (floats).

    Targets are the tensor under one of :data:`TARGET_KEYS`, else the last tensor of a tuple, list or dictionary.
    Raises ConfigError when there is none.
    """
    if isinstance(batch, Tensor):
        return torch.full_like(batch, math.nan if batch.is_floating_point() else IGNORED_TARGET)
    if isinstance(batch, dict):
        named = [key for key in TARGET_KEYS if isinstance(batch.get(key), Tensor)]
        key = named[0] if named else _last_tensor(batch, batch.items())
        return batch | {key: without_targets(batch[key])}
    if isinstance(batch, (tuple, list)):
        items = list(batch)
        place = _last_tensor(batch, enumerate(items))
        items[place] = without_targets(items[place])
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return _last_tensor(batch, ())


def _last_tensor(batch: Any, items: Any) -> Any:
    places = [key for key, value in items if isinstance(value, Tensor)]
    if not places:
        raise ConfigError(
            f"cannot find targets in a batch of type {type(batch).__name__}: it must be a tensor, or a tuple, list or"
            " dictionary that holds one; inject at another site"
        )
    return places[-1]


# which values


def _target(tensor: Tensor, seed: int) -> int | None:
    """Return the flat index of the largest of the seeded candidates; None when there is nothing but zeros."""
    if not tensor.numel() or not tensor.is_floating_point():
        return None
    chance = random.Random(seed)
    candidates = [chance.randrange(tensor.numel()) for _ in range(CANDIDATES)]
    if not tensor.shape:
        return 0
    places = torch.unravel_index(torch.tensor(candidates, device=tensor.device), tensor.shape)
    sizes = tensor.detach()[places].abs().double()
    best = int(sizes.argmax())
    return candidates[best] if float(sizes[best]) else None


def _places(count: int, kind: str, target: int, width: int, seed: int) -> Tensor:
    """Return the flat indices of the values that a fault hits, of ``count``; none where the kind cannot exist."""
    if kind in _ONE_BIT:
        return torch.tensor([target])
    if kind in _LANE:
        lane, warp = target % WARP, target // WARP
        warps = -(-(count - lane) // WARP)
        first = max(0, min(warp, warps - WARPS))
        return torch.arange(first, min(first + WARPS, warps)) * WARP + lane
    if kind == "tile-swap":
        return _two_tiles(count, target, seed)
    return torch.arange(target, min(target + width, count))


def _two_tiles(count: int, target: int, seed: int) -> Tensor:
    size = min(TILE, count // 2)
    if not size:
        return torch.tensor([], dtype=torch.int64)
    tiles = count // size
    first = min(target // size, tiles - 1)
    second = random.Random(f"tile {seed}").choice([tile for tile in range(tiles) if tile != first])
    return torch.cat([torch.arange(tile * size, (tile + 1) * size) for tile in (first, second)])


# what they become


def _wrong(old: Tensor, kind: str, seed: int, bit: int | None, factor: float) -> tuple[Tensor, str]:
    """Return (wrong values, what was done in words)."""
    if kind in _ONE_BIT or kind == "warp":
        chosen = _bit_of(old.dtype, kind, seed) if bit is None else bit
        return _flipped(old, chosen)
    if kind in ("stuck-0", "stuck-1"):
        return _stuck(old, kind == "stuck-1", seed)
    if kind == "tile-swap":
        return old.roll(old.numel() // 2), f"two tiles of {old.numel() // 2} exchanged"
    if kind == "scale":
        return old * factor, f"times {factor:g}"
    return torch.full_like(old, float(kind)), f"set to {kind}"


def _flipped(old: Tensor, bit: int) -> tuple[Tensor, str]:
    return (_bits(old) ^ _mask(old, bit)).view(old.dtype), f"bit {bit} flipped"


def _stuck(old: Tensor, high: bool, seed: int) -> tuple[Tensor, str]:
    """Force one bit, the first in a seeded order for which something changes; the plausible bits come first."""
    for bit in _order(old.dtype, seed):
        mask = _mask(old, bit)
        new = _bits(old) | mask if high else _bits(old) & ~mask
        if bool((new != _bits(old)).any()):
            return new.view(old.dtype), f"bit {bit} stuck at {int(high)}"
    return old, "nothing to force"


def _order(dtype: torch.dtype, seed: int) -> Iterator[int]:
    bits, width = _mantissa(dtype), dtype.itemsize * 8
    for low, high in ((bits // 2, bits), (0, bits // 2), (bits, width)):
        yield from random.Random(f"stuck {seed} {low}").sample(range(low, high), high - low)


def _bits(values: Tensor) -> Tensor:
    return values.view(_SIGNED[values.element_size()])


def _mask(values: Tensor, bit: int) -> int:
    width = values.element_size() * 8
    if bit >= width:
        raise ConfigError(f"bit {bit} of a {values.dtype} value: it has the bits 0 to {width - 1}; choose one of them")
    return (1 << bit) - (1 << width) if bit == width - 1 else 1 << bit


def _bit_of(dtype: torch.dtype, kind: str, seed: int) -> int:
    """Choose a bit. By default one of the upper half of the mantissa.

    There the value stays finite and near itself, and the error is not so small that rounding washes it out of a
    decaying optimizer state before the next check.
    """
    bits, width = _mantissa(dtype), dtype.itemsize * 8
    low, high = {"sign": (width - 1, width), "exponent": (bits, width - 1), "mantissa-low": (0, max(1, bits // 2))}.get(
        kind, (bits // 2, bits)
    )
    return random.Random(f"bit {seed}").randrange(low, high)


def _mantissa(dtype: torch.dtype) -> int:
    return _MANTISSA_BITS.get(dtype, 2)


def _differences(old: Tensor, new: Tensor) -> tuple[float, float]:
    """Return the largest absolute and the largest relative difference."""
    wide = torch.stack([old.double(), new.double()])
    difference = (wide[1] - wide[0]).abs()
    difference[~wide.isfinite().all(dim=0)] = math.inf
    difference[_bits(old) == _bits(new)] = 0.0
    relative = torch.where(difference == 0, 0.0, difference / wide[0].abs())
    relative[relative.isnan()] = math.inf
    return float(difference.max()), float(relative.max())
