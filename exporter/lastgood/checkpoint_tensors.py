"""Say what a checkpoint's tensors on disk look like to whoever compares them, whatever format they lie in.

A tensor may lie in several parts, each in a file of its own (a distributed checkpoint), and may be larger than memory
should hold at once, so a part is read when it is asked for. Fingerprints add up over flat offsets: parts that are
consecutive in the whole tensor are read one at a time; others (a tensor cut along its columns) are put together first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.fingerprint import fingerprint, hex64
from lastgood.sharded import is_sharded, local, pieces

LANES: Final = (0, 1)

Hexes = tuple[str, str]


class UnreadableError(Exception):
    """The checkpoint, its record or a file of it cannot be read: says the value, the rule and the way out."""


@dataclass(frozen=True, slots=True)
class Part:
    """A box of a tensor in a file. ``read`` may raise :class:`UnreadableError`."""

    file: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    read: Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor on disk."""

    shape: tuple[int, ...]
    parts: tuple[Part, ...]


Leaf = Tensor | Stored


@dataclass(slots=True)
class Contents:
    """What was found: file -> nested dictionaries and lists whose leaves are tensors.

    ``damaged``: file -> why it is not what was saved. ``skipped``: file -> why nothing of it is compared.
    """

    trees: dict[str, Any] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def numel(leaf: Leaf) -> int:
    """Return the number of elements."""
    return math.prod(leaf.shape)


def digest(leaf: Leaf, name: str, offset: int = 0) -> Hexes:
    """Return the fingerprint, both lanes, of a tensor that begins at flat index ``offset`` of the whole one.

    One that knows its own place (a ``DTensor`` in a file per rank) has the fingerprint of its part. Raises
    :class:`UnreadableError` when a part of it cannot be read.
    """
    if isinstance(leaf, Tensor) and is_sharded(leaf):
        return _hexes([_lanes(piece, name, flat) for piece, flat in _pieces(leaf)])
    if isinstance(leaf, Tensor):
        return _hexes([_lanes(leaf, name, offset)])
    if sum(math.prod(part.shape) for part in leaf.parts) != numel(leaf):
        raise UnreadableError(f"its parts do not make up a tensor of shape {list(leaf.shape)}")
    if all(_consecutive(part, leaf.shape) for part in leaf.parts):
        return _hexes([_lanes(_read(part), name, offset + _flat(part, leaf.shape)) for part in leaf.parts])
    return _hexes([_lanes(_whole(leaf), name, offset)])


def place(leaf: Leaf) -> tuple[int, ...] | None:
    """Return which part of the whole a tensor is, when it knows; the same for equal parts."""
    if not (isinstance(leaf, Tensor) and is_sharded(leaf)):
        return None
    first = next((flat for _, flat in _pieces(leaf)), -1)
    return (first, *local(leaf).shape)


def _pieces(leaf: Tensor) -> list[tuple[Tensor, int]]:
    try:
        return list(pieces(leaf))
    except Exception as problem:  # a mesh from a file can be anything
        raise UnreadableError(f"a part of it cannot be placed in the whole: {problem}") from None


def _lanes(tensor: Tensor, name: str, offset: int) -> tuple[int, int]:
    try:
        first, second = (int(fingerprint(tensor, name, lane=lane, offset=offset)) for lane in LANES)
    except TypeError as problem:
        raise UnreadableError(str(problem)) from None
    return first, second


def _hexes(sums: Sequence[tuple[int, int]]) -> Hexes:
    return hex64(sum(pair[0] for pair in sums)), hex64(sum(pair[1] for pair in sums))


def _read(part: Part) -> Tensor:
    tensor = part.read()
    if tuple(tensor.shape) != part.shape:
        raise UnreadableError(f"{part.file} holds shape {list(tensor.shape)} where {list(part.shape)} was announced")
    return tensor


def _consecutive(part: Part, shape: tuple[int, ...]) -> bool:
    """Tell whether a box is one run of flat indices: whole behind the first dimension that it cuts, 1 before it."""
    if len(part.shape) != len(shape) or len(part.offsets) != len(shape):
        return False
    cut = next((i for i, size in enumerate(part.shape) if size != 1), len(shape))
    return part.shape[cut + 1 :] == shape[cut + 1 :]


def _flat(part: Part, shape: tuple[int, ...]) -> int:
    """Return the flat index of the first element of a box."""
    return sum(offset * math.prod(shape[i + 1 :]) for i, offset in enumerate(part.offsets))


def _whole(leaf: Stored) -> Tensor:
    whole: Tensor | None = None
    for part in leaf.parts:
        tensor = _read(part)
        if whole is None:
            whole = torch.zeros(leaf.shape, dtype=tensor.dtype)
        box = tuple(slice(o, o + n) for o, n in zip(part.offsets, part.shape, strict=False))
        if whole[box].shape != tensor.shape or whole.dtype != tensor.dtype:
            raise UnreadableError(f"{part.file} holds a part that does not fit into shape {list(leaf.shape)}")
        whole[box] = tensor
    assert whole is not None
    return whole
