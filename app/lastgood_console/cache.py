"""Own the pages' bounded cache: charts, documents, stories and alerts are worked out once per state, not at every tick.

A chart is kept as its finished specification: to check and write it out takes longer than all the rest of a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from lastgood.peers import Peers
from lastgood.state import Incident, RunState
from lastgood.step_clock import StepClock
from lastgood.timeline import TimelineEntry, condensed, entries, story
from lastgood_console.components.alert_facts import Alerts, alerts_of
from lastgood_console.components.devices import DeviceRow, rows
from lastgood_console.components.peers_chart import peers_chart
from lastgood_console.components.timeline_chart import timeline_chart
from lastgood_console.export.document import Document, to_document
from lastgood_console.export.tokens import ThemeName

Spec = dict[str, Any]
FEW_ALERTS: Final = 50
"""So many are sorted out faster than Streamlit's cache is asked."""


def timeline_picture(state: RunState, incident: Incident, theme: ThemeName) -> Spec:
    """Return the incident's timeline as a Vega-Lite specification."""
    return _timeline(state, incident, state.run, incident.id, _version(state), theme)


def peers_picture(found: Peers, incident: Incident, theme: ThemeName) -> Spec:
    """Return a suspect against its peers as a Vega-Lite specification."""
    return _peers(found, incident, incident.run, incident.id, found.rank, found.metric, len(found.steps), theme)


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
    version = tuple((run, _version(state), state.active) for run, state in states.items())
    return _devices(tuple(states.values()), version, now // 60 * 60)


def step_clock(state: RunState) -> StepClock:
    """Return what tells when a run's steps ran."""
    return _step_clock(state, state.run, _version(state))


def _version(state: RunState) -> str:
    """Identify a state: its events, and how its checkpoints stand (one may go missing without an event)."""
    return state.events_digest + "".join(c.trust[:2] for c in state.checkpoints)


@st.cache_resource(max_entries=64, show_spinner=False)
def _story(_state: RunState, _incident: Incident, run: str, incident: str, version: str) -> tuple[TimelineEntry, ...]:
    return story(condensed(entries(_state, _incident)))


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
def _timeline(_state: RunState, _incident: Incident, run: str, incident: str, version: str, theme: ThemeName) -> Spec:
    return timeline_chart(_state, _incident, theme).to_dict()


@st.cache_resource(max_entries=64, show_spinner=False)
def _document(_state: RunState, _incident: Incident, run: str, incident: str, version: str) -> Document:
    return to_document(_state, _incident)


@st.cache_resource(max_entries=64, show_spinner=False)
def _peers(
    _found: Peers, _incident: Incident, run: str, incident: str, rank: int, metric: str, steps: int, theme: ThemeName
) -> Spec:
    return peers_chart(_found, _incident, theme).to_dict()
