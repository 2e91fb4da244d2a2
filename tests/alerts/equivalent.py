"""Breakages of rules that change nothing in any world that can be, each with the reason."""

from __future__ import annotations

import re
from typing import Final

EQUIVALENT: Final = (
    (r"instance, run, rank\) \(lastgood_rank_info': '\{rank=\"0\"\}' became '\{\}'", "the join keeps rank 0 anyway"),
)
"""(what a mutation says of itself, why no case can notice it)."""


def reason_for(what: str) -> str:
    """Return why a breakage changes nothing; empty when it should have been noticed."""
    return next((reason for pattern, reason in EQUIVALENT if re.search(pattern, what)), "")
