"""Draw the symbols: shape carries the meaning, colour repeats it, a word beside it says it.

``st.html`` strips ``<svg>``, so a symbol is a CSS shape, hidden from assistive technology; the word is what is read.
"""

from __future__ import annotations

from typing import Final, Literal

from lastgood.events import Result, Status
from lastgood.state import Trust
from lastgood.wording import RESULT_WORDS
from lastgood_console.characters import escape

Symbol = Literal[
    "trusted", "unverified", "suspect", "tainted", "missing", "unreadable",
    "accused", "candidate", "suspicious", "confirmed", "cleared", "critical", "warning", "info", "healthy", "ended",
]  # fmt: skip

_TEXT: Final[dict[Symbol, str]] = {"unverified": "?", "suspect": "!", "info": "i"}
_COLOUR: Final[dict[Symbol, str]] = {
    "trusted": "trusted",
    "unverified": "unverified",
    "suspect": "suspect",
    "tainted": "tainted",
    "missing": "quiet",
    "unreadable": "quiet",
    "accused": "tainted",
    "candidate": "suspect",
    "suspicious": "plain",
    "confirmed": "tainted",
    "cleared": "unverified",
    "critical": "tainted",
    "warning": "suspect",
    "info": "plain",
    "healthy": "trusted",
    "ended": "quiet",
}
STATUS_SYMBOL: Final[dict[Status, Symbol]] = {
    "suspicious": "suspicious",
    "confirmed": "confirmed",
    "attributed": "accused",
    "undecided": "candidate",
    "cleared": "cleared",
}
RESULT_SYMBOL: Final[dict[Result, Symbol]] = {"passed": "trusted", "failed": "accused", "not_run": "missing"}


def symbol(name: Symbol, *, last_good: bool = False) -> str:
    """Return the shape alone; the word must stand beside it."""
    ring = " lg-lastgood" if last_good else ""
    return f'<span class="lg-sym lg-s-{name}{ring}" aria-hidden="true">{_TEXT.get(name, "")}</span>'


def colour_class(name: Symbol) -> str:
    """Return the class that gives a word the symbol's colour."""
    return f"lg-c-{_COLOUR[name]}"


def marked(name: Symbol, word: str) -> str:
    """Return symbol and word as one unit, the word in the symbol's colour."""
    return f'<span class="lg-word {colour_class(name)}">{symbol(name)}<span>{escape(word)}</span></span>'


def trust_mark(trust: Trust) -> str:
    """Return a checkpoint's trust: symbol and word."""
    return marked(trust, trust)


def status_mark(status: Status) -> str:
    """Return a verdict's status: symbol and word."""
    return marked(STATUS_SYMBOL[status], status)


def result_mark(result: Result) -> str:
    """Return a check's result: symbol and word."""
    return marked(RESULT_SYMBOL[result], RESULT_WORDS[result])
