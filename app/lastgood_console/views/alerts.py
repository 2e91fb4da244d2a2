"""Alerts: every alert of the last week, of all runs and of none; what stands first, what was resolved or lost after."""

from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

import streamlit as st

from lastgood.wording import joined
from lastgood_alerts.prometheus import CONSOLE_URL
from lastgood_console.alerts.fleet import FLEET
from lastgood_console.cache import step_clock
from lastgood_console.characters import escape
from lastgood_console.components.alert_rows import (
    NO_RUN,
    SEVERITIES,
    Burst,
    Listed,
    bursts,
    chosen,
    consequence,
    headline,
    listed,
)
from lastgood_console.components.alerts import path_html
from lastgood_console.components.alerts_page import alerts_table, plain_rows, receiver_lines
from lastgood_console.components.command import command_html
from lastgood_console.components.heads import empty, rfc3339, section
from lastgood_console.components.tables import MOST_ROWS
from lastgood_console.live import live_head
from lastgood_console.pause import news
from lastgood_console.shell import address_choice, all_alerts, ask_for, fresh_html
from lastgood_console.store import Snapshot

ROW_HEIGHT = 30
MOST_SEEN = 15  # rows of a plain table without scrolling in it


def filters(found: Listed, asked: dict[str, str], known: Collection[str]) -> None:
    """Draw what the list can be cut down to; the address holds it. ``known``: the runs that there are."""
    runs = sorted({event.run for event in (*found.standing, *found.over)} - {FLEET})
    if asked["run"] and asked["run"] not in (NO_RUN, *runs, *known):  # nothing of it stands, and that says nothing
        st.html(empty(f"No run here is called {escape(asked['run'])}, and no alert of the last 7 days names it."))
    with st.container(horizontal=True, key="lg-filters"):
        address_choice("Severity", "severity", ("all", *SEVERITIES), asked["severity"] or "all", usual="all")
        offered = dict.fromkeys(("all", NO_RUN, *runs, asked["run"] or "all"))
        address_choice("Run", "run", tuple(offered), asked["run"] or "all", usual="all", words=_run_words, many=True)
    if any(asked.values()):
        with st.container(horizontal=True, vertical_alignment="center", key="lg-only"):
            said = {"severity": "{} ones", "rule": "those of {}", "run": "those of run {}"}
            of = [said[name].format(_run_words(value)) for name, value in asked.items() if value]
            st.html(f'<div class="lg-sub">Only {escape(joined(of))} are listed.</div>', width="content")
            st.button("Show all alerts", type="tertiary", on_click=ask_for)


def _run_words(run: str) -> str:
    return {"all": "all runs and none", NO_RUN: "of no run"}.get(run, run)


def table(rows: Sequence[Burst], snapshot: Snapshot, now: str, *, label: str) -> None:
    """Draw the rows; more than HTML can hold as plain text."""
    if len(rows) <= MOST_ROWS:
        st.html(alerts_table(rows, snapshot.states, now, step_clock, label=label))
        return
    st.dataframe(
        plain_rows(rows, snapshot.states, now, step_clock),
        height=ROW_HEIGHT * (MOST_SEEN + 1), row_height=ROW_HEIGHT, hide_index=True, key=f"plain-{label}", alt=label,
    )  # fmt: skip


def lists(found: Listed, snapshot: Snapshot, now: str, apart: bool) -> None:
    """Draw what stands and what is over."""
    stand, over = bursts(found.standing, apart=apart), bursts(found.over, apart=apart)
    st.html(section("Standing", f"{_counted(found.standing, stand)} · critical first, then newest · times in UTC"))
    if stand:
        table(stand, snapshot, now, label="Alerts that stand")
    else:
        st.html(empty("No such alert stands."))
    st.html(section("Resolved or lost", f"{_counted(found.over, over)} · newest end first · of the last 7 days"))
    if over:
        table(over, snapshot, now, label="Alerts that are over")
    else:
        st.html(empty("No such alert ended in the last 7 days."))


def _counted(events: Sequence[object], rows: Sequence[Burst]) -> str:
    return f"{len(events)}" + (f" in {len(rows)} rows" if len(rows) < len(events) else "")


def nothing_yet() -> None:
    """Say how alerts get here."""
    url = urlsplit(st.context.url or CONSOLE_URL)
    st.html(empty(
        "No alert has arrived in the last 7 days. Load the rules (<code>lastgood rules</code>), then let Alertmanager "
        "send everything to this console, with these lines in <code>alertmanager.yml</code> and a route to them. "
        "Grafana: <code>lastgood grafana deploy</code>. Both at once, on this machine: <code>lastgood stack</code>."
    ))  # fmt: skip
    st.html(command_html(receiver_lines(f"{url.scheme}://{url.netloc}")))


def what_is_asked() -> dict[str, str]:
    """Return severity, run and rule of the address; "" where it names none that there is."""
    asked = {name: st.query_params.get(name, "") for name in ("severity", "run", "rule")}
    return {name: "" if said == "all" or (name == "severity" and said not in SEVERITIES) else said
            for name, said in asked.items()}  # fmt: skip


def path_and_age(snapshot: Snapshot, seconds: float) -> str:
    """Return whether the way alerts come is alive, and how old the data is."""
    return f"{path_html(snapshot.heartbeats, seconds)} · {fresh_html(snapshot, seconds)}"


def page() -> None:
    """Draw the page."""
    snapshot, seconds = news()
    now = rfc3339(seconds)
    found = listed(all_alerts(snapshot, seconds))
    live_head(headline(found), consequence(found, snapshot.states), snapshot, seconds, right=path_and_age)
    if not (found.standing or found.over):
        nothing_yet()
        return
    asked = what_is_asked()
    filters(found, asked, snapshot.states)
    lists(chosen(found, **asked), snapshot, now, apart=bool(asked["rule"]))


page()
