"""Hold what an address answered. It may be anything: nobody knows yet what answers there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from lastgood_console.characters import one_line

MOST_TEXT: Final = 200
"""Characters of what a server says that are shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an address said. ``status`` 0: nothing; then ``problem`` says why. ``began``, ``ended``: Unix seconds."""

    status: int
    body: bytes = b""
    problem: str = ""
    began: float = 0.0
    ended: float = 0.0

    def data(self) -> Any:
        """Return the body's JSON, or None."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def short(said: str) -> str:
    """Return what a server said, on one line and not long."""
    text = one_line(said)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
