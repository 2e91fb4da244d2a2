"""Measure the console's own share of ten visitors: what its server does for them, without a browser that draws.

    python benchmarks/console_visitors.py [--ranks N] [--days N] [--runs DIR] [--visitors N] [--rounds N] [--seconds N]

Starts ``lastgood console`` on the run of ``benchmarks/console.py`` and visits Overview, Nodes and the newest Incident
as Streamlit's frontend does (``console_load/visitor.py``). ``benchmarks/console.py`` has the same with a real Chromium.

- ``cold``: the first opening of each page after the start. ``alone``: one visitor opens a page, the others are gone.
- ``together``: all visitors open their pages at the same moment.
- ``live``: all pages stay open and tick as they do in a browser, the visitors spread over the interval. ``news``: the
  same while an alert of the run arrives every five seconds, each of which makes a new state.

Seconds are from the connection (a tick: from the request) to the end of the page's script. A machine that is busy with
something else shows in them, so the processor's seconds of the server stand beside, and the machine's load. Visitors
run in a process of their own, on the same cores. Prints one JSON object; exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from console_load.server import console, peak_gigabytes, processor_seconds, say
from console_load.visitor import Seen, Visitor
from fleet_run import RUN, write_fleet_run

PAGES: Final = ("overview", "nodes", "incident")
TOGETHER_SECONDS: Final = 3.0
TICK_SECONDS: Final = 0.5
NEWS_TICK_SECONDS: Final = 1.0
SHARE_OF_A_CORE: Final = 0.05
"""What one visitor who only looks may take of one core."""
NEWS_EVERY_SECONDS: Final = 5.0
Report = dict[str, Any]


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="lastgood-visitors-") as folder:
        runs = options.runs or Path(folder) / "runs"
        if options.runs is None:
            say(f"writing {options.days} days of {options.ranks} ranks")
            write_fleet_run(runs, ranks=options.ranks, days=options.days)
        with console(runs, Path(folder)) as (address, pid, ready):
            report = asyncio.run(Bench(address, pid, options).measure())
            report |= {"ready_seconds": round(ready, 2), "resident_gigabytes": round(peak_gigabytes(pid), 2)}
    report |= {"cores": os.cpu_count(), "load": os.getloadavg()}
    report["targets"] = targets(report)
    print(json.dumps(report, indent=1))
    return 0 if all(target["passed"] for target in report["targets"]) else 1


class Bench:
    """Visit one console, and read what its process uses meanwhile."""

    def __init__(self, address: str, pid: int, options: argparse.Namespace) -> None:
        self._address, self._pid, self._options = address, pid, options

    async def measure(self) -> Report:
        """Return what every part measured."""
        say("cold, then alone")
        cold = {page: await self._alone(page, 1) for page in PAGES}
        alone = {page: await self._alone(page, self._options.rounds) for page in PAGES}
        say(f"{self._options.visitors} visitors together")
        together = await self._together()
        idle = await self._idle()
        say("their ticks")
        live = await self._live()
        say("their ticks, with news")
        news = await self._live(news=True)
        parts = {"cold": cold, "alone": alone, "together": together, "live": live, "news": news}
        return parts | {"idle_processor_seconds_per_minute": idle}

    async def _alone(self, page: str, rounds: int) -> Report:
        seen, used = [], []
        for _ in range(rounds):
            before = processor_seconds(self._pid)
            async with Visitor(self._address, page) as visitor:
                seen.append(await visitor.open())
            used.append(processor_seconds(self._pid) - before)
        return times(seen) | {"processor_seconds": round(statistics.median(used), 3)}

    async def _together(self) -> Report:
        seen: list[Seen] = []
        before = processor_seconds(self._pid)
        for _ in range(self._options.rounds):
            async with AsyncExitStack() as stack:
                visitors = [await stack.enter_async_context(one) for one in self._visitors()]
                seen += await asyncio.gather(*(visitor.open() for visitor in visitors))
        used = processor_seconds(self._pid) - before
        return times(seen) | {"processor_seconds_each": round(used / len(seen), 3)}

    async def _live(self, *, news: bool = False) -> Report:
        async with AsyncExitStack() as stack:
            visitors = [await stack.enter_async_context(one) for one in self._visitors()]
            for visitor in visitors:
                await visitor.open()
            before, end = processor_seconds(self._pid), time.perf_counter() + self._options.seconds
            posting = asyncio.create_task(self._post_alerts(end)) if news else None
            ticks = await asyncio.gather(
                *(ticked(visitor, number / len(visitors), end) for number, visitor in enumerate(visitors))
            )
            used = processor_seconds(self._pid) - before
            if posting:
                await posting
        seen = [one for of_visitor in ticks for one in of_visitor]
        minutes = self._options.visitors * self._options.seconds / 60
        return times(seen) | {"processor_seconds_per_visitor_minute": round(used / minutes, 2)}

    async def _idle(self) -> float:
        """Return what the server uses while nobody looks."""
        await asyncio.sleep(1.0)
        before = processor_seconds(self._pid)
        await asyncio.sleep(10.0)
        return round(6 * (processor_seconds(self._pid) - before), 2)

    def _visitors(self) -> list[Visitor]:
        return [Visitor(self._address, PAGES[number % len(PAGES)]) for number in range(self._options.visitors)]

    async def _post_alerts(self, end: float) -> None:
        number = 0
        while time.perf_counter() + NEWS_EVERY_SECONDS < end:
            number += 1
            await asyncio.to_thread(post_alert, self._address, number)
            await asyncio.sleep(NEWS_EVERY_SECONDS)


async def ticked(visitor: Visitor, share: float, end: float) -> list[Seen]:
    """Let a visitor's timer fire until ``end``; ``share``: of its interval that passes before. One late tick skips."""
    at = time.perf_counter() + share * visitor.every_seconds
    seen = []
    while at < end:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        seen.append(await visitor.tick())
        late = max(0.0, time.perf_counter() - at)
        at += visitor.every_seconds * (1 + late // visitor.every_seconds)
    return seen


def post_alert(address: str, number: int) -> None:
    """Post an alert of the run, as Alertmanager does."""
    alert = {
        "status": "firing", "labels": {"alertname": "GoodputLow", "severity": "warning", "run": RUN},
        "annotations": {"summary": f"Number {number}."}, "startsAt": f"2026-11-29T02:{number % 60:02}:00Z",
        "endsAt": "0001-01-01T00:00:00Z", "fingerprint": f"{number:016x}",
    }  # fmt: skip
    body = json.dumps({"version": "4", "status": "firing", "receiver": "console", "alerts": [alert]}).encode()
    asked = urllib.request.Request(f"{address}/api/alerts", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        if answer.status // 100 != 2:
            raise RuntimeError(f"the alert was not taken: {answer.status}")


def times(seen: Sequence[Seen]) -> Report:
    """Return how long reruns took, and how large their answers were."""
    seconds = sorted(one.seconds for one in seen)
    return {
        "count": len(seen),
        "median_seconds": round(statistics.median(seconds), 3),
        "p95_seconds": round(seconds[math.ceil(0.95 * len(seconds)) - 1], 3),
        "median_bytes": round(statistics.median(one.bytes for one in seen)),
        "median_messages": round(statistics.median(one.messages for one in seen)),
    }


def targets(report: Report) -> list[Report]:
    """Return what was promised, and what came of it."""
    asked = [
        ("together, p95 seconds", report["together"]["p95_seconds"], TOGETHER_SECONDS),
        ("live, tick p95 seconds", report["live"]["p95_seconds"], TICK_SECONDS),
        ("news, tick p95 seconds", report["news"]["p95_seconds"], NEWS_TICK_SECONDS),
        ("live, share of a core of each visitor",
         round(report["live"]["processor_seconds_per_visitor_minute"] / 60, 4), SHARE_OF_A_CORE),
    ]  # fmt: skip
    return [{"what": what, "value": value, "at_most": most, "passed": value <= most} for what, value, most in asked]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--days", type=float, default=54)
    parser.add_argument("--runs", type=Path, help="a folder of runs that is there already; it is only read")
    parser.add_argument("--visitors", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long pages stay open, with news and without")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
