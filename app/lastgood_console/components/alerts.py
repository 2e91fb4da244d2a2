"""Draw alerts: which stand, since when, what they say, and whether the way they come is alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lastgood.alert_story import SOURCES, alerts_in, standing
from lastgood.events import Event
from lastgood.state import RunState
from lastgood.wording import age_text, moment
from lastgood_console.alerts.fleet import FLEET, Heartbeat
from lastgood_console.characters import escape
from lastgood_console.components.symbols import Symbol, marked, symbol
from lastgood_console.components.tables import NOTHING, Column, table_html

LATE_SECONDS: Final = 5 * 3600.0
"""Alerting systems repeat what still fires every four hours; a Watchdog later than this did not come."""
SOON_SECONDS: Final = 900.0
"""A Watchdog that usually comes more often (every 5 minutes by our configurations) is late after three of its gaps,
and not before this: a restart of the console or of Alertmanager is no silence."""
MOST_ALERTS: Final = 20
COLUMNS: Final = (
    Column("Alert", "nowrap"), Column("Severity", "nowrap"), Column("Since (UTC)", "nowrap"), Column("Run"),
    Column("Node"), Column("What it says", "prose"), Column("From", "nowrap"),
)  # fmt: skip
_SEVERITIES: Final[Mapping[str, Symbol]] = {"critical": "critical", "warning": "warning"}
_ORDER: Final = {"critical": 0, "warning": 1}
_STATUSES: Final = {
    "lost": "lost, not recovered",
    "no_data": "the rule has no data",
    "error": "the rule cannot be evaluated",
    "truncated": "not sent",
}


def severity_mark(severity: str) -> str:
    """Return a severity: symbol and word."""
    return marked(_SEVERITIES.get(severity, "info"), severity or "no severity")


def standing_alerts(states: Mapping[str, RunState], strays: Iterable[Event], since: str = "") -> list[Event]:
    """Return the alerts of the last week that stand and name no incident: critical first, then newest first.

    A stray alert of a run that has become known since is told by that run. ``since``: RFC 3339; what began before it
    and was never said to be over has been forgotten by whoever sent it.
    """
    about_runs = [
        event
        for state in states.values()
        for event in alerts_in(state.annotations)
        if event.data.get("incident") not in {name for i in state.incidents for name in (i.id, *i.aliases)}
    ]
    found = standing([*about_runs, *(event for event in strays if event.run not in states)])
    recent = [event for event in found if max(event.time, event.data["starts_at"]) >= since]
    return sorted(recent, key=lambda event: _ORDER.get(str(event.data.get("severity")), len(_ORDER)))


def alerts_html(found: Sequence[Event], now: str) -> str:
    """Return the table of alerts. ``now``: RFC 3339."""
    rows = [("", _cells(event, now)) for event in found[:MOST_ALERTS]]
    return table_html(COLUMNS, rows, label="Alerts")


def _cells(event: Event, now: str) -> list[str]:
    data = event.data
    said = _STATUSES.get(data["status"], "")
    reason = str(data.get("reason", "")) if said else ""
    words = [w for w in (said.capitalize(), reason, str(data.get("summary", ""))) if w]
    began = data["starts_at"]
    since = f"{began[11:19]}" if began.startswith(now[:10]) else f"{moment(began):%d %b %H:%M}"
    return [
        escape(str(data.get("rule") or data["name"])),
        severity_mark(str(data.get("severity", ""))),
        since,
        NOTHING if event.run == FLEET else escape(event.run),
        escape(event.node or NOTHING),
        escape(": ".join(words)) or NOTHING,
        SOURCES[data["source"]],
    ]


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
