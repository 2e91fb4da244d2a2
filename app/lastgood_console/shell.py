"""Give page scripts what each of them asks Streamlit and the store for: the snapshot, the time, the theme, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import streamlit as st

from lastgood.state import RunState
from lastgood_console.cache import run_alerts
from lastgood_console.characters import escape
from lastgood_console.components.alert_facts import Alerts, read_alerts
from lastgood_console.components.heads import freshness, metrics_note, rfc3339
from lastgood_console.components.triage import RunRow, rows
from lastgood_console.export.tokens import ThemeName
from lastgood_console.hearing import gone_runs
from lastgood_console.pause import paused_html
from lastgood_console.store import STALE_SECONDS, Snapshot, current

TICK_SECONDS: Final = 2.0
"""How often a page looks for news. What has not changed is not drawn again."""
WEEK_SECONDS: Final = 7 * 86_400.0
INCIDENT_PAGE: Final = "views/incident.py"
ALERTS_PAGE: Final = "views/alerts.py"
NODES_PAGE: Final = "views/nodes.py"
OVERVIEW_PAGE: Final = "views/overview.py"
_ASKED: Final = "asked-for"
_MOST_SAID: Final = 40
"""Characters of a strange address that are said again."""


def theme_name() -> ThemeName:
    """Return the visitor's theme, as far as Streamlit knows it."""
    return "dark" if st.context.theme.type == "dark" else "light"


def fresh_html(snapshot: Snapshot, now: float) -> str:
    """Return how old the data is, and since when the visitor holds it still."""
    age = freshness(snapshot.read_at, now, STALE_SECONDS)
    return f"{paused} · {age}" if (paused := paused_html()) else age


def metrics_warning(snapshot: Snapshot, now: float) -> None:
    """Draw the trouble of the metrics server; nothing when it has none, or is not asked. ``now``: unix seconds."""
    if note := metrics_note(snapshot.metrics_problem, snapshot.metrics_problem_since, now):
        st.html(note)


def all_alerts(snapshot: Snapshot, now: float) -> Alerts:
    """Return the alerts of the last week. ``now``: unix seconds."""
    since = rfc3339(now - WEEK_SECONDS)
    return read_alerts(snapshot.states, snapshot.stray_alerts, since, snapshot.alert_texts, of_run=run_alerts)


def outside_alerts(snapshot: Snapshot, now: float) -> Alerts:
    """Return the alerts of the last week that name no incident. ``now``: unix seconds."""
    return all_alerts(snapshot, now).outside(snapshot.states)


def runs_of(snapshot: Snapshot, outside: Alerts, now: str) -> tuple[RunRow, ...]:
    """Return how the runs of a snapshot stand. ``outside``: alerts that name no incident; ``now``: RFC 3339."""
    return rows(
        snapshot.states.values(), progress=snapshot.progress, silent_seconds=snapshot.silent_seconds,
        alerts=outside.standing, now=now, unread=snapshot.gone.kept,
    )  # fmt: skip


def link_to_incident(label: str, run: str, incident: str | None = None) -> None:
    """Draw a link inside the app that carries the selection."""
    params = {"run": run} | ({"incident": incident} if incident else {})
    st.page_link(INCIDENT_PAGE, label=label, query_params=params)


def show_another(label: str, run: str, incident: str) -> None:
    """Draw a button that changes the selection of this page: a link to the page one is on leads nowhere."""
    params = {"run": run, "incident": incident}
    st.button(label, type="tertiary", key=f"show-{run}-{incident}", on_click=st.query_params.from_dict, args=(params,))


def ask_for(**params: str) -> None:
    """Change what this page is about: its address carries exactly these parameters."""
    st.query_params.from_dict(params)


def address_choice(
    label: str,
    name: str,
    options: Sequence[str],
    chosen: str,
    *,
    usual: str = "",
    words: Callable[[str], str] = str,
    many: bool = False,
    hidden: bool = False,
    clears: Sequence[str] = (),
) -> None:
    """Draw a choice that the address holds as ``name``; ``usual`` is what holds without it, and is not written.

    The address governs: the widget follows it, and what a visitor chooses is written there. ``many``: as a list that
    can be searched, else side by side. ``hidden``: the label is for screen readers alone. ``clears``: parameters that
    mean nothing any more once this one changes.
    """
    key = _following(name, chosen)
    draw: Callable[..., object] = (
        partial(st.selectbox, width=260) if many else partial(st.segmented_control, required=True)
    )
    seen = "collapsed" if hidden else "visible"
    draw(
        label, options, key=key, format_func=words, on_change=_into_address, args=(key, name, usual, clears),
        label_visibility=seen,
    )  # fmt: skip
    if note := not_offered(name, st.query_params.get(name, ""), options):
        st.html(f'<span class="lg-caption">{escape(note)}</span>', width="content")


def not_offered(name: str, said: str, options: Sequence[str]) -> str:
    """Return what to say of an address that asks for what is no choice; "" when it asks for one, or for nothing."""
    if not said or said in options:
        return ""
    shown = said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}…"
    return f"{name}={shown} of the address is none of these: ignored"


def address_text(label: str, name: str, *, width: int) -> str:
    """Draw a text that the address holds as ``name``; return it."""
    said = st.query_params.get(name, "")
    key = _following(name, said)
    st.text_input(label, key=key, width=width, on_change=_into_address, args=(key, name, ""))
    return said


def _following(name: str, said: str) -> str:
    """Return the key of the widget of a parameter, which shows what the address says."""
    key = f"in-address-{name}"
    if st.session_state.get(key) != said:
        st.session_state[key] = said
    return key


def _into_address(key: str, name: str, usual: str, clears: Sequence[str] = ()) -> None:
    said = st.session_state[key] or usual
    to_address({name: "" if said == usual else said} | dict.fromkeys(clears, ""))


def asked(states: Mapping[str, RunState]) -> tuple[str | None, str | None]:
    """Return the run and the incident of the address; without a run those that this visitor last asked for.

    Streamlit's navigation leads to bare addresses: who looks at a run must not be told of another one there.
    """
    run, incident = st.query_params.get("run"), st.query_params.get("incident")
    if run or incident:
        st.session_state[_ASKED] = (run, incident)
        return run, incident
    run, incident = st.session_state.get(_ASKED, (None, None))
    if run not in states:
        return None, None
    to_address({"run": run, "incident": incident or ""})
    return run, incident


def to_address(changes: Mapping[str, str]) -> None:
    """Write parameters of the address; "" takes one away. All at once: the browser's Back undoes them together."""
    before = st.query_params.to_dict()
    after = {name: value for name, value in {**before, **changes}.items() if value or name not in changes}
    if after != before:
        st.query_params.from_dict(after)


def no_runs_html() -> str:
    """Return what to say when there is no run yet."""
    places = ", ".join(str(place) for place in current().places) or "runs"
    if gone := gone_runs(current().snapshot().gone):
        return f"No runs in <code>{escape(places)}</code> any more. {escape(gone)}"
    return (
        f"No runs in <code>{escape(places)}</code>. Start one with <code>lastgood demo</code>, "
        "or point the console at a run directory."
    )
