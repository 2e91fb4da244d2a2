"""Show open incidents: the table that the dashboards share."""

from __future__ import annotations

from typing import Final

from lastgood_dashboards.links import incident_links, node_links, run_links
from lastgood_dashboards.queries import ledger, total
from lastgood_dashboards.spec import BAD, LATE, NONE_AT_MINUS_ONE, Panel, Query

SUSPECT: Final = "incident, check, status, scope, rank, node, gpu_uuid"
OPEN: Final = 'status=~"open|reopened"'
NO_INCIDENT: Final = "No open incident"


def open_count(runs: str, per: str = "") -> str:
    """Return how many incidents are open or reopened, over all runs, or by the label ``per``."""
    return total("incidents", runs, OPEN, by="run, status", per=per)


def open_incidents(id: int, runs: str, *, one_run: bool) -> Panel:
    """Return the table of open incidents, one line per suspect. ``one_run``: without the column of the run."""
    labels = tuple(SUSPECT.split(", "))
    return Panel(
        id=id, kind="table", title="Suspects of open incidents", width=24, height=7, empty=NO_INCIDENT,
        says="One line per suspect of every open incident, at most eight per incident. The number to act on is the "
             "step to resume from; a status other than attributed names nobody for certain.",
        queries=(
            Query(expr=_resume(runs), legend="resume from", texts=NONE_AT_MINUS_ONE),
            Query(expr=_beside(runs, "incident_window_start_step"), legend="clean until step"),
            Query(expr=_beside(runs, "incident_window_end_step"), legend="wrong by step"),
            Query(expr=f"time() - ({_beside(runs, 'incident_start_timestamp_seconds')})", legend="open for", unit="s"),
        ),
        texts={"attributed": ("attributed", BAD), "confirmed": ("confirmed", BAD), "undecided": ("undecided", LATE)},
        labels=labels if one_run else ("run", *labels),
        links={
            "incident": incident_links("${run}") if one_run else incident_links(),
            "node": node_links(),
            **({} if one_run else {"run": run_links()}),
        },
    )  # fmt: skip


def _resume(runs: str) -> str:
    return ledger("incident_resume_step", runs, by=f"run, {SUSPECT}")


def _beside(runs: str, name: str) -> str:
    """Return a value of the incident with the labels of each of its suspects, so that both stand in one line."""
    of_incident = ledger(name, runs, by="run, incident")
    return f"0 * {_resume(runs)} + on (run, incident) group_left () {of_incident}"
