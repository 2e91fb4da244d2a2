"""Draw the tables of the page of alerts; above what HTML can hold, rows of plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from lastgood.alert_story import SOURCES
from lastgood.events import Event
from lastgood.state import RunState
from lastgood.wording import dated_clock, step_text
from lastgood_alerts.server_configs import alertmanager_config
from lastgood_console.alerts.fleet import FLEET
from lastgood_console.characters import escape
from lastgood_console.components.alert_facts import name_of, severity_of
from lastgood_console.components.alert_rows import Burst, ClockOf, how_long, incident_of, several, step_about
from lastgood_console.components.alerts import node_link, severity_mark
from lastgood_console.components.tables import MOST_ROWS, NOTHING, Column, runbook_link, table_html

COLUMNS: Final = (
    Column("Alert", "named"), Column("Severity", "named"), Column("State", "nowrap"), Column("Fired (UTC)", "nowrap"),
    Column("For", "nowrap"), Column("Run", "named"), Column("Node", "named"), Column("Rank", "num"),
    Column("Step", "num"), Column("What it says", "prose"),
)  # fmt: skip


def alerts_table(
    rows: Sequence[Burst], states: Mapping[str, RunState], now: str, clock_of: ClockOf, *, label: str
) -> str:
    """Return the table, at most as many rows as a page can hold. ``now``: RFC 3339."""
    over = {"resolved", "lost"}
    told = [("lg-tr-over" if r.state in over else "", _cells(r, states, now, clock_of)) for r in rows[:MOST_ROWS]]
    return table_html(COLUMNS, told, label=label)


def _cells(row: Burst, states: Mapping[str, RunState], now: str, clock_of: ClockOf) -> list[str]:
    event, state = row.newest, states.get(row.newest.run)
    steps = sorted({s for s in _steps(row, state, clock_of) if s is not None})
    span = [step_text(s) for s in ({steps[0], steps[-1]} if steps else ())]
    return [
        runbook_link(name_of(event)) + _count(row),
        severity_mark(severity_of(event)),
        escape(_state_words(row)),
        _time(row.began, now),
        how_long(row, now),
        _run(event, state),
        _nodes(row),
        escape(several((str(e.data["rank"]) for e in row.events if "rank" in e.data), "ranks")) or NOTHING,
        " to ".join(sorted(span, key=len)) or NOTHING,
        ("Newest: " if len(row.events) > 1 else "") + _words(event),
    ]


def _steps(row: Burst, state: RunState | None, clock_of: ClockOf) -> list[int | None]:
    ends = row.events if len(row.events) == 1 else (row.events[0], row.events[-1])
    return [step_about(event, state, clock_of) for event in ends]


def _count(row: Burst) -> str:
    if len(row.events) == 1:
        return ""
    asked = {"rule": name_of(row.newest)} | ({"run": row.newest.run} if row.newest.run != FLEET else {})
    return (
        f'<small><a href="alerts?{escape(urlencode(asked), quote=True)}">all {step_text(len(row.events))}</a></small>'
    )


def _state_words(row: Burst) -> str:
    return "lost, not recovered" if row.state == "lost" else row.state


def _run(event: Event, state: RunState | None) -> str:
    if event.run == FLEET:
        return "no run"
    if state is None:
        return f"{escape(event.run)}<small>not read here</small>"
    run = f'<a href=".?run={quote(event.run, safe="")}">{escape(event.run)}</a>'
    if (incident := incident_of(event, state)) is None:
        return run
    asked = escape(urlencode({"run": event.run, "incident": incident.id}), quote=True)
    return f'{run}<small><a href="incident?{asked}">{escape(incident.id)}</a></small>'


def _nodes(row: Burst) -> str:
    nodes = list(dict.fromkeys(e.node for e in row.events if e.node))
    if len(nodes) == 1:
        return node_link(nodes[0])
    return escape(several(nodes, "nodes")) or NOTHING


def _words(event: Event) -> str:
    reason = str(event.data.get("reason", "")) if event.data["status"] in ("lost", "error", "no_data") else ""
    said = ": ".join(w for w in (reason, str(event.data.get("summary", ""))) if w)
    return f"<bdi>{escape(said)}</bdi>" if said else NOTHING


def _time(at: str, now: str) -> str:
    return dated_clock(at, now)


def plain_rows(
    rows: Sequence[Burst], states: Mapping[str, RunState], now: str, clock_of: ClockOf
) -> list[dict[str, Any]]:
    """Return the rows as plain text, for a table of any length: a word stands for each symbol."""
    return [_plain(row.newest, row, states.get(row.newest.run), now, clock_of) for row in rows]


def _plain(event: Event, row: Burst, state: RunState | None, now: str, clock_of: ClockOf) -> dict[str, Any]:
    return {
        "Alert": name_of(event),
        "Severity": severity_of(event) or "no severity",
        "State": _state_words(row),
        "Fired (UTC)": _time(row.began, now),
        "Ended (UTC)": _time(row.end, now) if row.end else NOTHING,
        "Run": "no run" if event.run == FLEET else event.run,
        "Node": event.node or NOTHING,
        "Rank": event.data.get("rank"),
        "Step": step_about(event, state, clock_of),
        "What it says": str(event.data.get("summary", "")),
        "From": SOURCES[event.data["source"]],
    }


def receiver_lines(console_url: str) -> str:
    """Return the receivers of an ``alertmanager.yml`` that sends everything to this console."""
    text = alertmanager_config(console_url=console_url)
    return text[text.index("receivers:") :].rstrip()
