"""Look whether bits changed while nobody wrote: weights and optimizer state between two updates, a part at a time.

No other rank is asked for the number itself, so this is the one exact check of a shard that has no replica. A part of
the state is fingerprinted before the first forward of a step and again when its last backward has ended; no optimizer
writes in between. The parts take turns, so a round reads no more than ``MOST_BYTES`` twice, whatever the model's size.

What wrote on purpose is left out: a tensor whose version counter moved (an in-place operation, as ``max_norm`` of an
embedding does in its forward) or whose memory was exchanged. A write past that counter, through ``.data`` or from
another library, is not told from a flipped bit; when it happens on several ranks nobody is accused.

Not seen: what was wrong before the first look, such as a memory cell that is stuck; and what changes outside a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from lastgood.fingerprint import digest_tensors

MOST_BYTES: Final = 64 << 20
"""Read at most per look, but for one tensor of more than that which is not contiguous."""

Named = tuple[str, Tensor]


@dataclass(frozen=True, slots=True)
class Changed:
    """The first tensor that changed while nobody wrote, with both fingerprints."""

    tensor: str
    observed: int
    expected: int


@dataclass(frozen=True, slots=True)
class _Look:
    pieces: Sequence[Named]
    marks: Sequence[tuple[int, int]]  # version counter and address, by piece
    values: Tensor  # int64 [pieces], on the device of the first


class AtRest:
    """The sample of one rank."""

    def __init__(self) -> None:
        self._first: _Look | None = None
        self.phase = ""

    @property
    def begun(self) -> bool:
        """Whether there is a first look to compare with."""
        return self._first is not None

    def begin(self, items: Iterable[Named], turn: int) -> None:
        """Fingerprint the part whose turn it is. Reads nothing back from the device."""
        found = parts(items)
        part = found[turn % len(found)] if found else []
        self.phase = phase_of(turn, len(found))
        self._first = _look(part) if part else None

    def end(self) -> Changed | None:
        """Look again, and say what changed since :meth:`begin`. One host read."""
        first, self._first = self._first, None
        if first is None:
            return None
        second = _look(first.pieces)
        pairs = torch.stack([first.values, second.values], 1).tolist()
        for (name, _), before, after, (expected, observed) in zip(
            first.pieces, first.marks, second.marks, pairs, strict=True
        ):
            if expected != observed and before == after:
                return Changed(name, observed, expected)
        return None


def phase_of(turn: int, count: int) -> str:
    """Name a round by its part; a pass of one part says nothing about the others."""
    return "loop" if count <= 1 else f"part {turn % count + 1} of {count}"


def parts(items: Iterable[Named], most_bytes: int = MOST_BYTES) -> list[list[Named]]:
    """Cut named tensors into parts of at most so many bytes, in their order; a large tensor becomes several pieces."""
    out: list[list[Named]] = []
    room = 0
    for name, piece in _pieces(items, most_bytes):
        size = piece.numel() * piece.element_size()
        if not out or size > room:
            out.append([])
            room = most_bytes
        out[-1].append((name, piece))
        room -= size
    return out


def _pieces(items: Iterable[Named], most_bytes: int) -> Iterator[Named]:
    for name, tensor in items:
        if tensor.layout is not torch.strided or tensor.is_quantized or not tensor.numel():
            continue
        rows = max(1, most_bytes // tensor.element_size())
        if tensor.numel() <= rows or not tensor.is_contiguous():
            yield name, tensor
            continue
        flat = tensor.view(-1)  # shares memory and version counter
        for low in range(0, flat.numel(), rows):
            yield f"{name}[{low}:{min(low + rows, flat.numel())}]", flat[low : low + rows]


def _look(pieces: Sequence[Named]) -> _Look:
    # the names have places in them, so they are no canonical names: number them, which is as unique
    digests = digest_tensors((str(n), tensor) for n, (_, tensor) in enumerate(pieces))
    marks = [(tensor._version, tensor.data_ptr()) for _, tensor in pieces]
    return _Look(pieces, marks, digests.values[:, 0])
