"""Draw the form in which a visitor vouches for a checkpoint.

What it means is in :mod:`.vouching`, who may in :mod:`.desk`. As in :mod:`.acting` it is saved in a callback, so that
the page already shows what follows.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import streamlit as st

from lastgood.state import RunState
from lastgood_console.acting import name_field, save, submit, this_visitor
from lastgood_console.actions import MOST_LETTERS
from lastgood_console.desk import Desk, Saying
from lastgood_console.store import current
from lastgood_console.vouching import Choice, choices

_SAVED: Final = "vouch-saved"
"""How often this visitor has saved: part of keys, so that the menu closes and the next form begins empty."""


def vouch_for(state: RunState) -> None:
    """Offer to accept a checkpoint; draw nothing where nobody can write or nothing waits."""
    desk, waiting = current().desk, choices(state)
    if told := st.session_state.pop("vouch-told", ""):
        st.toast(told)
    if desk is None or not waiting or state.origin == "metrics":  # a word is journaled, and no journal is here
        return
    with st.popover("Accept a checkpoint…", key=_key("menu", state)), st.form(_key("form", state), border=False):
        _form(desk, state, waiting)


def _key(part: str, state: RunState) -> str:
    return f"vouch-{part}-{state.run}-{st.session_state.get(_SAVED, 0)}"


def _form(desk: Desk, state: RunState, waiting: tuple[Choice, ...]) -> None:
    visitor = this_visitor()
    note = "Your word lets what descends from it be trusted. It makes no damaged bytes good."
    st.html(f'<div class="lg-note">{note}</div>')
    st.selectbox("Checkpoint", waiting, format_func=lambda choice: choice.words, key=_key("what", state))
    name_field(visitor)
    st.text_area("Why it can be trusted", max_chars=MOST_LETTERS, height=90, key=_key("text", state))
    submit(desk, visitor, "Accept checkpoint", _save, (desk, state, waiting[0]))
    if problem := st.session_state.get(_key("problem", state)):
        st.error(problem)


def _save(desk: Desk, state: RunState, first: Choice) -> None:
    """Save what was filled in, or remember why that cannot be done."""
    filled: Any = st.session_state.get
    choice = filled(_key("what", state)) or first
    said = Saying("accept", filled(_key("text", state), ""), filled("act-by", ""), filled("act-token", ""))
    write = partial(desk.vouch, state.run, choice, said, this_visitor())
    save(write, _key("problem", state), "vouch", f"Accepted {choice.words}.")
