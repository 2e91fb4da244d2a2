"""The integer mix behind fingerprints and signs: two independent lanes of a 32-bit finalizer, in torch's int32.

int32 products wrap alike in eager torch, in compiled code and in numpy. ``>>`` is arithmetic, so its sign bits are
masked. The mix exists twice: in place, for the eager pass, and as an expression that a compiler can fuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

WORD: Final = 1 << 32


def signed(value: int) -> int:
    """Return the 32-bit pattern as the signed number that int32 arithmetic of torch takes."""
    value %= WORD
    return value - WORD if value >= WORD // 2 else value


@dataclass(frozen=True, slots=True)
class Lane:
    """The constants of one independent 32-bit mix. All multipliers are odd, so every step is a bijection."""

    index: int  # G
    high: int  # C
    key: int
    shifts: tuple[int, int, int]
    factors: tuple[int, int]

    def seed(self, index: int, key: int) -> int:
        """Return what a word at flat ``index`` of the tensor with this key is XORed with, as int32."""
        return signed(index % WORD * self.index + key * self.key + index // WORD * self.high)


LANES: Final = (
    Lane(0x9E37_79B1, 0x85EB_CA77, 1, (16, 13, 16), (0x85EB_CA6B, 0xC2B2_AE35)),  # MurmurHash3's fmix32
    Lane(0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1, (16, 15, 16), (0x7FEB_352D, 0x846C_A68B)),  # Wellons' lowbias32
)


def mix_(x: Tensor, spare: Tensor, c: Lane) -> None:
    """Mix int32 words in place: x ^= x >> shift, x *= factor, ..."""
    for shift, factor in zip(c.shifts, (*c.factors, None), strict=True):
        torch.bitwise_right_shift(x, shift, out=spare)
        x.bitwise_xor_(spare.bitwise_and_((1 << (32 - shift)) - 1))
        if factor is not None:
            x.mul_(signed(factor))


def mixed(x: Tensor, c: Lane) -> Tensor:
    """Return the mixed int32 words, as one expression."""
    for shift, factor in zip(c.shifts, (*c.factors, None), strict=True):
        x = x ^ ((x >> shift) & ((1 << (32 - shift)) - 1))
        if factor is not None:
            x = x * signed(factor)
    return x


@lru_cache(maxsize=32)
def ramp(size: int, device: torch.device, lane: int) -> Tensor:
    """Return index * G for ``size`` words in a row, int32; kept, so do not write to it."""
    with torch.inference_mode(False):
        return made(torch.arange(size, dtype=torch.int32, device=device) * signed(LANES[lane].index))


def made(constant: Tensor) -> Tensor:
    """Return what is made once and then read on any stream: on a GPU the host waits, this once, until it is there."""
    if constant.is_cuda:
        torch.cuda.current_stream(constant.device).synchronize()
    return constant


def sign_bits(count: int, key: int, device: torch.device) -> Tensor:
    """Return ``count`` random bits, int32 of 0 and 1: a pure function of index and key, equal on every machine."""
    index = torch.arange(count, dtype=torch.int32, device=device) * signed(LANES[1].index)
    seeded = index + signed(key * LANES[1].key)
    mix_(seeded, torch.empty_like(seeded), LANES[1])
    return seeded & 1
