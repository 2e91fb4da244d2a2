"""Save what a form says, once however often its button is clicked, and keep what the visitor has to be told of it.

A form is saved in a callback, which runs before the page is drawn: the page then shows what follows from it. The next
click stops that script as soon as it looks into the session, and its own callback may run beside it. So what came of
a form is one object, which is found before anything is written, and changed under a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import streamlit as st

from lastgood_console.actions import ActionError
from lastgood_console.components.decision import sentence
from lastgood_console.pause import look_again
from lastgood_console.people_journal import Written


@dataclass(slots=True)
class Sent:
    """What came of the forms of one kind that a visitor has sent.

    ``saved``: how many were saved. It tells which form was drawn, and is part of the keys of its fields, so that the
    menu closes and the next form begins empty. ``problems``: why a form could not be saved, by its key, until the next
    try; a page draws itself again every few seconds.
    """

    saved: int = 0
    told: str = ""
    problems: dict[str, str] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)


def sent(form: str) -> Sent:
    """Return what came of the forms of a kind; ``form``: how the keys of that kind begin."""
    found = st.session_state.setdefault(f"{form}-sent", Sent())
    assert isinstance(found, Sent)
    return found


def save(write: Callable[[], Written], form: str, key: str, words: str, drawn: int) -> None:
    """Write what the form of a key says, and keep what to tell: ``words``, or why it cannot be done.

    ``drawn``: how many had been saved when it was drawn; it is saved already where that is another number now.
    """
    outcome = sent(form)
    with outcome.lock:
        if drawn == outcome.saved:
            _write(write, outcome, key, words)
    look_again()


def _write(write: Callable[[], Written], outcome: Sent, key: str, words: str) -> None:
    try:
        written = write()
    except ActionError as problem:
        outcome.problems[key] = sentence(str(problem))
        return
    kept = f" Kept in {written.file}: {written.instead}." if written.instead else ""
    outcome.told = f"{words}{kept}"
    outcome.problems.clear()
    outcome.saved += 1


def tell(form: str) -> None:
    """Tell the visitor that a form was saved, once."""
    outcome = sent(form)
    if outcome.told:
        st.toast(outcome.told)
        outcome.told = ""
