"""Own the pages' bounded cache: charts, documents, stories and alerts are worked out once per state, not at every tick.

A chart is kept as its finished specification: to write it out takes longer than all the rest of a page. Tests hold
charts to Vega-Lite's schema; here that would take three quarters of the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from lastgood.peers import Peers
from lastgood.state import Incident, RunState
from lastgood.step_clock import StepClock
from lastgood.timeline import TimelineEntry, condensed, entries, story
from lastgood_console.components.alert_facts import Alerts, alerts_of
from lastgood_console.components.arrow import arrow_bytes
from lastgood_console.components.devices import DeviceRow, rows
from lastgood_console.components.node_cells import Measure, NodeCell, cells
from lastgood_console.components.node_map import fleet_map, node_map
from lastgood_console.components.peers_chart import peers_chart
from lastgood_console.components.time_frame import Frame
from lastgood_console.components.timeline_chart import timeline_spec
from lastgood_console.components.timeline_rows import picture
from lastgood_console.components.trend_chart import trend_chart
from lastgood_console.components.triage import is_silent
from lastgood_console.export.document import Document, to_document
from lastgood_console.export.tokens import ThemeName
from lastgood_console.sources.trend import Trend
from lastgood_console.store import Snapshot

Spec = dict[str, Any]
FEW_ALERTS: Final = 50
"""So many are sorted out faster than Streamlit's cache is asked."""


def timeline_picture(state: RunState, incident: Incident, frame: Frame, theme: ThemeName) -> Spec:
    """Return the incident's timeline of a time as a Vega-Lite specification; its data sets are Arrow streams."""
    return _timeline(state, incident, state.run, incident.id, _version(state), frame, theme)


def peers_picture(found: Peers, incident: Incident, theme: ThemeName) -> Spec:
    """Return a suspect against its peers as a Vega-Lite specification."""
    return _peers(found, incident, incident.run, incident.id, found.rank, found.metric, found.steps, theme)


def trend_picture(found: Trend, incident: Incident, theme: ThemeName) -> Spec:
    """Return a suspect's trend beside its peers as a Vega-Lite specification."""
    version = (found.asked_at, found.times[0], found.times[-1])
    return _trend(found, incident, incident.run, incident.id, found.rank, found.metric, version, theme)


def document(state: RunState, incident: Incident) -> Document:
    """Return the incident's document, which the exports are written from. Not to be changed by the caller."""
    return _document(state, incident, state.run, incident.id, _version(state))


def story_told(state: RunState, incident: Incident) -> tuple[TimelineEntry, ...]:
    """Return the entries of the table "What happened, and when we knew"."""
    return _story(state, incident, state.run, incident.id, _version(state))


def run_alerts(state: RunState) -> Alerts:
    """Return all alerts of a run, sorted out again when the run has news."""
    if len(state.annotations) <= FEW_ALERTS:
        return alerts_of(state)
    return _run_alerts(state, state.run, state.events_digest)


