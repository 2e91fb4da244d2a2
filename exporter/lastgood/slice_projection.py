"""Project a buffer that a reduce-scatter cuts into equal slices, one number per slice.

The signs are those of :mod:`lastgood.projection`, the same for every slice, so that the rank that holds a slice of the
result projects it with ``project_only`` and the same key. Equal signs would hide two slices that changed places: so
the sum over the slices is taken with a weight per slice, between 0.5 and 1.5, and equal on every rank.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from lastgood.fingerprint import key_of
from lastgood.projection import BLOCK, DEVICE_BLOCK, TILE, full_precision, square_sum, tile_of, tile_signs, widened


def project_slices(x: Tensor, count: int, *, key: int, near: bool | None = None) -> tuple[Tensor, Tensor]:
    """Return (projections, square sum) of a contiguous buffer of ``count`` equal slices: float64 [count] and 0-dim.

    ``near``: whether the host may read a number, as in ``project``. Not finite when a value is not, as ``project`` is.
    Raises TypeError for what is no floating-point buffer.
    """
    rows = x.detach().view(count, -1)
    signs = tile_signs(rows.shape[1], key, x.device)
    out = torch.zeros(count, dtype=torch.float64, device=x.device)
    width = _width(x, count)
    with full_precision(x.device.type):
        for start in range(0, rows.shape[1], width):
            part = widened(rows[:, start : start + width])
            out += _project_rows(part, signs[start // TILE :])
    return out, square_sum(x, near=near)


@lru_cache(maxsize=32)
def weights_of(count: int, device: torch.device) -> Tensor:
    """Return the weight of each slice, float64 [count]."""
    with torch.inference_mode(False):
        drawn = [0.5 + key_of(f"lastgood.slice {i}") / 2**32 for i in range(count)]
        return torch.tensor(drawn, dtype=torch.float64, device=device)


def _project_rows(rows: Tensor, signs: Tensor) -> Tensor:
    """Return the signed sums of rows of one length, float64 [rows]. Rows that lie apart are not copied."""
    tile = tile_of(rows.dtype, rows.device)
    count, length = rows.shape
    tiles = length // TILE
    out = torch.zeros(count, dtype=torch.float64, device=rows.device)
    if tiles:
        blocks = rows.as_strided((count, tiles, TILE), (rows.stride(0), TILE, 1))
        sums = torch.bmm(blocks, tile.view(1, TILE, 1).expand(count, TILE, 1)).squeeze(2)
        out += torch.mv(sums.double(), signs[:tiles])
    if rest := length - tiles * TILE:
        out += torch.mv(rows[:, tiles * TILE :], tile[:rest]).double() * signs[tiles]
    return out


def _width(x: Tensor, count: int) -> int:
    """Return how much of each slice is read at once: whole tiles, about as much as ``project`` reads."""
    block = BLOCK if x.device.type == "cpu" else DEVICE_BLOCK
    return max(TILE, block // count // TILE * TILE)
