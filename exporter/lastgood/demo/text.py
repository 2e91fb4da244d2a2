"""Read real text without a download: the sources of Python's standard library.

A batch is a function of (seed, step, rank) and of nothing else, so a resumed attempt sees the batches that the first
one would have seen, and another node can be given any rank's batch again.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

import torch

VOCABULARY: Final = "\n" + "".join(map(chr, range(32, 127)))
"""The line end and printable ASCII; every other character is read as a question mark."""

IGNORED_TARGET: Final = -100
"""A target that the loss leaves out."""

_UNKNOWN: Final = VOCABULARY.index("?")


class CorpusError(Exception):
    """The standard library's sources are not on this machine as files."""


def standard_library() -> Path:
    """Return the folder of the standard library's sources."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_corpus(folder: Path | None = None, characters: int = 400_000) -> torch.Tensor:
    """Return the first ``characters`` of the folder's modules, by name, as int64 indices into ``VOCABULARY``."""
    folder = folder or standard_library()
    parts: list[str] = []
    size = 0
    for path in sorted(folder.glob("*.py")):
        parts.append(path.read_text(encoding="utf-8", errors="replace"))
        size += len(parts[-1])
        if size >= characters:
            return encode("".join(parts)[:characters])
    raise CorpusError(f"{folder} holds {size} characters of Python sources; the demo reads {characters} to train on. "
                      "Install the full standard library of this Python")  # fmt: skip


def encode(text: str) -> torch.Tensor:
    """Return ``text`` as int64 indices into ``VOCABULARY``, one per character."""
    index = {character: number for number, character in enumerate(VOCABULARY)}
    return torch.tensor([index.get(character, _UNKNOWN) for character in text], dtype=torch.int64)


def sample(
    corpus: torch.Tensor, *, seed: int, step: int, rank: int, rows: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets (each ``rows`` x ``length``): random passages, the targets one character later."""
    generator = torch.Generator().manual_seed(mix(seed, step, rank))
    starts = torch.randint(len(corpus) - length - 1, (rows,), generator=generator)
    passages = torch.stack([corpus[start : start + length + 1] for start in starts.tolist()])
    return passages[:, :-1].contiguous(), passages[:, 1:].contiguous()


def mix(seed: int, step: int, rank: int) -> int:
    """Return one random seed for (seed, step, rank); different for all steps and ranks of a demo."""
    return (seed * 1_000_003 + step) * 4_096 + rank