def devices(states: Mapping[str, RunState], now: float) -> list[DeviceRow]:
    """Return what is known about each device, counted again when a run has news and every minute."""
    return _devices(tuple(states.values()), _versions(states), now // 60 * 60)


def _versions(states: Mapping[str, RunState]) -> tuple[tuple[str, str, bool], ...]:
    return tuple((run, _version(state), state.active) for run, state in states.items())


@dataclass(frozen=True, slots=True)
class Fleet:
    """The cells of the fleet map, by node. ``version`` identifies what they were counted from."""

    cells: Sequence[NodeCell]
    version: Hashable


def fleet_cells(snapshot: Snapshot, now: float) -> Fleet:
    """Return the cells of the fleet map; counted again as :func:`devices` is, or when a run falls silent."""
    states = snapshot.states
    silent = tuple(
        run
        for run, seconds in snapshot.silent_seconds.items()
        if run in states and is_silent(states[run], snapshot.progress.get(run), seconds)
    )
    version = (silent, _versions(states), now // 60 * 60)
    return Fleet(_node_cells(devices(states, now), states, *version), version)


def node_map_picture(fleet: Fleet, measure: Measure, picked: str, theme: ThemeName) -> Spec:
    """Return the map of the page of nodes as a Vega-Lite specification."""
    return _node_map(fleet.cells, fleet.version, measure, picked, theme)


def fleet_map_picture(fleet: Fleet, theme: ThemeName) -> Spec:
    """Return the small map of the overview as a Vega-Lite specification."""
    return _fleet_map(fleet.cells, fleet.version, theme)


def step_clock(state: RunState) -> StepClock:
    """Return what tells when a run's steps ran."""
    return _step_clock(state, state.run, _version(state))


def _version(state: RunState) -> str:
    """Identify a state: its events, and how its checkpoints stand (one may go missing without an event)."""
    return state.events_digest + "".join(c.trust[:2] for c in state.checkpoints)


def _with_streams(spec: Spec) -> Spec:
    """Return a specification with its data sets as Arrow streams, as Streamlit sends them on."""
    return {**spec, "datasets": {name: arrow_bytes(rows) for name, rows in spec["datasets"].items()}}


@st.cache_resource(max_entries=64, show_spinner=False)
def _story(_state: RunState, _incident: Incident, run: str, incident: str, version: str) -> tuple[TimelineEntry, ...]:
    return story(condensed(entries(_state, _incident)))


@st.cache_resource(max_entries=2, show_spinner=False)
def _node_cells(
    _found: list[DeviceRow],
    _states: Mapping[str, RunState],
    silent: tuple[str, ...],
    version: tuple[tuple[str, str, bool], ...],
    now: float,
) -> list[NodeCell]:
    return cells(_found, _states, silent, now)


@st.cache_resource(max_entries=16, show_spinner=False)
def _node_map(_found: Sequence[NodeCell], version: Hashable, measure: Measure, picked: str, theme: ThemeName) -> Spec:
    return _with_streams(node_map(_found, measure, theme, picked=picked))


@st.cache_resource(max_entries=4, show_spinner=False)
def _fleet_map(_found: Sequence[NodeCell], version: Hashable, theme: ThemeName) -> Spec:
    return _with_streams(fleet_map(_found, theme))


@st.cache_resource(max_entries=64, show_spinner=False)
def _step_clock(_state: RunState, run: str, version: str) -> StepClock:
    return StepClock(_state)


@st.cache_resource(max_entries=256, show_spinner=False)
def _run_alerts(_state: RunState, run: str, version: str) -> Alerts:
    return alerts_of(_state)


@st.cache_resource(max_entries=2, show_spinner=False)
def _devices(_states: tuple[RunState, ...], version: tuple[tuple[str, str, bool], ...], now: float) -> list[DeviceRow]:
    return rows(_states, now)


@st.cache_resource(max_entries=64, show_spinner=False)
def _timeline(
    _state: RunState, _incident: Incident, run: str, incident: str, version: str, frame: Frame, theme: ThemeName
) -> Spec:
    drawn = picture(_state, _incident, step_clock(_state), frame, theme)
    return _with_streams({**timeline_spec(drawn.lanes, theme), "datasets": drawn.rows})


@st.cache_resource(max_entries=64, show_spinner=False)
def _document(_state: RunState, _incident: Incident, run: str, incident: str, version: str) -> Document:
    return to_document(_state, _incident)


@st.cache_resource(max_entries=64, show_spinner=False)
def _peers(
    _found: Peers,
    _incident: Incident,
    run: str,
    incident: str,
    rank: int,
    metric: str,
    steps: tuple[int, ...],
    theme: ThemeName,
) -> Spec:
    return _with_streams(peers_chart(_found, _incident, theme).to_dict(validate=False))


@st.cache_resource(max_entries=64, show_spinner=False)
def _trend(
    _found: Trend,
    _incident: Incident,
    run: str,
    incident: str,
    rank: int,
    metric: str,
    version: tuple[float, ...],
    theme: ThemeName,
) -> Spec:
    return _with_streams(trend_chart(_found, _incident, theme).to_dict(validate=False))
