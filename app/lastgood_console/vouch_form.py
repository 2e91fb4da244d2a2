"""Draw the form in which a visitor vouches for a checkpoint.

What it means is in :mod:`.vouching`, who may in :mod:`.desk`, and how it is saved in :mod:`.sending`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import streamlit as st

from lastgood.state import RunState
from lastgood_console.acting import name_field, submit, this_visitor
from lastgood_console.actions import MOST_LETTERS
from lastgood_console.desk import Desk, Saying
from lastgood_console.sending import save, sent, tell
from lastgood_console.store import current
from lastgood_console.vouching import Choice, choices, meant

FORM: Final = "vouch"
"""Begins the keys of this form in the session."""


def vouch_for(state: RunState) -> None:
    """Offer to accept a checkpoint; draw nothing where nobody can write or nothing waits."""
    desk, waiting = current().desk, choices(state)
    tell(FORM)
    if desk is None or not waiting or state.origin == "metrics":  # a word is journaled, and no journal is here
        return
    with st.popover("Accept a checkpoint…", key=_key("menu", state)), st.form(_key("form", state), border=False):
        _form(desk, state, waiting)


def _key(part: str, state: RunState) -> str:
    return f"{FORM}-{part}-{state.run}-{sent(FORM).saved}"


def _form(desk: Desk, state: RunState, waiting: tuple[Choice, ...]) -> None:
    visitor = this_visitor()
    note = "Your word lets what descends from it be trusted. It makes no damaged bytes good."
    st.html(f'<div class="lg-note">{note}</div>')
    st.selectbox("Checkpoint", waiting, format_func=lambda choice: choice.words, key=_key("what", state))
    name_field(visitor)
    st.text_area("Why it can be trusted", max_chars=MOST_LETTERS, height=90, key=_key("text", state))
    on_click = partial(_save, desk, state, waiting[0], sent(FORM).saved)
    submit(desk, visitor, "Accept checkpoint", on_click, sent(FORM).problems.get(_key("form", state), ""))


def _save(desk: Desk, state: RunState, first: Choice, drawn: int) -> None:
    """Save what was filled in, or remember why that cannot be done."""
    filled: Any = st.session_state.get
    choice = meant(state, filled(_key("what", state)) or first)
    said = Saying("accept", filled(_key("text", state), ""), filled("act-by", ""), filled("act-token", ""))
    write = partial(desk.vouch, state.run, choice, said, this_visitor())
    save(write, FORM, _key("form", state), f"Accepted {choice.words}.", drawn)
