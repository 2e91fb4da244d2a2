"""Draw the form in which a visitor acts on an incident. What it means and who may is in :mod:`.desk`."""

from __future__ import annotations

import streamlit as st

from lastgood.state import Incident
from lastgood_console.actions import MOST_LETTERS, MOST_NAME_LETTERS, ActionError
from lastgood_console.components.decision import sentence
from lastgood_console.desk import LABELS, Desk, Saying, Visitor, possible
from lastgood_console.store import current


def act_on(incident: Incident) -> None:
    """Offer what can be done to an incident now; draw nothing where nobody can write."""
    desk = current().desk
    if desk is None:
        return
    name, choices = f"{incident.run}-{incident.id}", possible(incident)
    waits = choices[0] == "acknowledge"
    label = "Acknowledge incident…" if waits else "Add note…"
    done = st.session_state.get("acted", 0)  # what was saved closes the menu, and the next form begins empty
    with (
        st.popover(label, type="primary" if waits else "secondary", key=f"act-{name}-{done}"),
        st.form(f"act-form-{name}-{done}", border=False),
    ):
        _form(desk, incident, choices)


def _form(desk: Desk, incident: Incident, choices: tuple[str, ...]) -> None:
    visitor = this_visitor()
    action = st.radio("What to do", choices, format_func=LABELS.__getitem__, key=f"act-what-{incident.id}")
    by = visitor.name or st.text_input("Your name", max_chars=MOST_NAME_LETTERS, key="act-by", persist_state="session")
    text = st.text_area("What to say", max_chars=MOST_LETTERS, height=90, placeholder="not needed to acknowledge")
    token = ""
    if desk.needs_token(visitor):
        token = st.text_input("Token of this console", type="password", key="act-token")
    if not st.form_submit_button("Save to timeline", type="primary"):
        if problem := st.session_state.get(f"act-problem-{incident.id}"):
            st.error(problem)
        return
    said = Saying(action or choices[0], text, by, token)
    try:
        written = desk.act(incident.run, incident.id, said, visitor)
    except ActionError as refused:
        st.session_state[f"act-problem-{incident.id}"] = sentence(str(refused))  # it outlives the next refresh
        st.error(sentence(str(refused)))
        return
    st.session_state.pop(f"act-problem-{incident.id}", None)
    st.session_state["acted"] = st.session_state.get("acted", 0) + 1
    kept = f" Kept in {written.file}: {written.instead}." if written.instead else ""
    st.toast(f"{LABELS[said.action]}: saved to the timeline.{kept}")
    st.rerun(scope="fragment")


def this_visitor() -> Visitor:
    """Return who looks at the page."""
    signed_in = bool(getattr(st.user, "is_logged_in", False))
    name = str(st.user.get("name") or st.user.get("email") or "") if signed_in else ""
    return Visitor(dict(st.context.headers), st.context.ip_address, name)
