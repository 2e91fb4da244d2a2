"""Checkpoints: from which one to resume a run, and how far each of the others can be trusted."""

from collections.abc import Mapping
from functools import partial

import streamlit as st

from lastgood.state import RunState
from lastgood_console.characters import escape
from lastgood_console.components.checkpoint_table import checkpoints_html
from lastgood_console.components.checkpoints_page import (
    consequence,
    counts_html,
    headline,
    offered,
    plain_rows,
    wanted,
)
from lastgood_console.components.heads import empty, origin_note, section, unreadable_warning
from lastgood_console.components.selection import select
from lastgood_console.components.strip import key_html, strip_html
from lastgood_console.components.tables import MOST_ROWS
from lastgood_console.export.origin import saves_words
from lastgood_console.hearing import heard_strip
from lastgood_console.live import live_head
from lastgood_console.pause import news
from lastgood_console.run_head import age_of
from lastgood_console.shell import (
    OVERVIEW_PAGE,
    address_choice,
    asked,
    link_to_incident,
    no_runs_html,
)
from lastgood_console.store import Snapshot
from lastgood_console.vouch_form import vouch_for

ROW_HEIGHT = 30
MOST_SEEN = 20  # rows of a plain table without scrolling in it


def chooser(states: Mapping[str, RunState], state: RunState) -> None:
    """Draw which run it is, the way to what happened in it, and the form."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="lg-filters"):
        if len(states) > 1:
            address_choice("Run", "run", sorted(states), state.run, many=True)
        incident = state.incidents[0].id if state.incidents else None
        link_to_incident("Open incident" if incident else "Open run", state.run, incident)
        vouch_for(state)


def strip(state: RunState, snapshot: Snapshot, seconds: float) -> None:
    """Draw the counts and the last lineages; the window is that of the newest incident."""
    st.html(counts_html(state))
    drawn = heard_strip(state, state.incidents[0] if state.incidents else None, snapshot, seconds)
    st.html(strip_html(drawn) + key_html(drawn))


def trust_table(state: RunState) -> None:
    """Draw the table of trust: symbols and tint where it is short, plain text where it is long and all is asked for."""
    kinds = offered(state)
    trust = st.query_params.get("trust", "all")
    trust = trust if trust in kinds else "all"
    found = wanted(state, "" if trust == "all" else trust)
    every = st.query_params.get("rows") == "all" and len(found) > MOST_ROWS
    shown = len(found) if every else min(len(found), MOST_ROWS)
    st.html(section("Saved checkpoints", f"newest first · {shown} of {len(found)} · times in UTC"))
    with st.container(horizontal=True, vertical_alignment="bottom", key="lg-trust-filter"):
        if len(kinds) > 2 or "trust" in st.query_params:
            address_choice("Trust", "trust", kinds, trust, usual="all")
        if len(found) > MOST_ROWS:
            rows = {"newest": f"newest {MOST_ROWS}", "all": f"all {len(found)}, as plain text"}
            chosen = "all" if every else "newest"
            address_choice("Rows", "rows", tuple(rows), chosen, usual="newest", words=rows.__getitem__)
    if every:
        st.dataframe(
            plain_rows(found, state), height=ROW_HEIGHT * (MOST_SEEN + 1), row_height=ROW_HEIGHT, hide_index=True,
            key="plain-checkpoints", alt="Checkpoints",
        )  # fmt: skip
    else:
        st.html(checkpoints_html(state, shown=found[:MOST_ROWS]))


def page() -> None:
    """Draw the page."""
    snapshot, seconds = news()
    chosen = select(snapshot.states, asked(snapshot.states)[0], None, snapshot.gone)
    state = chosen.state
    if chosen.problem:
        live_head("Nothing at this address.", chosen.problem, snapshot, seconds)
        st.page_link(OVERVIEW_PAGE, label="Open overview")
    elif state is None:
        live_head("No runs.", "", snapshot, seconds)
        st.html(empty(no_runs_html()))
    else:
        live_head(headline(state), consequence(state), snapshot, seconds, right=partial(age_of, state.run))
        if warning := origin_note(state) + unreadable_warning(state):
            st.html(warning)
        chooser(snapshot.states, state)
        if state.checkpoints or state.failed_saves:
            strip(state, snapshot, seconds)
            trust_table(state)
        elif state.origin == "metrics":
            st.html(counts_html(state) + empty(escape(saves_words(state.trust_counts))))
        else:
            st.html(empty("Nothing saved yet: wrap saves in "
                          "<code>with monitor.checkpoint(path):</code> and they are listed here."))  # fmt: skip


page()
