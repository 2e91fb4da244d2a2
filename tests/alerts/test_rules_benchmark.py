"""The benchmark of the rules runs and finds what is wrong in its fleet; its numbers are for people."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lastgood_alerts.rules import RECORDINGS, RULES

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rules.py"
SERVERS = ("prometheus", "victoria-metrics")
WRONG = {
    "ReplayMismatch": 8, "GradNormOutlier": 1, "ThermalMarginLow": 1, "PowerDeviates": 1, "UncorrectedEcc": 1,
    "ExporterErrors": 4, "RankSilent": 1, "Watchdog": 1,
}  # fmt: skip
"""What is wrong in the fleet: 8 suspects, and one instance for each node or part that stands out."""


@cache
def report() -> Any:
    command = [sys.executable, str(SCRIPT), "--ranks", "256", "--rounds", "1", "--engine-rounds", "1", "--written-out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_says_how_many_series_a_rank_and_a_run_have() -> None:
    sizes = report()["sizes"]
    assert (sizes["ranks"], sizes["nodes"], sizes["series_per_rank"]) == (256, 32, 36)
    assert 50 < sizes["series_per_run"] < 100
    for_alerts = 8 + 3 + 1  # suspects, window and start, when it was found
    # suspects; what it is and how many they are; its check; where it was found; onset; when; last good; cost
    facts = 8 + 2 + 1 + 3 + 5 + 1 + 2 + 3
    assert sizes["series_per_open_incident_of_8_suspects"] == for_alerts + facts
    assert 2_000 < sizes["exposition_bytes_per_rank"] < 10_000


@pytest.mark.parametrize("server", SERVERS)
def test_every_rule_is_evaluated_on_both_servers(server: str) -> None:
    evaluated = report()[server]
    assert evaluated["prometheus_rules"]["expressions"] == len(RULES) + len(RECORDINGS)
    queries = sum(1 + len(rule.sides) for rule in RULES)
    assert evaluated["grafana_rules"]["expressions"] == evaluated["grafana_written_out"]["expressions"] == queries
    assert report()["prometheus"]["prometheus_engine"]["expressions"] == len(RULES) + len(RECORDINGS)


@pytest.mark.parametrize("server", SERVERS)
def test_both_servers_find_what_is_wrong_in_the_fleet(server: str) -> None:
    found = report()[server]["firing"]
    assert {name: found.get(name, 0) for name in WRONG} == WRONG
