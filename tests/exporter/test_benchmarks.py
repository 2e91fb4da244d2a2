"""The benchmarks run and say what they claim to say; their numbers are for people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def report_of(script: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_fingerprint_sees_every_fault_class_where_an_xor_is_blind() -> None:
    report = report_of("fingerprint.py", "--quick", "--threads", "1")
    for faults in report["detection"].values():
        assert len(faults) == 8
        assert {row["fingerprint"] for row in faults.values()} == {1.0}
        assert faults["same_bit_in_two_elements"]["hash_tensor_xor"] == 0.0
        assert faults["swap_of_two_elements"]["bit_sum"] == 0.0
    assert all(row["missed"] <= 10 for row in report["collisions"].values())
    assert report["bandwidth"]["x.sum()"]["share_of_sum"] == 1.0
    assert report["bandwidth"]["eager fingerprint"]["gigabytes_per_second"] > 0
    assert report["bandwidth"]["compile"]["skipped"] == "switched off on the command line"


@pytest.mark.slow
@pytest.mark.torchrun
@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "fully_shard"])
def test_every_default_check_runs_while_its_cost_is_measured(wrapper: str) -> None:
    report = report_of("overhead.py", "--quick", *(["--sharded"] if wrapper == "fully_shard" else []))
    assert report["wrapper"] == wrapper
    assert set(report["runs"]) == {"finite", "conservation", "replica", "replay", "at_rest"}
    assert min(report["runs"].values()) > 0
    assert report["same_weights_as_unwatched"]
    assert report["cadence_default"] == {"replica": 50, "replay": 200, "at_rest": 100, "state": 200}
    for clock in ("wall", "cpu"):
        assert report[clock]["plain_step_milliseconds"] > 0
        parts = sum(row["share_of_run"] for row in report[clock]["checks"].values())
        assert report[clock]["share_of_run"] == pytest.approx(parts)


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_findings_alert_reaches_the_console_while_its_way_is_measured() -> None:
    report = report_of("alert_latency.py", "--times", "1")
    assert report["bound_seconds"] == 3.0  # ledger, scrape and evaluation of a second each, no group wait
    assert 0 < report["seconds"][0] == report["median_seconds"]
