"""Keep our hooks out of compiled code.

A job may compile its optimizer step (``torch.compile(lambda: optimizer.step())``). The hooks of the step would be
traced into it: what they raise is lost there, their counters are compiled as constants, and a decision is read once for
all steps. Called as ordinary Python they end the code that is compiled around them, and the update itself, compiled on
its own, sees what they did to the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

import torch

P = ParamSpec("P")
R = TypeVar("R")

REASON: Final = (
    "lastgood's checks decide on the host whether a step may enter the weights: compile what is around them without "
    "fullgraph=True"
)


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that does the same and is never compiled, nor what it calls.

    Compiled code that calls it with ``fullgraph=True`` is refused by torch, with ``REASON``.
    """
    disable: Any = torch.compiler.disable  # torch has no types for it
    return cast(Callable[P, R], disable(function, reason=REASON))
