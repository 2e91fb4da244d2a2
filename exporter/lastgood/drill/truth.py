"""Hold what the ranks of a trial saw by means of their own, independent of the checks that are measured. Pure.

Bytes are compared by BLAKE2, never by lastgood's fingerprints; a gradient of an audited step is computed a second time
on its own rank with the fault switched off. So a check is held to what was really there, not to what it says itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One trial. ``weights[s][r]`` and ``state[s][r]``: digests of rank ``r`` after step ``s``, from step 0."""

    weights: tuple[tuple[str, ...], ...]
    state: tuple[tuple[str, ...], ...]
    nonfinite: tuple[int, ...] = ()
    """Steps in which a loss or the reduced gradient of some rank was not finite."""
    scales: tuple[float, ...] = ()
    """Per step from 0: the norm that conservation is relative to, from the ranks' local gradient norms."""
    changed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Audited step -> ranks whose local gradient is not the one that they compute without the fault."""
    rotten: str = ""
    """What was changed in the file on disk."""
    refused: bool | None = None
    """Whether the load of that file was refused; None when nothing was loaded."""
    seconds: float = 0.0

    def agrees(self, step: int, *, state: bool) -> bool:
        """Tell whether all ranks held the same weights after ``step`` (and the same optimizer state)."""
        return len({*self.weights[step]}) == 1 and (not state or len({*self.state[step]}) == 1)

    def equals(self, step: int, other: Truth) -> bool:
        """Tell whether every rank held what ``other`` held after ``step``, bit for bit."""
        return (self.weights[step], self.state[step]) == (other.weights[step], other.state[step])


def read_truth(data: Mapping[str, Any]) -> Truth:
    """Return the truth that the first rank of a trial wrote."""
    return Truth(
        weights=tuple(tuple(row) for row in data["weights"]),
        state=tuple(tuple(row) for row in data["state"]),
        nonfinite=tuple(data["nonfinite"]),
        scales=tuple(float(value) for value in data["scales"]),
        changed={int(step): tuple(ranks) for step, ranks in data["changed"].items()},
        rotten=data["rotten"],
        refused=data["refused"],
        seconds=data["seconds"],
    )
