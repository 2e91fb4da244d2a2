"""The console's benchmark runs to its end on a small fleet and reports every page; its numbers are no measurement."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("chromium_program")]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "console.py"


def test_every_page_is_opened_and_navigated_to() -> None:
    small = ["--ranks", "64", "--days", "1", "--rounds", "1", "--browsers", "3"]
    done = subprocess.run([sys.executable, str(SCRIPT), *small], capture_output=True, text=True, timeout=240)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if all(report["within_target"].values()) else 1), done.stderr
    for measure in ("first_paint_median_seconds", "navigation_median_seconds"):
        assert set(report[measure]) == {"overview", "nodes", "incident"}
        assert all(seconds > 0 for seconds in report[measure].values())
    assert 0.05 < report["resident_gigabytes"] < 4
