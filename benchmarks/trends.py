"""Measure how long a console waits for the trends of an incident on a large fleet.

    python benchmarks/trends.py [--ranks N] [--rounds N] [--server prometheus|victoria-metrics]

Loads what trends need of the ranks of ``benchmarks/rules.py`` (16,384 on 2,048 nodes, an hour of samples, one every 30
seconds) and asks what the console asks for one suspect: each metric over the last hour, the suspect beside median, p10
and p90 of its peers. Prints one JSON object: per metric the median seconds until the answer is read, the server's
processor seconds, and how many points came; exits with 1 when one takes longer than the console waits.
Needs 4 GB of memory at full size. What it does not show: a server that is busy with rules and other people.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rules_load.fleet import PAST_SECONDS, RUN, Fleet
from rules_load.servers import Server

from dashboards import SAMPLE_SECONDS, SERVERS, SPAN_SECONDS, WINDOW_SECONDS
from lastgood.state import Place
from lastgood_console.sources.client import PrometheusClient
from lastgood_console.sources.trends import ANSWER_SECONDS, METRICS, Metric, Span, expression, points_of, trend

NEEDED = frozenset(re.findall(r"lastgood_\w+", " ".join(metric.expression for metric in METRICS)))


def measure(server: Server, metric: Metric, suspect: Place, ranks: int, now: int, rounds: int) -> dict[str, Any]:
    """Return how long a metric takes, in the median."""
    client = PrometheusClient(f"http://{server.host}")
    step = -(-SPAN_SECONDS // (points_of(ranks) - 1))
    count = SPAN_SECONDS // step + 1
    span = Span(float(now - (count - 1) * step), float(step), count)
    seconds, processor = [], server.processor_seconds()
    for _ in range(rounds):
        begin = time.perf_counter()
        answer = client.query_range(expression(metric, RUN, suspect, span, ranks), span.low, now, span.step, 120.0)
        seconds.append(time.perf_counter() - begin)
    found = trend(metric, suspect.rank, span, answer, now)
    rows = () if found is None else zip(found.suspect, found.median, found.p10, found.p90, strict=True)
    return {
        "metric": metric.name,
        "seconds": round(statistics.median(seconds), 3),
        "server_processor_seconds": round((server.processor_seconds() - processor) / rounds, 3),
        "points": sum(all(value is not None for value in row) for row in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--server", choices=sorted(SERVERS), default="prometheus", help="default: %(default)s")
    options = parser.parse_args()
    report: dict[str, Any] = {"ranks": options.ranks, "load_average_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="lastgood-trends-") as made, SERVERS[options.server](Path(made)) as server:
        now = int(time.time())
        fleet = Fleet(options.ranks, now // SAMPLE_SECONDS * SAMPLE_SECONDS - PAST_SECONDS, Path(made))
        for start in range(int(fleet.begin), now, WINDOW_SECONDS):
            times = range(start, min(start + WINDOW_SECONDS, now), SAMPLE_SECONDS)
            server.write(fleet.rank_entries(times, NEEDED))
        if options.server == "victoria-metrics":
            server.request("GET", "/internal/force_flush")
        report["trends"] = [
            measure(server, one, fleet.places[1], options.ranks, now, options.rounds) for one in METRICS
        ]
    report["load_average_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=2))
    return 0 if all(one["points"] and one["seconds"] < ANSWER_SECONDS for one in report["trends"]) else 1


if __name__ == "__main__":
    sys.exit(main())
