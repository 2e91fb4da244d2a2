"""Measure how long every alerting and recording rule takes on a large fleet.

    python benchmarks/rules.py [--ranks N] [--rounds N] [--engine-rounds N] [--only prometheus|victoria-metrics]

Loads an hour of samples, one a minute, of a run of 16,384 ranks on 2,048 nodes (8 GPUs each) into a real
Prometheus and a real VictoriaMetrics, by remote write: every series that a rank and the ledger export, and two of
dcgm-exporter for each GPU, since rules look at those too. A few ranks are faulty and an incident with 8 suspects is
open, so that rules have something to find.

Three ways to evaluate, each one cold round and then warm ones:

- ``prometheus_rules``: each expression of our Prometheus file as an instant query, one after the other, recordings
  first; what they record is written back, so that alerts read it as they would from a server that records.
- ``grafana_rules``: each query (conditions and side values) of the Grafana file that reads recordings (``lastgood
  rules --format grafana --recorded``); with ``--written-out`` also the one that needs none (``grafana_written_out``),
  which takes minutes at full size.
- ``prometheus_engine``: Prometheus evaluates the file itself, texts included; its own times per rule, added up. Groups
  run at the same time there, so the sum is an upper bound of what an evaluation takes.

A round is the sum over all rules. Prints one JSON object: seconds per round, the 95th percentile of the warm rounds
(nearest rank), the slowest rules by their median, the processor time that the server needs for a warm round (which
other programs disturb less), series per rank and per run, and the bytes of a rank's exposition. What is known so far
goes to standard error.
The target is 5 seconds. Needs 15 GB of memory at full size, and about 15 minutes on two cores. What it does not show:
ingestion going on at the same time, and other people's queries.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rules_load.fleet import PAST_SECONDS, Fleet
from rules_load.servers import Found, Server, prometheus, victoria_metrics

from lastgood import push_wire
from lastgood_alerts import grafana
from lastgood_alerts import prometheus as prometheus_rules
from lastgood_alerts.rules import RULES

TARGET_SECONDS = 5.0
AHEAD_SECONDS = 570  # remote write takes samples of at most ten minutes ahead: the time that loading takes
SAMPLE_SECONDS = 60
WINDOW_SECONDS = 1200  # Prometheus takes no sample that is an hour older than the newest
ENGINE_INTERVAL_SECONDS = 15
SLOWEST = 8

Expressions = list[tuple[str, str]]
"""(what it is called, PromQL)."""
Round = dict[str, float]
"""Seconds by what was evaluated."""


def prometheus_expressions() -> tuple[Expressions, Expressions]:
    """Return the recordings and the alerts of our Prometheus file."""
    groups: Any = prometheus_rules.rule_groups()
    rules = [rule for group in groups for rule in group["rules"]]
    recordings = [(rule["record"], rule["expr"]) for rule in rules if "record" in rule]
    return recordings, [(rule["alert"], rule["expr"]) for rule in rules if "alert" in rule]


def grafana_expressions(recorded: bool) -> Expressions:
    """Return the queries of our Grafana file, which reads recordings or has them written out."""
    queries: Any = [(rule.name, query) for rule in RULES for query in grafana.query_data(rule, "prometheus", recorded)]
    return [(f"{name} {q['refId']}", q["model"]["expr"]) for name, q in queries if "expr" in q["model"]]


# --- load ------------------------------------------------------------------------------------------------------------


def load(server: Server, fleet: Fleet, until: int) -> float:
    """Write all samples, oldest window first. Returns how long that took."""
    begin = time.perf_counter()
    for start in range(int(fleet.begin), until, WINDOW_SECONDS):
        server.write(fleet.entries(range(start, min(start + WINDOW_SECONDS, until), SAMPLE_SECONDS)))
    return time.perf_counter() - begin


def record(server: Server, recordings: Expressions, at: float) -> None:
    """Evaluate the recordings and write what they give, in their order: one may read another."""
    for name, expression in recordings:
        _, found = server.query(expression, at)
        server.write(_recorded(name, found, at))
        show(server)
        while len(server.query(name, at)[1]) < len(found):
            time.sleep(0.2)  # VictoriaMetrics shows a series that is new to it after a second


def _recorded(name: str, found: Found, at: float) -> Iterator[bytes]:
    for one in found:
        labels = push_wire.series(name, {key: value for key, value in one["metric"].items() if key != "__name__"})
        yield push_wire.entry(labels, push_wire.sample(push_wire.number(float(one["value"][1])), round(at * 1000)))


def show(server: Server) -> None:
    """Make VictoriaMetrics show what it was sent; Prometheus does so at once."""
    if "victoria" in str(server.process.args):
        server.request("GET", "/internal/force_flush")


# --- measure ---------------------------------------------------------------------------------------------------------


def query_rounds(server: Server, expressions: Expressions, at: float, rounds: int) -> dict[str, Any]:
    """Evaluate every expression once a round, one after the other."""
    done, processor = [], [server.processor_seconds()]
    for _ in range(rounds):
        done.append({name: server.query(expression, at)[0] for name, expression in expressions})
        processor.append(server.processor_seconds())
    spent = [after - before for before, after in zip(processor, processor[1:], strict=False)]
    said = summary(done) | {"server_processor_seconds": round(statistics.median(spent[1:]), 2)}
    print(json.dumps(said), file=sys.stderr, flush=True)
    return said


def found_by(server: Server, expressions: Expressions, at: float) -> dict[str, int]:
    """Return how many instances each expression finds, where it finds any."""
    counts = {name: len(server.query(expression, at)[1]) for name, expression in expressions}
    return {name: count for name, count in counts.items() if count}


def engine_rounds(server: Server, folder: Path, rounds: int) -> tuple[list[Round], float]:
    """Let Prometheus evaluate our file, and return its own times per round, and when the last one began."""
    rules = folder / "lastgood.rules.yml"
    rules.write_text(prometheus_rules.rules_yaml(interval_seconds=ENGINE_INTERVAL_SECONDS), encoding="utf-8")
    (folder / "prometheus.yml").write_text(f"rule_files: [{rules}]\n", encoding="utf-8")
    server.reload()
    seen: dict[str, dict[str, Round]] = {}
    deadline = time.monotonic() + (rounds + 4) * 2 * ENGINE_INTERVAL_SECONDS
    while not seen or min(map(len, seen.values())) < rounds:
        time.sleep(1)
        if time.monotonic() > deadline:
            raise SystemExit(f"Prometheus has not evaluated {rounds} times: { ({k: len(v) for k, v in seen.items()}) }")
        for group in server.groups():
            of_group = seen.setdefault(group["name"], {})
            if not group["lastEvaluation"].startswith("0001-"):
                of_group[group["lastEvaluation"]] = {r["name"]: r["evaluationTime"] for r in group["rules"]}
    at = time.time()
    (folder / "prometheus.yml").write_text("global: {}\n", encoding="utf-8")
    server.reload()
    by_group = [list(of_group.values()) for of_group in seen.values()]
    return [{k: v for group in by_group for k, v in group[number].items()} for number in range(rounds)], at


# --- report ----------------------------------------------------------------------------------------------------------


def summary(rounds: list[Round]) -> dict[str, Any]:
    """Return what a reader wants of rounds: the first is the cold one."""
    sums = [sum(one.values()) for one in rounds]
    warm = sorted(sums[1:])
    p95 = warm[math.ceil(0.95 * len(warm)) - 1]
    medians = {name: statistics.median(one[name] for one in rounds[1:]) for name in rounds[0]}
    slowest = sorted(medians.items(), key=lambda item: -item[1])[:SLOWEST]
    return {
        "expressions": len(rounds[0]),
        "cold_seconds": round(sums[0], 3),
        "warm_seconds": [round(value, 3) for value in sums[1:]],
        "p95_seconds": round(p95, 3),
        "within_target": p95 < TARGET_SECONDS,
        "slowest_seconds": {name: round(value, 4) for name, value in slowest},
    }


def measure(
    start: Callable[[Path], AbstractContextManager[Server]], fleet: Fleet, folder: Path, rounds: int, engine: int,
    written_out: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Load one server and evaluate everything on it."""
    recordings, alerts = prometheus_expressions()
    with start(folder) as server:
        out: dict[str, Any] = {"load_seconds": round(load(server, fleet, int(time.time()) + AHEAD_SECONDS), 1)}
        show(server)
        print(f"loaded in {out['load_seconds']} s", file=sys.stderr, flush=True)
        at = time.time()
        if engine:
            evaluated, at = engine_rounds(server, folder, engine + 1)
            out["prometheus_engine"] = summary(evaluated)
        else:
            record(server, recordings, at)
        out["resident_gigabytes"] = round(server.resident_bytes() / 1e9, 2)
        out["prometheus_rules"] = query_rounds(server, recordings + alerts, at, rounds + 1)
        out["grafana_rules"] = query_rounds(server, grafana_expressions(recorded=True), at, rounds + 1)
        if written_out:
            out["grafana_written_out"] = query_rounds(server, grafana_expressions(recorded=False), at, rounds + 1)
        out["firing"] = found_by(server, alerts, at)
    return out


