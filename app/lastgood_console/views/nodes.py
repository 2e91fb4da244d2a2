"""Nodes: which device has been accused before, over all runs, and where it runs now. Where a node's alert leads."""

from collections.abc import Iterable, Sequence

import streamlit as st

from lastgood_console.cache import Fleet, devices, fleet_cells, node_map_picture
from lastgood_console.characters import escape
from lastgood_console.components.alerts import section_html
from lastgood_console.components.device_rows import MOST_DEVICES, devices_html, named_head_html, named_html
from lastgood_console.components.devices import DeviceRow, consequence, headline, matching
from lastgood_console.components.heads import empty, rfc3339, section
from lastgood_console.components.node_cells import MEANS, MEASURES, Measure, summary
from lastgood_console.components.node_history import history_html, history_note, history_rows
from lastgood_console.components.node_map import PICKED, key_html, spoken
from lastgood_console.live import live_head
from lastgood_console.pause import news
from lastgood_console.shell import (
    address_choice,
    address_text,
    all_alerts,
    link_to_incident,
    no_runs_html,
    theme_name,
    to_address,
)
from lastgood_console.store import Snapshot

MAP = "node-map"
MOST_NAMED = 20
MOST_LINKS = 3
LINKS_WIDTH = 230


def named_devices(found: Sequence[DeviceRow], now: str) -> None:
    """Draw the devices that incidents name, each with links to them."""
    shown = found[:MOST_NAMED]
    st.html(section("Named by incidents", f"most accused first · {len(shown)} of {len(found)}"))
    with st.container(key="lg-devices"):
        with st.container(horizontal=True, key="lg-device-head"):
            st.html(named_head_html())
            st.html('<div class="lg-inc-head"><span>Incidents</span></div>', width=LINKS_WIDTH)
        for row in shown:
            with st.container(horizontal=True, key=f"lg-device-{row.place.node}-{row.place.gpu_uuid}"):
                st.html(named_html(row, now))
                with st.container(width=LINKS_WIDTH, gap="small"):
                    for incident in row.incidents[:MOST_LINKS]:
                        link_to_incident(f"{incident.run} › {incident.id}", incident.run, incident.id)
                    if len(row.incidents) > MOST_LINKS:
                        st.html(f'<div class="lg-caption">and {len(row.incidents) - MOST_LINKS} older</div>')


def every_device(found: Sequence[DeviceRow], now: str) -> None:
    """Draw the table of all devices."""
    cut = f" · the first {MOST_DEVICES} shown, search for others" if len(found) > MOST_DEVICES else ""
    st.html(section("Devices", f"{len(found)} over all runs{cut}"))
    st.html(devices_html(found, now))


def draw_map(fleet: Fleet, measure: Measure, wanted: str) -> None:
    """Draw the map. A cell that is clicked is searched for; a double click lets it go."""
    found = fleet.cells
    picked = next((cell.node for cell in found if cell.node.lower() == wanted.strip().lower()), "")
    note = f"{summary(found, measure)} · by name · colour: {MEANS[measure]}"
    st.html(section("Map", note))
    picture = node_map_picture(fleet, measure, picked, theme_name())
    st.vega_lite_chart(
        spec=picture, theme=None, width="stretch", key=MAP, alt=spoken(found, measure), on_select=pick,
        selection_mode=PICKED,
    )  # fmt: skip
    st.html(key_html(found, measure))


def pick() -> None:
    """Search for the node whose cell was clicked; the address follows."""
    picked: list[dict[str, str]] = st.session_state[MAP].selection.get(PICKED, [])
    node = picked[0].get("node", "") if picked else ""
    to_address({"node": node})


def history(found: Sequence[DeviceRow], node: str) -> None:
    """Draw every incident that names a device of one node, over all runs."""
    rows = history_rows(found)
    st.html(section(f"{node} · history", history_note(found, rows)))
    if rows:
        st.html(history_html(rows))
    else:
        st.html(empty("No incident names a device of this node."))


def alerts_about(nodes: Iterable[str], snapshot: Snapshot, seconds: float) -> None:
    """Draw the alerts about nodes, also those that an incident tells and those of no run."""
    found = all_alerts(snapshot, seconds).of_nodes(nodes)
    if drawn := section_html(found, rfc3339(seconds), "about these nodes · of the last 7 days · times in UTC"):
        st.html(drawn)


def chosen_measure() -> Measure:
    """Return the measure of the address; the first where it names none that there is."""
    asked = st.query_params.get("measure", "")
    return next((measure for measure in MEASURES if measure == asked), "accusations")


def measure_words(measure: str) -> str:
    """Return what a measure is called."""
    return next(words for name, words in MEASURES.items() if name == measure)


def clear_search() -> None:
    """Empty the search; the address follows."""
    to_address({"node": ""})


def page() -> None:
    """Draw the page."""
    snapshot, seconds = news()
    now = rfc3339(seconds)
    found = devices(snapshot.states, seconds)
    if not snapshot.states:
        live_head("No runs.", "", snapshot, seconds)
        st.html(empty(no_runs_html()))
        alerts_about([st.query_params.get("node", "")], snapshot, seconds)
        return
    live_head(headline(found), consequence(found) if found else "", snapshot, seconds)
    measure = chosen_measure()
    with st.container(horizontal=True, horizontal_alignment="distribute", key="lg-filters"):
        address_choice("Measure", "measure", tuple(MEASURES), measure, usual="accusations", words=measure_words)
        wanted = address_text("Search a node or a GPU", "node", width=320)
    draw_map(fleet_cells(snapshot, seconds), measure, wanted)
    shown = matching(found, wanted)
    if not shown:
        st.html(empty(f"No node and no GPU matches {escape(repr(wanted))}."))
        alerts_about([wanted.strip()], snapshot, seconds)
        st.button("Clear the search", type="tertiary", on_click=clear_search)
        return
    nodes = {row.place.node for row in shown}
    if wanted:
        st.button("Show all nodes", type="tertiary", on_click=clear_search)
    if len(nodes) == 1:
        history(shown, next(iter(nodes)))
    alerts_about(nodes, snapshot, seconds)
    if named := [row for row in shown if row.incidents]:
        named_devices(named, now)
    every_device(shown, now)


page()
