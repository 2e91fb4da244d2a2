"""Describe faults: where, what, on which rank, when. Pure: no torch, so that a plan can be made anywhere.

When a fault acts:

- *transient*: once, in the step it names
- *permanent*: from its step on, every time, also in that device's own replays
- *intermittent*: from its step on, at each execution with the probability ``chance``, drawn afresh in replays too
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from lastgood.errors import ConfigError

SITES: Final = (
    "batch", "activation", "gradient", "weight-gradient", "bucket", "reduce-all", "reduce-one", "weight", "optimizer",
    "at-rest",
)  # fmt: skip
"""Where a fault can be, in the order of a step (:mod:`lastgood.faults` says what each means)."""

LAYER_SITES: Final = ("activation", "gradient", "weight-gradient")
"""Sites that need a layer (``Injector.wrap``)."""

KINDS: Final = (
    "bit", "sign", "exponent", "mantissa-high", "mantissa-low", "warp", "stuck-0", "stuck-1", "tile-swap", "scale",
    "nan", "inf",
)  # fmt: skip
"""What a fault does to values (:mod:`lastgood.corruption`)."""

STATES: Final = ("", "exp_avg", "exp_avg_sq")
"""Which moment of the optimizer; "" is any."""

When = Literal["transient", "intermittent", "permanent"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Raises ConfigError when it cannot exist."""

    site: str
    kind: str
    rank: int
    """Global rank, in this attempt, of the device that has the fault; ``reduce-all`` ignores it."""
    step: int
    permanent: bool = False
    seed: int = 0
    """Chooses tensor, element and bit, and the executions of an intermittent fault."""
    bit: int | None = None
    """For "bit" and "warp": 0 is the lowest; None takes one of the upper half of the mantissa."""
    factor: float = 10.0
    """For "scale": 0.40 is read as 4.00."""
    bucket: int = 0
    """Index of the bucket for ``bucket`` and ``reduce-...``."""
    state: str = ""
    """For ``optimizer``: which moment, ``exp_avg`` or ``exp_avg_sq``; "" is any."""
    chance: float = 0.0
    """Probability per execution of an intermittent fault; 0 for one that is not."""

    def __post_init__(self) -> None:
        one_of("fault site", self.site, SITES)
        one_of("fault kind", self.kind, KINDS)
        one_of("fault state", self.state, STATES)
        if self.site == "batch" and self.kind != "nan":
            raise ConfigError(f"fault kind {self.kind!r} at the site 'batch': only 'nan' exists there; choose it")
        if self.state and self.site != "optimizer":
            raise ConfigError(f"fault state {self.state!r} at the site {self.site!r}: only 'optimizer' has states")
        if not math.isfinite(self.factor) or self.factor == 1:
            raise ConfigError(f"fault factor {self.factor}: it must be finite and not 1, or nothing is wrong")
        if self.bit is not None and self.bit < 0:
            raise ConfigError(f"fault bit {self.bit}: bits count from 0, the lowest; choose one from 0")
        if self.rank < 0 or self.step < 1:
            raise ConfigError(f"fault at rank {self.rank}, step {self.step}: ranks count from 0 and steps from 1")
        if not 0 <= self.chance < 1 or (self.chance and self.permanent):
            raise ConfigError(f"fault chance {self.chance}: an intermittent fault has one above 0 and below 1, a "
                              "permanent one has none")  # fmt: skip

    @property
    def when(self) -> When:
        """Return how often it acts."""
        return "permanent" if self.permanent else "intermittent" if self.chance else "transient"

    def check_reach(self, *, world_size: int, steps: int) -> None:
        """Raise ConfigError when the job has no such rank or step, so that the fault would never happen."""
        if self.rank >= world_size:
            raise ConfigError(f"fault rank {self.rank}: the job has ranks 0 to {world_size - 1}; choose one of them")
        if self.step > steps:
            raise ConfigError(f"fault step {self.step}: the run has steps 1 to {steps}; choose one of them")


NAMED: Final[Mapping[str, tuple[str, str, bool]]] = {
    "gradient": ("gradient", "scale", True),
    "nan": ("gradient", "nan", False),
    "reduce-all": ("reduce-all", "scale", False),
    "reduce-one": ("reduce-one", "scale", False),
    "weight": ("weight", "bit", False),
    "optimizer": ("optimizer", "bit", False),
    "data": ("batch", "nan", False),
}
"""The demo's faults: name -> (site, kind, permanent)."""


def fault_named(name: str, *, rank: int, step: int, seed: int = 0) -> Fault:
    """Return one of the demo's faults. Raises ConfigError for another name."""
    one_of("fault", name, tuple(NAMED))
    site, kind, permanent = NAMED[name]
    return Fault(site, kind, rank, step, permanent=permanent, seed=seed)


def one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ConfigError for a word that is not among the allowed ones."""
    if value not in allowed:
        raise ConfigError(f"unknown {what} {value!r}: choose one of {', '.join(allowed)}")
