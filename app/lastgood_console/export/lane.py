"""Keep marks of one lane apart that lie at the same place: the less important ones stand lower. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

IMPORTANCE: Final = {"critical": 2, "tainted": 2, "warning": 1, "suspect": 1}
"""Of a tone; what is more important is drawn later, so it lies on top."""


def lowered(marks: Sequence[tuple[float, str]], near: float) -> list[bool]:
    """Tell which marks stand lower: those within ``near`` of a more important one, or of an earlier one as important.

    ``marks``: place along the lane, and tone.
    """
    order = sorted(range(len(marks)), key=lambda n: -IMPORTANCE.get(marks[n][1], 0))
    upper: list[float] = []
    out = [False] * len(marks)
    for n in order:
        out[n] = any(abs(marks[n][0] - place) < near for place in upper)
        if not out[n]:
            upper.append(marks[n][0])
    return out
