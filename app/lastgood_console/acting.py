"""Draw the form in which a visitor acts on an incident. What it means and who may is in :mod:`.desk`.

The form is saved in a callback, which runs before the page is drawn: the page then shows what follows from it. What
went wrong stays until the next try, since the page draws itself again every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import streamlit as st

from lastgood.state import Incident
from lastgood_console.actions import MOST_LETTERS, MOST_NAME_LETTERS, ActionError, close_words
from lastgood_console.characters import escape
from lastgood_console.components.decision import sentence
from lastgood_console.desk import LABELS, Desk, Saying, Visitor, possible
from lastgood_console.pause import look_again
from lastgood_console.people_journal import Written
from lastgood_console.sign_in import person
from lastgood_console.store import current

_SAVED: Final = "act-saved"
"""How often this visitor has saved: part of keys, so that the menu closes and the next form begins empty."""


def act_on(incident: Incident) -> None:
    """Offer what can be done to an incident now; draw nothing where nobody can write."""
    desk = current().desk
    if desk is None or incident.origin == "metrics":  # what is said is journaled, and the journal is not here
        return
    if told := st.session_state.pop("act-told", ""):
        st.toast(told)
    choices, name = possible(incident), _key("form", incident)
    waits = choices[0] == "acknowledge"
    label = "Acknowledge incident…" if waits else "Add note…"
    with (
        st.popover(label, type="primary" if waits else "secondary", key=_key("menu", incident)),
        st.form(name, border=False),
    ):
        _form(desk, incident, choices)


def _key(part: str, incident: Incident) -> str:
    return f"act-{part}-{incident.run}-{incident.id}-{st.session_state.get(_SAVED, 0)}"


def _form(desk: Desk, incident: Incident, choices: tuple[str, ...]) -> None:
    visitor = this_visitor()
    st.radio("What to do", choices, format_func=LABELS.__getitem__, key=_key("what", incident))
    if "close" in choices:
        st.html(f'<div class="lg-note">{escape(close_words(incident))}</div>')
    name_field(visitor)
    hint = "Not needed to acknowledge" if choices[0] == "acknowledge" else ""
    st.text_area("What to say", max_chars=MOST_LETTERS, height=90, placeholder=hint, key=_key("text", incident))
    submit(desk, visitor, "Save to timeline", _save, (desk, incident, choices[0]))
    if problem := st.session_state.get(_key("problem", incident)):
        st.error(problem)


def _save(desk: Desk, incident: Incident, likeliest: str) -> None:
    """Save what was filled in, or remember why that cannot be done."""
    filled: Any = st.session_state.get
    said = Saying(
        filled(_key("what", incident)) or likeliest, filled(_key("text", incident), ""),
        filled("act-by", ""), filled("act-token", ""),
    )  # fmt: skip
    write = partial(desk.act, incident.run, incident.id, said, this_visitor())
    save(write, _key("problem", incident), "act", f"{LABELS[said.action]}: saved to the timeline.")


def save(write: Callable[[], Written], problem_key: str, form: str, words: str) -> None:
    """Write what a form says, and remember what to tell: ``words``, or under ``problem_key`` why it cannot be done.

    ``form``: the beginning of the session's keys of that form.
    """
    try:
        written = write()
    except ActionError as problem:
        st.session_state[problem_key] = sentence(str(problem))
        return
    look_again()
    kept = f" Kept in {written.file}: {written.instead}." if written.instead else ""
    st.session_state[f"{form}-told"] = f"{words}{kept}"
    st.session_state[f"{form}-saved"] = st.session_state.get(f"{form}-saved", 0) + 1


def name_field(visitor: Visitor) -> None:
    """Draw the field for a name; where a sign-in gives it, say under which name one writes."""
    if visitor.name:
        st.html(f'<div class="lg-note">Written as <b>{escape(visitor.name)}</b>, who is signed in here.</div>')
    else:
        st.text_input("Your name", max_chars=MOST_NAME_LETTERS, key="act-by")


def submit(desk: Desk, visitor: Visitor, label: str, on_click: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Draw the field for the token, where one is needed, and the button."""
    if desk.needs_token(visitor):
        st.text_input("Token of this console", type="password", key="act-token")
    st.form_submit_button(label, type="primary", on_click=on_click, args=args)


def this_visitor() -> Visitor:
    """Return who looks at the page."""
    return Visitor(dict(st.context.headers), st.context.ip_address, person())
