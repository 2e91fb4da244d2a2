"""Runbook: what to do about an alert. Where an alert's link leads, so it works without any other site."""

import streamlit as st

from lastgood_alerts.rules import RULES
from lastgood_alerts.runbooks import runbook
from lastgood_console.characters import escape
from lastgood_console.components.alerts import facts_html, severity_mark
from lastgood_console.components.heads import page_head, rfc3339
from lastgood_console.components.tables import RULE
from lastgood_console.pause import news
from lastgood_console.shell import TICK_SECONDS, all_alerts, ask_for


def page_of(name: str, text: str) -> None:
    """Draw one runbook; its first line is the title of the page. Beside it stands what is known about the alert."""
    rule = RULE.get(name)
    st.html(page_head(name, rule.meaning if rule else "", severity_mark(rule.severity) if rule else ""))
    with st.container(key="lg-runbook"):
        prose, beside = st.columns([1, 1.05], gap="large")
        with prose, st.container(key="lg-prose"):
            st.markdown(text.partition("\n")[2])
        with beside:
            facts(name)
    st.button("All runbooks", type="tertiary", on_click=ask_for, kwargs={})


@st.fragment(run_every=TICK_SECONDS)
def facts(name: str) -> None:
    """Draw when the alert fires and where it stands, again at every tick."""
    snapshot, seconds = news()
    found = all_alerts(snapshot, seconds).called(name)
    st.html(facts_html(RULE.get(name), found.standing, rfc3339(seconds)))


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
