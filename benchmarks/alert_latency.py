"""Measure how long a finding takes from the journal to the console's webhook.

    python benchmarks/alert_latency.py [--times N] [--scrape-interval SECONDS]

A real Prometheus, Alertmanager and console, as ``lastgood stack`` runs them. Each time a new run journals one finding
(replica, critical) with the journal's own writer; its alert is ``ReplicaMismatch``. Latency is the time that the
console gives its arrival, less the time of the journaled finding: one clock, that of this machine. Runs begin at
random moments, so that no phase of the three timers on the way is preferred.

The bound is a ledger refresh, a scrape, an evaluation and the group wait of critical alerts (0 s).

Prints one JSON object. Exit code 1 when an alert did not arrive within the bound and five seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lastgood.events import Event
from lastgood.journal import JournalWriter, claim_attempt
from lastgood.ledger import Ledger
from lastgood.serve import REFRESH_SECONDS
from lastgood.state import Place
from lastgood.topology_files import write_topology
from lastgood_console.stack.arrivals import latency_seconds
from lastgood_console.stack.layout import Layout, choose_ports
from lastgood_console.stack.parts import Parts
from lastgood_console.stack.programs import find_programs

ALERT = "ReplicaMismatch"
PLACES = [Place(rank, f"node-{'abc'[rank // 2]}", f"cpu-{rank % 2}", rank % 2) for rank in range(6)]
SETTLE_SECONDS = 10.0
"""Until Prometheus has found its Alertmanager and scraped the console once."""
SLACK_SECONDS = 5.0


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="lastgood-latency-") as folder:
        seconds = measure(Path(folder), options.times, options.scrape_interval)
    print(json.dumps(report(seconds, options.scrape_interval), indent=1))
    return 0 if max(seconds, default=float("inf")) <= bound(options.scrape_interval) + SLACK_SECONDS else 1


def bound(scrape_seconds: int) -> float:
    """Return the seconds that a finding may take: a refresh of the ledger, a scrape and an evaluation."""
    return REFRESH_SECONDS + 2 * scrape_seconds


def measure(folder: Path, times: int, scrape_seconds: int) -> list[float]:
    """Return the seconds that each of ``times`` findings took, one after the other."""
    layout = Layout(
        runs=[folder / "runs"], folder=folder / "stack", state=folder / "state", ports=choose_ports(8490),
        scrape_seconds=scrape_seconds,
    )  # fmt: skip
    layout.folder.mkdir()
    with Parts() as parts:
        layout.write_configs()
        for part in layout.parts(find_programs()):
            parts.start(part)
            parts.wait_until_ready(part.name)
        time.sleep(SETTLE_SECONDS + scrape_seconds)
        chance = random.Random(7)
        seconds = []
        for number in range(times):
            time.sleep(chance.uniform(0, bound(scrape_seconds)))
            seconds.append(one_finding(layout, f"run-{number}", bound(scrape_seconds) + 30))
    return seconds


def report(seconds: list[float], scrape_seconds: int) -> dict[str, object]:
    return {
        "alert": ALERT,
        "scrape_interval_seconds": scrape_seconds,
        "evaluation_interval_seconds": scrape_seconds,
        "group_wait_seconds": 0,
        "ledger_refresh_seconds": REFRESH_SECONDS,
        "bound_seconds": bound(scrape_seconds),
        "seconds": [round(value, 3) for value in seconds],
        "median_seconds": round(statistics.median(seconds), 3),
    }


def one_finding(layout: Layout, run: str, patience_seconds: float) -> float:
    """Journal a finding in a new run and return the seconds until its alert was at the console."""
    journal_finding(layout.runs[0] / run, run)
    ledger = Ledger([layout.runs[0]], state_dir=layout.state)
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        time.sleep(0.2)
        ledger.refresh()
        state = ledger.run(run)
        arrived = [a for a in state.annotations if is_alert(a)] if state else []
        if arrived and (seconds := latency_seconds(arrived[0], state)) is not None:
            return seconds
    return float("inf")


def is_alert(event: Event) -> bool:
    return event.type == "alert" and event.data.get("name") == ALERT


def journal_finding(run_dir: Path, run: str) -> None:
    """Write what rank 0 of a run writes that starts and, at step 50, finds a replica that differs."""
    attempt = claim_attempt(run_dir)
    started = {
        "world_size": len(PLACES), "topology": write_topology(run_dir, attempt, PLACES), "config": {},
        "cadence": {"finite": 1, "conservation": 1, "replica": 50, "replay": 50, "at_rest": None}, "not_run": {},
        "environment": {"cpu": list(range(len(PLACES)))}, "versions": {}, "seed": 1, "parent": None,
        "parent_known": True, "parent_verified": True, "from_step": 0,
    }  # fmt: skip
    device = {"rank": 3, "node": "node-b", "gpu_uuid": "cpu-1", "slot": 1}
    finding = {
        "check": "replica", "step": 50, "state_step": 49, "phase": "loop", "contained": False, "ranks": [3],
        "devices": [device], "tensor": "weight", "bucket": None, "observed": "0x1", "expected": "0x2", "evidence": [],
    }  # fmt: skip
    writer = JournalWriter(run_dir, run, attempt, "rank-00000", rank=0, node="node-a")
    writer.write("run.started", started, step=0)
    writer.write("finding", finding, step=50)
    writer.close()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=5, help="findings to measure")
    parser.add_argument("--scrape-interval", type=int, default=1, help="seconds; the rules are evaluated as often")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