def sizes(fleet: Fleet) -> dict[str, int]:
    """Return how many series there are, and what a scrape transfers."""
    return {
        "ranks": fleet.ranks,
        "nodes": len({place.node for place in fleet.places}),
        "series_per_rank": len(fleet.rank_rows),
        "exposition_bytes_per_rank": fleet.exposition_bytes(),
        "series_per_run": len(fleet.quiet_run_rows),
        "series_per_open_incident_of_8_suspects": len(fleet.run_rows) - len(fleet.quiet_run_rows),
        "series": fleet.ranks * (len(fleet.rank_rows) + 2) + len(fleet.run_rows),
    }


SERVERS: Mapping[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "prometheus": prometheus,
    "victoria-metrics": victoria_metrics,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=10, help="warm rounds; default: %(default)s")
    parser.add_argument("--engine-rounds", type=int, help="those of Prometheus's own engine; default: --rounds")
    parser.add_argument("--written-out", action="store_true", help="also the Grafana file that needs no recordings")
    parser.add_argument("--only", choices=sorted(SERVERS), help="one server instead of both")
    options = parser.parse_args()
    engine = options.rounds if options.engine_rounds is None else options.engine_rounds
    report: dict[str, Any] = {"load_average_before": os.getloadavg()[0], "target_seconds": TARGET_SECONDS}
    for name in [options.only] if options.only else SERVERS:
        with tempfile.TemporaryDirectory(prefix="lastgood-rules-") as made:
            fleet = Fleet(options.ranks, time.time() // 30 * 30 - PAST_SECONDS, Path(made))
            report["sizes"] = sizes(fleet)
            own = engine if name == "prometheus" else 0
            print(f"{name}: {report['sizes']['series']} series", file=sys.stderr, flush=True)
            report[name] = measure(SERVERS[name], fleet, Path(made), options.rounds, own, options.written_out)
    report["load_average_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
