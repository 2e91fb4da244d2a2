"""Draw alerts: which stand, since when, what they say, which are over, and whether the way they come is alive.

The name of an alert leads to its runbook, its node to what is known about that node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from lastgood.alert_limits import FORGOTTEN
from lastgood.alert_story import SOURCES
from lastgood.events import Event
from lastgood.wording import age_text, moment
from lastgood_alerts.page import fires_at
from lastgood_alerts.rule import Rule
from lastgood_console.alerts.fleet import FLEET, Heartbeat
from lastgood_console.characters import escape
from lastgood_console.components.alert_facts import Alerts, name_of, severity_of
from lastgood_console.components.heads import empty, section
from lastgood_console.components.symbols import Symbol, marked, symbol
from lastgood_console.components.tables import NOTHING, Column, runbook_link, table_html

LATE_SECONDS: Final = 5 * 3600.0
"""Alerting systems repeat what still fires every four hours; a Watchdog later than this did not come."""
SOON_SECONDS: Final = 900.0
"""A Watchdog that usually comes more often (every 5 minutes by our configurations) is late after three of its gaps,
and not before this: a restart of the console or of Alertmanager is no silence."""
MOST_ALERTS: Final = 20
MOST_OVER: Final = 10
MOST_BESIDE: Final = 8
COLUMNS: Final = (
    Column("Alert", "named"), Column("Severity", "named"), Column("Since (UTC)", "nowrap"), Column("Run", "named"),
    Column("Node", "named"), Column("What it says", "prose"), Column("From", "nowrap"),
)  # fmt: skip
_SEVERITIES: Final[Mapping[str, Symbol]] = {"critical": "critical", "warning": "warning"}
_STATUSES: Final = {
    "lost": "lost, not recovered",
    "no_data": "the rule has no data",
    "error": "the rule cannot be evaluated",
    "truncated": "not sent",
}


def severity_mark(severity: str) -> str:
    """Return a severity: symbol and word."""
    return marked(_SEVERITIES.get(severity, "info"), severity or "no severity")


def node_link(node: str) -> str:
    """Return a node as a link to what is known about it."""
    return f'<a href="nodes?node={quote(node, safe="")}">{escape(node)}</a>'


def section_html(found: Alerts, now: str, note: str, *, none: str = "", path: str = "") -> str:
    """Return a section on alerts: those that stand, then those that are over. ``now``: RFC 3339.

    Nothing without any alert, unless ``none`` says what is true then. ``path`` is HTML.
    """
    if not (found.standing or found.over or none):
        return ""
    head = section("Alerts", note) + (f'<div class="lg-caption">{path}</div>' if path else "")
    stand = alerts_html(found.standing, now) if found.standing else empty(escape(none or "No alert stands."))
    return head + stand + _more(len(found.standing) - MOST_ALERTS) + _over_html(found.over, now)


def _over_html(over: Sequence[Event], now: str) -> str:
    if not over:
        return ""
    head = '<div class="lg-caption lg-over">Over, newest first</div>'
    rows = [("lg-tr-over", _cells(event, now)) for event in over[:MOST_OVER]]
    return head + table_html(COLUMNS, rows, label="Alerts that are over") + _more(len(over) - MOST_OVER)


def _more(count: int) -> str:
    return f'<div class="lg-caption">and {count} more</div>' if count > 0 else ""


def alerts_html(found: Sequence[Event], now: str) -> str:
    """Return the table of alerts. ``now``: RFC 3339."""
    rows = [("", _cells(event, now)) for event in found[:MOST_ALERTS]]
    return table_html(COLUMNS, rows, label="Alerts")


def facts_html(rule: Rule | None, found: Sequence[Event], now: str) -> str:
    """Return what stands beside a runbook: when its alert fires, and where it does. ``now``: RFC 3339."""
    told = [f"<div>{_place(event, now)}<small>{escape(str(event.data.get('summary', '')))}</small></div>"
            for event in found[:MOST_BESIDE]]  # fmt: skip
    facts = {"Stands": "".join(told) or "nowhere, in the last 7 days"}
    if len(found) > MOST_BESIDE:
        facts["Stands"] += f"<small>and {len(found) - MOST_BESIDE} more</small>"
    if rule is not None:
        facts = {"Severity": severity_mark(rule.severity), "Fires at": escape(fires_at(rule))} | facts
    return f'<dl class="lg-facts">{"".join(f"<dt>{name}</dt><dd>{said}</dd>" for name, said in facts.items())}</dl>'


def _place(event: Event, now: str) -> str:
    """Return which run and node an alert is about, each as a link, and since when."""
    run = "" if event.run == FLEET else f'<a href=".?run={quote(event.run, safe="")}">{escape(event.run)}</a>'
    places = [part for part in (run, node_link(event.node) if event.node else "") if part]
    return f"{', '.join(places) or 'no run'} · since {_when(event, now)}"


def _cells(event: Event, now: str) -> list[str]:
    data = event.data
    said = "" if data.get("reason") == FORGOTTEN else _STATUSES.get(data["status"], "")
    reason = str(data.get("reason", "")) if said else ""
    words = [w for w in (said.capitalize(), reason, str(data.get("summary", ""))) if w]
    return [
        runbook_link(name_of(event)),
        severity_mark(severity_of(event)),
        _when(event, now),
        NOTHING if event.run == FLEET else escape(event.run),
        node_link(event.node) if event.node else NOTHING,
        escape(": ".join(words)) or NOTHING,
        SOURCES[data["source"]],
    ]


def _when(event: Event, now: str) -> str:
    """Return when an alert began, and when it ended where that is known."""
    end = str(event.data.get("ends_at", "")) if event.data["status"] != "lost" else ""
    began = _time(event.data["starts_at"], now)
    if not end:
        return began
    same_day = end[:10] == event.data["starts_at"][:10]
    return f"{began} to {end[11:19] if same_day else _time(end, now)}"


def _time(at: str, now: str) -> str:
    return at[11:19] if at.startswith(now[:10]) else f"{moment(at):%d %b %H:%M}"


def path_html(beats: Sequence[Heartbeat], now: float) -> str:
    """Return whether alerts still find their way here: when the newest Watchdog arrived. ``now``: unix seconds."""
    if not beats:
        return "no heartbeat: no Watchdog has arrived yet"
    newest = beats[0]
    age = max(0.0, now - newest.at)
    words = f"last heartbeat {age_text(age)} ago, from {SOURCES.get(newest.source, newest.source)}"
    if age <= late_after(newest) and newest.firing:
        return f"alert path alive, {escape(words)}"
    late = "the Watchdog has stopped firing" if not newest.firing else "alert path silent"
    return f'<span class="lg-stale">{symbol("warning")} {late}, {escape(words)}</span>'


def late_after(beat: Heartbeat) -> float:
    """Return the seconds after which the next Watchdog is late, by how often it came."""
    return LATE_SECONDS if beat.every is None else min(LATE_SECONDS, max(SOON_SECONDS, 3 * beat.every))
