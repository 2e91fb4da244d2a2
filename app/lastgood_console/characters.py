"""Keep what others wrote from steering whoever shows it: a terminal, a page, a spreadsheet.

Names, paths and notes come from files that anybody may have written. Two kinds of characters do more than stand there:
control characters (a terminal obeys them) and those that turn the writing direction (they make a line read as another
one). Right-to-left letters need neither of them; they need to be *isolated*, so that they do not turn what stands
around them.
"""

from __future__ import annotations

import html
import unicodedata
from typing import Final

TURNING: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Embeddings, overrides and isolates."""
LINE_ENDS: Final = frozenset("\n\r\x0b\x0c\x85\u2028\u2029")
REPLACEMENT: Final = "\ufffd"

_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})


def steers(character: str) -> bool:
    """Tell whether a character does more than stand there: a control, half a surrogate pair, a turn of direction."""
    return character in TURNING or character in "\u2028\u2029" or unicodedata.category(character) in {"Cc", "Cs"}


def tamed(text: str, keep: str = "\n") -> str:
    """Return a text with a visible mark in place of every character that steers, but for those in ``keep``."""
    if text.isprintable():  # then none steers
        return text
    return "".join(REPLACEMENT if steers(c) and c not in keep else c for c in text)


def escape(text: str, quote: bool = True) -> str:
    """Return a text for HTML: its marks escaped, and tamed."""
    return html.escape(tamed(text, keep="\n\t"), quote)


def one_line(text: str) -> str:
    """Return a text tamed and in one line: line ends, tabs and runs of spaces become one space."""
    return tamed(" ".join(text.split()))


def turns(text: str) -> bool:
    """Tell whether a text holds right-to-left letters, which would turn their surroundings."""
    return any(unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in text)


def isolated(text: str, whole: str | None = None) -> str:
    """Return ``text`` (or ``whole``, its marked-up form) with a direction of its own, when it has such letters."""
    shown = text if whole is None else whole
    return f"\u2068{shown}\u2069" if turns(text) else shown
