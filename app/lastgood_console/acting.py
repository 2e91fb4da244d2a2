"""Draw the form in which a visitor acts on an incident.

What it means and who may is in :mod:`.desk`, and how it is saved in :mod:`.sending`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import streamlit as st

from lastgood.state import Incident
from lastgood_console.actions import MOST_LETTERS, MOST_NAME_LETTERS, close_words
from lastgood_console.characters import escape
from lastgood_console.desk import LABELS, Desk, Saying, Visitor, action_of, possible
from lastgood_console.sending import save, sent, tell
from lastgood_console.sign_in import person
from lastgood_console.store import current

FORM: Final = "act"
"""Begins the keys of this form in the session."""


def act_on(incident: Incident) -> None:
    """Offer what can be done to an incident now; draw nothing where nobody can write."""
    desk = current().desk
    if desk is None or incident.origin == "metrics":  # what is said is journaled, and the journal is not here
        return
    tell(FORM)
    choices, name = possible(incident), _key("form", incident)
    waits = choices[0] == "acknowledge"
    label = "Acknowledge incident…" if waits else "Add note…"
    with (
        st.popover(label, type="primary" if waits else "secondary", key=_key("menu", incident)),
        st.form(name, border=False),
    ):
        _form(desk, incident, choices)


def _key(part: str, incident: Incident) -> str:
    return f"{FORM}-{part}-{incident.run}-{incident.id}-{sent(FORM).saved}"


def _form(desk: Desk, incident: Incident, choices: tuple[str, ...]) -> None:
    visitor = this_visitor()
    st.radio(
        "What to do", choices, format_func=LABELS.__getitem__, key=_key("what", incident), horizontal=True,
        label_visibility="collapsed",
    )  # fmt: skip
    if "close" in choices:
        st.html(f'<div class="lg-note">{escape(close_words(incident))}</div>')
    name_field(visitor)
    hint = "Not needed to acknowledge" if choices[0] == "acknowledge" else ""
    st.text_area("What to say", max_chars=MOST_LETTERS, height=90, placeholder=hint, key=_key("text", incident))
    on_click = partial(_save, desk, incident, choices[0], sent(FORM).saved)
    submit(desk, visitor, "Save to timeline", on_click, sent(FORM).problems.get(_key("form", incident), ""))


def _save(desk: Desk, incident: Incident, likeliest: str, drawn: int) -> None:
    """Save what was filled in, or remember why that cannot be done."""
    filled: Any = st.session_state.get
    said = Saying(
        action_of(filled(_key("what", incident)) or likeliest), filled(_key("text", incident), ""),
        filled("act-by", ""), filled("act-token", ""),
    )  # fmt: skip
    write = partial(desk.act, incident.run, incident.id, said, this_visitor())
    words = f"{LABELS.get(said.action, said.action)}: saved to the timeline."
    save(write, FORM, _key("form", incident), words, drawn)


def name_field(visitor: Visitor) -> None:
    """Draw the field for a name; where a sign-in gives it, say under which name one writes."""
    if visitor.name:
        st.html(f'<div class="lg-note">Written as <b>{escape(visitor.name)}</b>, who is signed in here.</div>')
    else:
        st.text_input("Your name", max_chars=MOST_NAME_LETTERS, key="act-by")


def submit(desk: Desk, visitor: Visitor, label: str, on_click: Callable[[], None], problem: str) -> None:
    """Draw the field for the token, where one is needed, why the last try could not be saved, and the button.

    ``problem`` stands above the button: below it the menu ends, and what stands there is out of sight.
    """
    if desk.needs_token(visitor):
        st.text_input("Token of this console", type="password", key="act-token")
    if problem:
        st.error(problem)
    st.form_submit_button(label, type="primary", on_click=on_click)


def this_visitor() -> Visitor:
    """Return who looks at the page."""
    return Visitor(dict(st.context.headers), st.context.ip_address, person())
