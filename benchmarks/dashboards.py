"""Measure how long each panel of the dashboards takes to answer on a large fleet.

    python benchmarks/dashboards.py [--ranks N] [--rounds N] [--server prometheus|victoria-metrics]

Loads the fleet of ``benchmarks/rules.py`` (16,384 ranks on 2,048 nodes, an hour of samples, one every 30 seconds) and
asks what Grafana would ask: numbers and tables for the last moment, charts for the last hour, every panel's queries one
after the other. Prints one JSON object with the median seconds per panel, slowest first, the server's processor seconds
for it, and the number of series it returned. Needs 15 GB of memory at full size. What it does not show: what a browser
makes of the answer, and several people at once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rules_load.fleet import PAST_SECONDS, RUN, Fleet
from rules_load.servers import Server, prometheus, victoria_metrics

from lastgood_dashboards import NAMES, dashboard

SAMPLE_SECONDS = 30
WINDOW_SECONDS = 1200  # Prometheus takes no sample that is an hour older than the newest
STEP_SECONDS = 15
SPAN_SECONDS = 3600
WIDTH_POINTS = 600  # a chart of half a page is so many pixels wide
NODE = "node-0000"
SERVERS = {"prometheus": prometheus, "victoria-metrics": victoria_metrics}


def text(board: Mapping[str, Any], expression: str) -> str:
    """Return a query as it leaves Grafana: the run of the fleet, its first node, all where all can be chosen."""
    values = {"run": RUN, "node": NODE}
    for variable in board["templating"]["list"]:
        value = variable["allValue"] if variable.get("includeAll") else values.get(variable["name"], "")
        expression = expression.replace(f"${variable['name']}", value)
    return expression.replace("$__range", f"{SPAN_SECONDS}s").replace("$__rate_interval", f"{4 * SAMPLE_SECONDS}s")


def ask(server: Server, target: Mapping[str, Any], expression: str, at: float, points: int) -> int:
    """Ask one query of a panel, at most at ``points`` moments, and return how many series came back."""
    form: dict[str, Any] = {"query": expression}
    if target.get("instant"):
        path, form["time"] = "/api/v1/query", at
    else:
        path = "/api/v1/query_range"
        form |= {"start": at - SPAN_SECONDS, "end": at, "step": max(STEP_SECONDS, SPAN_SECONDS / points)}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = server.request("POST", path, urllib.parse.urlencode(form).encode(), headers)
    return len(json.loads(answer)["data"]["result"])


def measure(server: Server, at: float, rounds: int) -> list[dict[str, Any]]:
    """Return the median seconds of every panel, slowest first."""
    found = []
    for name in NAMES:
        board = dashboard(name)
        for panel in (panel for panel in board["panels"] if panel["type"] != "row"):
            seconds, series = [], 0
            processor = server.processor_seconds()
            for _ in range(rounds):
                begin = time.perf_counter()
                points = panel.get("maxDataPoints", WIDTH_POINTS)
                asked = [(target, text(board, target["expr"])) for target in panel["targets"]]
                series = sum(ask(server, target, query, at, points) for target, query in asked)
                seconds.append(time.perf_counter() - begin)
            found.append(
                {
                    "dashboard": name,
                    "panel": panel["title"],
                    "seconds": round(statistics.median(seconds), 3),
                    "server_processor_seconds": round((server.processor_seconds() - processor) / rounds, 3),
                    "series": series,
                }
            )
    return sorted(found, key=lambda row: -row["seconds"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--server", choices=sorted(SERVERS), default="prometheus", help="default: %(default)s")
    options = parser.parse_args()
    report: dict[str, Any] = {"ranks": options.ranks, "load_average_before": os.getloadavg()[0]}
    with (
        tempfile.TemporaryDirectory(prefix="lastgood-dashboards-") as made,
        SERVERS[options.server](Path(made)) as server,
    ):
        now = int(time.time())
        fleet = Fleet(options.ranks, now // SAMPLE_SECONDS * SAMPLE_SECONDS - PAST_SECONDS, Path(made))
        for start in range(int(fleet.begin), now, WINDOW_SECONDS):
            server.write(fleet.entries(range(start, min(start + WINDOW_SECONDS, now), SAMPLE_SECONDS)))
        if options.server == "victoria-metrics":
            server.request("GET", "/internal/force_flush")
        report["panels"] = measure(server, now, options.rounds)
    report["seconds_of_all"] = round(sum(row["seconds"] for row in report["panels"]), 2)
    report["load_average_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
