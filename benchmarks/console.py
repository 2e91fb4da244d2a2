"""Measure how soon the console's pages stand on a long run of a large fleet, in a real Chromium.

    python benchmarks/console.py [--ranks N] [--days N] [--runs DIR] [--rounds N] [--browsers N]

Writes the 54-day run of ``benchmarks/fleet.py`` (16,384 ranks on 2,048 nodes; ``--runs`` takes a folder of runs that is
there already), starts ``lastgood console`` on it as a process of its own, and opens Overview, Nodes and the newest
Incident with Chromium at 1440 pixels. Server and browser share the machine's cores; what the server does for so many
visitors, without a browser beside it, is what ``benchmarks/console_visitors.py`` measures.

- ``first_paint``: a new visitor, from the request to the page's own content (the mark named in ``PAGES``) on screen.
- ``navigation``: from a click in the navigation to the next page's content, in a session that is there already.
- ``together``: first paint in a browser while nine other visitors come at the same moment, as each of ten people with
  a machine of their own sees it. The nine download the same files and speak the same protocol
  (``console_load/visitor.py``), and draw nothing: for that they have their own machines.
- ``windows``: that many Chromium windows which draw on the server's own cores, all at the same time: first paint each,
  and a click in the navigation each once all stand. No target: ten take about two seconds of a core each to themselves.
- ``resident_gigabytes``: of the console's process, at its most.

Prints one JSON object with medians, the worst, the targets, and whether each is met; exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx
from console_load.server import console, peak_gigabytes, say
from console_load.visitor import Visitor
from fleet_run import write_fleet_run
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

PAGES: Final = {
    "overview": ("/", "[class*=st-key-lg-run-] .lg-strip"),
    "nodes": ("/nodes", ".lg-table"),
    "incident": ("/incident", ".lg-strip"),
}
"""Page -> address, and what stands on it only when its content does."""
LINKS: Final = {"overview": "Overview", "nodes": "Nodes", "incident": "Incident"}
FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PAINT_SECONDS: Final = 2.0
NAVIGATION_SECONDS: Final = 0.7
TOGETHER_SECONDS: Final = 3.0
RESIDENT_GIGABYTES: Final = 2.0
PATIENCE_MILLISECONDS: Final = 120_000


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="lastgood-console-") as folder:
        runs = options.runs or Path(folder) / "runs"
        if options.runs is None:
            say(f"writing {options.days} days of {options.ranks} ranks")
            write_fleet_run(runs, ranks=options.ranks, days=options.days)
        with console(runs, Path(folder)) as (address, pid, ready):
            measured = asyncio.run(measure(address, options.rounds, options.browsers))
            report = judged(measured, ready, peak_gigabytes(pid))
    print(json.dumps(report, indent=1))
    return 0 if all(report["within_target"].values()) else 1


async def measure(address: str, rounds: int, browsers: int) -> dict[str, Any]:
    """Return the seconds of every page of every round."""
    program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        say("first paint")
        paint = {name: [await first_paint(browser, address, name) for _ in range(rounds + 1)] for name in PAGES}
        say("navigation")
        moved = await navigation(browser, address, rounds)
        say(f"one of {browsers} visitors who come together")
        files = await downloads(browser, address)
        names = [name for _ in range(rounds) for name in PAGES]
        together = [await among_others(browser, address, name, files, browsers - 1) for name in names]
        say(f"{browsers} windows on the same cores")
        windows = [await windows_together(browser, address, browsers) for _ in range(rounds)]
        await browser.close()
    painted, clicked = ([seconds for one in windows for seconds in one[part]] for part in (0, 1))
    return {"first_paint": paint, "navigation": moved, "together": together, "windows": painted, "clicks": clicked}


async def downloads(browser: Browser, address: str) -> list[str]:
    """Return the addresses of the files that a new visitor's browser downloads."""
    context = await new_context(browser)
    page = await context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(address + "/")
    await page.wait_for_selector(PAGES["overview"][1], timeout=PATIENCE_MILLISECONDS)
    await context.close()
    return [url for url in asked if url.startswith("http")]


async def among_others(browser: Browser, address: str, name: str, files: list[str], others: int) -> float:
    """Return the seconds until a page stands in a browser that comes together with so many other visitors."""
    async with AsyncExitStack() as stack:
        pages = [list(PAGES)[number % len(PAGES)] for number in range(others)]
        visitors = [await stack.enter_async_context(Visitor(address, page)) for page in pages]
        seconds, *_ = await asyncio.gather(
            first_paint(browser, address, name), *(opened(visitor, files) for visitor in visitors)
        )
    return seconds


async def opened(visitor: Visitor, files: list[str]) -> float:
    """Download what a browser does, six at a time as it does, then open the page."""
    limits = httpx.Limits(max_connections=6)
    async with httpx.AsyncClient(timeout=PATIENCE_MILLISECONDS / 1000, limits=limits) as client:
        for answer in await asyncio.gather(*(client.get(url) for url in files)):
            answer.raise_for_status()
    return (await visitor.open()).seconds


