"""Runbook: what to do about an alert. Where an alert's link leads, so it works without any other site."""

import streamlit as st

from lastgood_alerts.rules import RULES
from lastgood_alerts.runbooks import runbook
from lastgood_console.characters import escape
from lastgood_console.components.alerts import severity_mark
from lastgood_console.components.heads import page_head
from lastgood_console.shell import ask_for

RULE = {rule.name: rule for rule in RULES}


def page_of(name: str, text: str) -> None:
    """Draw one runbook; its first line is the title of the page."""
    rule = RULE.get(name)
    st.html(page_head(name, rule.meaning if rule else "", severity_mark(rule.severity) if rule else ""))
    with st.container(key="lg-prose"):
        st.markdown(text.partition("\n")[2])
    st.button("All runbooks", type="tertiary", on_click=ask_for, kwargs={})


def every_runbook(asked_for: str) -> None:
    """List the runbooks, after saying what was not found."""
    headline = f"No runbook is called {asked_for!r}." if asked_for else "Runbooks."
    st.html(page_head(headline, "What each alert means, and what to do about it.", ""))
    with st.container(key="lg-list"):
        for rule in RULES:
            with st.container(horizontal=True, vertical_alignment="center", key=f"lg-item-{rule.name}"):
                with st.container(width=220):
                    st.button(rule.name, type="tertiary", on_click=ask_for, kwargs={"name": rule.name})
                st.html(severity_mark(rule.severity), width=90)
                st.html(f'<span class="lg-sub">{escape(rule.meaning)}</span>')


name = st.query_params.get("name", "")
text = runbook(name)
if text is None:
    every_runbook(name)
else:
    page_of(name, text)
