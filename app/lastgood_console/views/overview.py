"""Overview: how many runs need a decision, which first, and the recent incidents."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from lastgood.alert_story import alerts_in
from lastgood.state import Incident
from lastgood_console.cache import Fleet, fleet_cells, fleet_map_picture
from lastgood_console.characters import escape
from lastgood_console.components.alert_facts import Alerts, fleet_alarms
from lastgood_console.components.alerts import path_html, section_html
from lastgood_console.components.decision import state_words
from lastgood_console.components.heads import empty, rfc3339, section, unreadable_warning
from lastgood_console.components.node_cells import summary
from lastgood_console.components.node_map import key_html, spoken
from lastgood_console.components.run_row import run_html
from lastgood_console.components.tables import INCIDENT_HEADS, incident_cells
from lastgood_console.components.triage import RunRow, consequence, headline
from lastgood_console.live import live_head
from lastgood_console.pause import news
from lastgood_console.shell import (
    ALERTS_PAGE,
    NODES_PAGE,
    ask_for,
    fresh_html,
    link_to_incident,
    metrics_warning,
    no_runs_html,
    outside_alerts,
    runs_of,
    theme_name,
)
from lastgood_console.store import Snapshot

MOST_INCIDENTS = 20
LINK_WIDTH = 104


def runs(found: Sequence[RunRow], snapshot: Snapshot, now: str) -> None:
    """Draw the runs, newest trouble first."""
    st.html(section("Runs", "newest trouble first"))
    for row in found:
        with st.container(horizontal=True, key=f"lg-run-{row.state.run}"):
            st.html(run_html(row, snapshot.progress.get(row.state.run), now))
            with st.container(width=LINK_WIDTH):
                target = row.incident.id if row.incident else None
                link_to_incident("Open incident" if target else "Open run", row.state.run, target)


def recent_incidents(incidents: Sequence[Incident], now: str) -> None:
    """Draw the newest incidents, each with a link."""
    shown = incidents[:MOST_INCIDENTS]
    st.html(section("Recent incidents", f"newest first · {len(shown)} of {len(incidents)} · times in UTC"))
    if not shown:
        st.html(empty("No incident in any run."))
        return
    with st.container(key="lg-incidents"):
        with st.container(horizontal=True, key="lg-inc-head"):
            st.html('<div class="lg-inc-head"><span>Incident</span></div>', width=LINK_WIDTH)
            st.html(
                f'<div class="lg-inc lg-inc-head">{"".join(f"<span>{head}</span>" for head in INCIDENT_HEADS)}</div>'
            )
        for incident in shown:
            with st.container(horizontal=True, key=f"lg-inc-{incident.run}-{incident.id}"):
                with st.container(width=LINK_WIDTH):
                    link_to_incident(incident.id, incident.run, incident.id)
                cells = incident_cells(incident, state_words(incident, now), now)
                st.html(f'<div class="lg-inc">{"".join(f"<span>{cell}</span>" for cell in cells)}</div>')


def draw_map(fleet: Fleet) -> None:
    """Draw the small map of all nodes, ordered by run."""
    found = fleet.cells
    st.html(section("Fleet", f"{summary(found, 'unhealthy')} · ordered by run"))
    picture = fleet_map_picture(fleet, theme_name())
    st.vega_lite_chart(spec=picture, theme=None, width="stretch", key="fleet-map", alt=spoken(found, "unhealthy"))
    with st.container(horizontal=True, vertical_alignment="center", key="lg-fleet-key"):
        st.html(key_html(found, "unhealthy"), width="content")
        st.page_link(NODES_PAGE, label="Open nodes")


def alerts(outside: Alerts, snapshot: Snapshot, now: str, seconds: float) -> None:
    """Draw the alerts that no incident tells, and whether the way they come is alive."""
    if not (outside.standing or snapshot.heartbeats or any(alerts_in(s.annotations) for s in snapshot.states.values())):
        return  # nothing is set up to send any
    note = "that name no incident · of the last 7 days · times in UTC"
    path = path_html(snapshot.heartbeats, seconds)
    st.html(section_html(outside, now, note, none="No alert stands outside an incident.", path=path))
    st.page_link(ALERTS_PAGE, label="Open alerts")


def about_one_run(wanted: str, known: bool) -> None:
    """Say that the address names a run, where alerts without an incident lead, and offer the others."""
    with st.container(horizontal=True, vertical_alignment="center", key="lg-one-run"):
        words = f"Only run {wanted} is shown." if known else f"No run is called {wanted!r}; all are shown."
        st.html(f'<div class="lg-sub">{escape(words)}</div>', width="content")
        st.button("Show all runs", type="tertiary", on_click=ask_for)


def age_and_clock(snapshot: Snapshot, seconds: float) -> str:
    """Return how old the data is, and the time of day, which tells a screen on the wall that it is alive."""
    return f"{fresh_html(snapshot, seconds)} · {rfc3339(seconds)[11:19]} UTC"


def page() -> None:
    """Draw the page."""
    snapshot, seconds = news()
    now = rfc3339(seconds)
    if not snapshot.states:
        outside = outside_alerts(snapshot, seconds)
        live_head(headline((), fleet_alarms(outside.standing, ())), "", snapshot, seconds)
        metrics_warning(snapshot, seconds)
        st.html(empty(no_runs_html()))
        alerts(outside, snapshot, now, seconds)
        return
    wanted = st.query_params.get("run", "")
    if wanted in snapshot.states:
        snapshot = replace(snapshot, states={wanted: snapshot.states[wanted]}, stray_alerts=())
    outside = outside_alerts(snapshot, seconds)
    found = runs_of(snapshot, outside, now)
    fleet = fleet_alarms(outside.standing, snapshot.states)
    live_head(headline(found, fleet), consequence(found), snapshot, seconds, right=age_and_clock)
    metrics_warning(snapshot, seconds)
    warnings = "".join(unreadable_warning(row.state) for row in found)
    if warnings:
        st.html(warnings)
    if wanted:
        about_one_run(wanted, wanted in snapshot.states)
    runs(found, snapshot, now)
    if (nodes := fleet_cells(snapshot, seconds)).cells:
        draw_map(nodes)
    alerts(outside, snapshot, now, seconds)
    incidents = [i for row in found for i in row.state.incidents]
    recent_incidents(sorted(incidents, key=lambda i: i.opened_at, reverse=True), now)


page()