async def windows_together(browser: Browser, address: str, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of first paint, and of a click, in so many windows that all draw at the same time."""
    names = [list(PAGES)[number % len(PAGES)] for number in range(count)]
    painted = await asyncio.gather(*(first_paint(browser, address, name) for name in names))
    async with AsyncExitStack() as stack:
        pages = []
        for name in names:
            context = await new_context(browser)
            stack.push_async_callback(context.close)
            pages.append(await context.new_page())
            await pages[-1].goto(address + PAGES[name][0])
            await pages[-1].wait_for_selector(PAGES[name][1], timeout=PATIENCE_MILLISECONDS)
        await asyncio.sleep(1.0)
        following = [list(PAGES)[(number + 1) % len(PAGES)] for number in range(count)]
        clicked = await asyncio.gather(*(click(page, name) for page, name in zip(pages, following, strict=True)))
    return list(painted), list(clicked)


async def first_paint(browser: Browser, address: str, name: str) -> float:
    """Return the seconds until a page's content stands, for a new visitor."""
    context = await new_context(browser)
    page = await context.new_page()
    path, mark = PAGES[name]
    began = time.perf_counter()
    await page.goto(address + path, wait_until="commit")
    await page.wait_for_selector(mark, timeout=PATIENCE_MILLISECONDS)
    seconds = time.perf_counter() - began
    await context.close()
    return seconds


async def new_context(browser: Browser) -> BrowserContext:
    return await browser.new_context(viewport={"width": 1440, "height": 900})


async def navigation(browser: Browser, address: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each click in the navigation, by the page that it leads to."""
    context = await new_context(browser)
    page = await context.new_page()
    await page.goto(address + "/")
    await page.wait_for_selector(PAGES["overview"][1], timeout=PATIENCE_MILLISECONDS)
    taken: dict[str, list[float]] = {name: [] for name in PAGES}
    for number in range(rounds + 1):
        for name in ("nodes", "incident", "overview"):
            seconds = await click(page, name)
            if number:  # the first visit of each page fills caches
                taken[name].append(seconds)
            await page.wait_for_timeout(500)
    await context.close()
    return taken


async def click(page: Page, name: str) -> float:
    """Return the seconds from a click to the page's content."""
    link = page.get_by_role("link", name=LINKS[name], exact=True).first
    began = time.perf_counter()
    await link.click()
    await page.wait_for_function(
        "([path, mark]) => location.pathname.replace(/\\/$/, '') === path.replace(/\\/$/, '')"
        " && document.querySelector(mark)?.checkVisibility()",
        arg=list(PAGES[name]), timeout=PATIENCE_MILLISECONDS,
    )  # fmt: skip
    return time.perf_counter() - began


def judged(measured: dict[str, Any], ready: float, gigabytes: float) -> dict[str, Any]:
    """Return the report."""
    paint = {name: statistics.median(seconds[1:]) for name, seconds in measured["first_paint"].items()}
    moved = {name: statistics.median(seconds) for name, seconds in measured["navigation"].items()}
    late = p95(measured["together"])
    return {
        "cores": os.cpu_count(),
        "ready_seconds": round(ready, 2),
        "first_paint_median_seconds": rounded(paint),
        "first_paint_cold_seconds": rounded({name: s[0] for name, s in measured["first_paint"].items()}),
        "navigation_median_seconds": rounded(moved),
        "navigation_worst_seconds": rounded({name: max(s) for name, s in measured["navigation"].items()}),
        "together_p95_seconds": round(late, 2),
        "together_median_seconds": round(statistics.median(measured["together"]), 2),
        "windows_first_paint_p95_seconds": round(p95(measured["windows"]), 2),
        "windows_first_paint_median_seconds": round(statistics.median(measured["windows"]), 2),
        "windows_navigation_p95_seconds": round(p95(measured["clicks"]), 2),
        "resident_gigabytes": round(gigabytes, 2),
        "targets": {
            "first_paint": PAINT_SECONDS, "navigation": NAVIGATION_SECONDS, "together_p95": TOGETHER_SECONDS,
            "resident_gigabytes": RESIDENT_GIGABYTES,
        },
        "within_target": {
            "first_paint": max(paint.values()) <= PAINT_SECONDS,
            "navigation": max(moved.values()) <= NAVIGATION_SECONDS,
            "together_p95": late <= TOGETHER_SECONDS,
            "resident_gigabytes": gigabytes <= RESIDENT_GIGABYTES,
        },
    }  # fmt: skip


def p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in seconds.items()}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--days", type=float, default=54)
    parser.add_argument("--runs", type=Path, help="a folder of runs that is there already")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--browsers", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
