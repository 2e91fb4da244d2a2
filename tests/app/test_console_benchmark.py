"""The benchmarks of the console run to their end on a small fleet and report every page; they measure nothing here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGES = {"overview", "nodes", "incident"}

pytestmark = pytest.mark.slow


def run(script: str, *options: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    command = [sys.executable, str(BENCHMARKS / script), "--ranks", "64", "--days", "1", "--rounds", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done


@pytest.mark.browser
@pytest.mark.usefixtures("chromium_program")
def test_every_page_is_opened_and_navigated_to() -> None:
    report, done = run("console.py", "--browsers", "3")
    assert done.returncode == (0 if all(report["within_target"].values()) else 1), done.stderr
    for measure in ("first_paint_median_seconds", "navigation_median_seconds"):
        assert set(report[measure]) == PAGES
        assert all(seconds > 0 for seconds in report[measure].values())
    assert 0.05 < report["resident_gigabytes"] < 4


def test_visitors_without_a_browser_open_every_page_and_see_it_tick() -> None:
    report, done = run("console_visitors.py", "--visitors", "3", "--seconds", "11")
    assert done.returncode == (0 if all(target["passed"] for target in report["targets"]) else 1), done.stderr
    for part in ("cold", "alone"):
        assert set(report[part]) == PAGES
        assert all(page["median_bytes"] > 20_000 for page in report[part].values())
    assert report["together"]["count"] == 3
    for part in ("live", "news"):
        assert report[part]["count"] >= 3 * 3, "each of three pages ticks every two seconds"
        assert 0 < report[part]["median_bytes"] < report["together"]["median_bytes"]
    assert 0.05 < report["resident_gigabytes"] < 4
