"""Write the links: from a value into the console, from one dashboard to another with variables and time kept.

Grafana percent-encodes what it puts into a link of a value, except the characters that have a meaning in an address,
so the console's address may be a variable. Names of runs, incidents and nodes need no more than that.
"""

from __future__ import annotations

from typing import Final

from lastgood_dashboards.spec import Link

CONSOLE_URL: Final = "http://localhost:8490"
DATA_SOURCE_UID: Final = "lastgood-prometheus"

UIDS: Final = {
    "fleet": "lastgood-fleet",
    "run": "lastgood-run",
    "node": "lastgood-node",
    "checkpoints": "lastgood-checkpoints",
}
"""Name -> uid, which never changes: bookmarks and alert rules point to it."""

KEEP: Final = "${datasource:queryparam}&${console:queryparam}&${__url_time_range}"

RUN: Final = "${__data.fields.run}"
NODE: Final = "${__data.fields.node}"
INCIDENT: Final = "${__data.fields.incident}"


def board(name: str, **variables: str) -> str:
    """Return the address of a dashboard with these variables, the data source, the console and the time range."""
    parts = [f"var-{variable}={value}" for variable, value in variables.items()]
    return f"/d/{UIDS[name]}?{'&'.join([*parts, KEEP])}"


def run_links(run: str = RUN) -> tuple[Link, ...]:
    """Return the links of a run."""
    return (
        Link("Dashboard of this run", board("run", run=run)),
        Link("Checkpoints of this run", board("checkpoints", run=run)),
        Link("Run in the console", f"${{console}}/?run={run}"),
    )


def node_links(node: str = NODE) -> tuple[Link, ...]:
    """Return the links of a node."""
    return (
        Link("Dashboard of this node", board("node", node=node)),
        Link("Node in the console", f"${{console}}/nodes?node={node}"),
    )


def incident_links(run: str = RUN) -> tuple[Link, ...]:
    """Return the links of an incident."""
    return (Link("Incident in the console", f"${{console}}/incident?run={run}&incident={INCIDENT}"),)
