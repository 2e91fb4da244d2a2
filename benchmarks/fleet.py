"""Measure how fast a ledger knows a long run of a large fleet, and that it then reads only what is new.

    python benchmarks/fleet.py [--ranks 16384] [--days 54] [--runs 20] [--times 3] [--out DIR] [--victoria-metrics]

Writes the run of ``benchmarks/fleet_run``: 16,384 ranks for 54 days with the 419 unexpected interruptions of the
Llama 3 report, a save every 30 minutes, a round of every check at its default cadence, findings, excursions. All of it
by the real writers with an injected clock, so the bytes are those that a real run leaves. ``--out`` keeps it there, and
takes what an earlier call left there. Then, each time in a fresh process, as files lie in the page cache:

- ``first``: from the run directory to its incidents, which is a ledger's first refresh (target 2 s and 1 GiB);
- ``quiet``: a refresh without news (0.1 s), which must read nothing but the ends of two journals;
- ``one_more_event``: a refresh after one event more (1 s), which must read that line and nothing else.

The same for ``--runs`` runs of a tenth of its ranks and days at once (4 s and 1 GiB: twice the history). Seconds are
the best of ``--times`` processes; a machine that is busy otherwise still shows in them, so the processor's seconds and
the machine's load stand beside. ``--victoria-metrics`` also loads the series that the run's ledger would have exported
all along into a real VictoriaMetrics, and asks for them. Prints one JSON object; exits with 1 when a target is missed.
Needs 200 MB of disk and two minutes on one core. What it does not show: a cold page cache and NFS.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet_run import RUN, write_fleet_run
from fleet_run.causes import DAYS
from fleet_run.cluster import PER_NODE
from fleet_run.series import load, times_of
from rules_load.servers import victoria_metrics

from lastgood.events import timestamp_of
from lastgood.ledger import Ledger

TENTH = 10
GIB = 1 << 30
READING = Path(__file__).parent / "fleet_run" / "reading.py"


def read_by_processes(folder: Path, times: int) -> dict[str, Any]:
    """Measure fresh processes; return the quickest one's report, with the largest of their peaks."""
    reports = [_read(folder) for _ in range(times)]
    best: dict[str, Any] = min(reports, key=lambda report: report["first"]["seconds"])
    for part in ("quiet", "one_more_event"):
        best[part] = min((report[part] for report in reports), key=lambda one: one["seconds"])
    return best | {"peak_bytes": max(report["peak_bytes"] for report in reports)}


def _read(folder: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(READING), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def targets(name: str, report: dict[str, Any], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield what was promised of a folder of runs, and what came of it."""
    more = report["one_more_event"]
    for what, value, most in (
        ("first refresh, seconds", report["first"]["seconds"], seconds),
        ("peak memory, bytes", report["peak_bytes"], GIB),
        ("refresh without news, seconds", report["quiet"]["seconds"], 0.1),
        ("refreshes without news, bytes read", report["quiet_bytes_read"], 0),
        ("refresh after one event, seconds", more["seconds"], 1.0),
        ("refresh after one event, bytes read beside it", more["bytes_read"] - more["new_bytes"], 0),
        ("places that cannot be read", report["unreadable"], 0),
    ):
        yield {"of": name, "what": what, "value": value, "at_most": most, "passed": value <= most}


@contextmanager
def folder_of(out: Path | None) -> Iterator[Path]:
    """Yield the folder to write to: one that stays, or one that goes."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="lastgood-fleet-") as folder:
        yield Path(folder)


def write_once(folder: Path, ranks: int, days: float, seeds: range) -> float:
    """Write the runs that are not there yet. Returns how long that took."""
    begin = time.perf_counter()
    for seed in seeds:
        run = RUN if len(seeds) == 1 else f"{RUN}-{seed:02}"
        if not (folder / run).exists():
            write_fleet_run(folder, ranks=ranks, days=days, seed=seed, run=run)
    return time.perf_counter() - begin


def tenth(ranks: int) -> int:
    """Return a tenth of the ranks, in whole nodes."""
    return max(2, round(ranks / TENTH / PER_NODE)) * PER_NODE


def victoria(folder: Path, run_dir: Path) -> dict[str, Any]:
    """Load the run's series into a VictoriaMetrics, and ask what it then knows."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, victoria_metrics(Path(scratch)) as server:
        samples = load(server, run_dir)
        loaded = time.perf_counter() - begin
        server.request("GET", "/internal/force_flush")
        ledger = Ledger([run_dir])
        ledger.refresh()
        (state,) = ledger.runs().values()
        span = (timestamp_of(state.first_event_at), timestamp_of(state.last_event_at))
        at = times_of(span)[-1]
        seconds, found = server.query("lastgood_last_good_step", at)
    answer = {"samples": samples, "loaded_seconds": loaded, "interval_seconds": times_of(span)[1] - times_of(span)[0]}
    same = [float(one["value"][1]) for one in found] == [state.last_good.step]
    return answer | {"query_seconds": seconds, "last_good_step_is_the_ledgers": same}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--days", type=float, default=float(DAYS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=20, help="so many runs of a tenth of the size at once; 0: none")
    parser.add_argument("--times", type=int, default=3, help="processes that read each folder")
    parser.add_argument("--out", type=Path, help="keep the runs here, and take those that are here")
    parser.add_argument("--victoria-metrics", action="store_true", help="load the run's series as well")
    asked = parser.parse_args()
    report: dict[str, Any] = {"ranks": asked.ranks, "days": asked.days, "cpus": os.cpu_count()}
    with folder_of(asked.out) as out:
        one, many = out / "runs", out / "tenths"
        report["written_seconds"] = write_once(one, asked.ranks, asked.days, range(asked.seed, asked.seed + 1))
        report["one_run"] = read_by_processes(one, asked.times)
        report["targets"] = list(targets("one run", report["one_run"], 2.0))
        if asked.runs:
            size = tenth(asked.ranks), asked.days / TENTH
            write_once(many, *size, range(1, asked.runs + 1))
            report["many_runs"] = read_by_processes(many, asked.times)
            report["targets"] += targets(f"{asked.runs} runs", report["many_runs"], 4.0)
        if asked.victoria_metrics:
            report["victoria_metrics"] = victoria(out, one / RUN)
    report["load"] = os.getloadavg()
    print(json.dumps(report, indent=2))
    return 0 if all(target["passed"] for target in report["targets"]) else 1


if __name__ == "__main__":
    sys.exit(main())
