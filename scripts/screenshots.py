"""Photograph the console for the README: ``make screenshots``.

Nothing in the pictures is made up: two real training runs of the demo with a device that is broken on purpose, a real
Prometheus and Alertmanager (``lastgood stack``), a real Chromium. Takes about three minutes. Look at every picture.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from playwright.sync_api import Browser, sync_playwright

OUT = Path(__file__).parents[1] / "docs" / "images"
LASTGOOD = (sys.executable, "-m", "lastgood_console.cli")
SETTLED = '[data-testid="stApp"][data-test-script-state="notRunning"]'
ALERTS_SECONDS = 20.0
"""After the demo: until its alerts have come, and those that are over are resolved."""
MOST_PIXELS = 2200


class Shot(NamedTuple):
    """One picture: its name, the page, the theme, the width in pixels, and whether all of the page is on it."""

    name: str
    path: str
    theme: Literal["light", "dark"] = "light"
    width: int = 1440
    whole: bool = False


def shots(run: str) -> list[Shot]:
    """Return the pictures to take. ``run``: the one that the stack has watched."""
    return [
        Shot("overview", "/"),
        Shot("incident", f"/incident?run={run}", whole=True),
        Shot("incident-dark", f"/incident?run={run}", theme="dark"),
        Shot("incident-narrow", f"/incident?run={run}", width=800),
        Shot("nodes", "/nodes", theme="dark"),
        Shot("checkpoints", f"/checkpoints?run={run}"),
        Shot("alerts", "/alerts"),
    ]


def main() -> int:
    """Train, watch, photograph. Returns 0."""
    with tempfile.TemporaryDirectory(prefix="lastgood-") as folder:
        runs = Path(folder) / "runs"
        say("training the first run (fault: weight)")
        demo = [*LASTGOOD, "demo", "--no-console", "--fault", "weight", "--run-dir", str(runs / "vision-base")]
        subprocess.run(demo, check=False, stdout=subprocess.DEVNULL)
        say("training the second run (fault: gradient), watched by Prometheus and Alertmanager")
        with stack(runs) as (address, run):
            time.sleep(ALERTS_SECONDS)
            photograph(address, shots(run))
    return 0


@contextmanager
def stack(runs: Path) -> Iterator[tuple[str, str]]:
    """Run ``lastgood stack --demo`` until the demo has ended; yield the console's address and the demo's run."""
    command = [*LASTGOOD, "stack", str(runs), "--demo", "--scrape-interval", "1", "--data", str(runs.parent / "stack")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if "The demo has ended" in line:
                break
        address, run = (re.search(p, said) for p in (r"console +(http\S+)", r"demo +\S*/(demo-\S+),"))
        if address is None or run is None or process.poll() is not None:
            raise RuntimeError(f"the stack did not get so far: {said}")
        yield address[1], run[1]
    finally:
        process.terminate()  # also where SIGINT is ignored, as in the background of a shell
        process.communicate(timeout=60)


def photograph(address: str, wanted: list[Shot]) -> None:
    """Take the pictures."""
    program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for number, shot in enumerate(wanted, start=1):
            say(f"picture {number} of {len(wanted)}: {shot.name}")
            take(browser, address, shot)
        browser.close()


def take(browser: Browser, address: str, shot: Shot) -> None:
    """Take one picture."""
    context = browser.new_context(viewport={"width": shot.width, "height": 900}, color_scheme=shot.theme)
    page = context.new_page()
    page.goto(address + shot.path)
    page.wait_for_selector(".lg-head, .lg-strip", timeout=60_000)
    page.locator(SETTLED).wait_for(state="attached", timeout=60_000)
    if shot.whole:
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": shot.width, "height": min(int(height), MOST_PIXELS)})
    page.wait_for_timeout(3_000)  # charts draw themselves after the page has settled
    page.screenshot(path=OUT / f"{shot.name}.png")
    context.close()


def say(text: str) -> None:
    """Tell how far it is."""
    print(f"screenshots: {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
