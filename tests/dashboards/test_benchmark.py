"""The benchmark asks every panel and says what each took; its numbers are for people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.dashboards.lint import panels

from lastgood_dashboards import NAMES, dashboard

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "dashboards.py"


@pytest.mark.slow
@pytest.mark.prometheus
@pytest.mark.usefixtures("prometheus_program")
def test_every_panel_is_measured() -> None:
    command = [sys.executable, str(SCRIPT), "--ranks", "16", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    rows = {(row["dashboard"], row["panel"]): row for row in json.loads(done.stdout)["panels"]}
    assert set(rows) == {(name, panel["title"]) for name in NAMES for panel in panels(dashboard(name))}
    assert rows["run", "Ranks by norm over the median"]["series"] > 0
    assert rows["run", "Gradient norm before the averaging"]["series"] > 3
    assert rows["run", "Gradient norm before the averaging"]["seconds"] > 0
