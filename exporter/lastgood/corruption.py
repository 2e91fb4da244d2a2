"""Corrupt a few values of a real tensor in place, the same ones for the same seed.

The values are chosen so that the damage is real: among seeded candidates the largest is taken, because a zero times
ten is still zero. The choice depends on the seed and on the tensor alone, so that replicas with equal bytes are
corrupted alike and a permanent fault hits the same lane again.
"""

from __future__ import annotations

import math
import random
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.errors import ConfigError

CANDIDATES: Final = 256
IGNORED_TARGET: Final = -100
"""What ``torch.nn.functional.cross_entropy`` leaves out: a batch of nothing else has the loss 0/0."""

TARGET_KEYS: Final = ("labels", "targets", "target", "y")

_SIGNED: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MANTISSA_BITS: Final = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}


def corrupt_(
    tensor: Tensor, kind: str, *, seed: int, width: int = 1, bit: int | None = None, factor: float = 10.0
) -> str | None:
    """Corrupt ``width`` neighbouring values in place; return what was done, or None when nothing could change.

    ``kind`` is "bit" (one value only; without ``bit`` one of the upper half of the mantissa), "scale", "nan" or "inf".
    """
    index = _target(tensor, seed)
    if index is None:
        return None
    end = index + 1 if kind == "bit" else min(index + width, tensor.numel())
    where = torch.unravel_index(torch.arange(index, end, device=tensor.device), tensor.shape or (1,))
    place: Any = where if tensor.shape else ()
    with torch.no_grad():
        old = tensor.detach()[place].reshape(-1).clone()
        new, words = _wrong(old, kind, seed, bit, factor)
        if torch.equal(new, old):
            return None
        tensor.detach()[place] = new.view(()) if not tensor.shape else new
    values = f"{old.numel()} values from" if old.numel() > 1 else "value at"
    return f"{words}, {values} flat index {index}: {float(old[0]):.6g} -> {float(new[0]):.6g}"


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


def _wrong(old: Tensor, kind: str, seed: int, bit: int | None, factor: float) -> tuple[Tensor, str]:
    """Return (wrong values, what was done in words)."""
    if kind == "bit":
        return _flipped(old, _plausible_bit(old.dtype, seed) if bit is None else bit)
    if kind == "scale":
        return old * factor, f"times {factor:g}"
    return torch.full_like(old, float(kind)), f"set to {kind}"


def _flipped(old: Tensor, bit: int) -> tuple[Tensor, str]:
    width = old.element_size() * 8
    if bit >= width:
        raise ConfigError(f"bit {bit} of a {old.dtype} value: it has the bits 0 to {width - 1}; choose one of them")
    bits = old.view(_SIGNED[old.element_size()])
    mask = 1 << bit
    return (bits ^ (mask - (1 << width) if bit == width - 1 else mask)).view(old.dtype), f"bit {bit} flipped"


def _plausible_bit(dtype: torch.dtype, seed: int) -> int:
    """Choose a bit of the upper half of the mantissa.

    The value stays finite and near itself; the error is not so small that rounding washes it out of a decaying
    optimizer state before the next check.
    """
    bits = _MANTISSA_BITS.get(dtype, 2)
    return random.Random(f"bit {seed}").randrange(bits // 2, bits)
