"""Real training beside a device whose driver hangs, is lost or fails: the same steps, the same weights, a quick end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lastgood.journal_read import read_run

SCRIPT = Path(__file__).with_name("device_training.py")
SETTINGS = {
    "off": "off",
    "steady": "fake",
    "hang": "fake:hang@0.3",
    "hang at once": "fake:hang@0",
    "lost": "fake:lost@0.3",
    "flaky": "fake:flaky@0",
    "hot": "fake:hot@0.3",
}

pytestmark = pytest.mark.slow


def trained(run_dir: Path, setting: str, seconds: float) -> dict[str, Any]:
    """Train in a process of its own; return what it saw, and how long its end took."""
    command = [sys.executable, str(SCRIPT), str(run_dir), setting, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        line = process.stdout.readline()
        said, began = {} if not line else json.loads(line), time.monotonic()
        complaints = process.stderr.read()
        code = process.wait(timeout=30)
        assert code == 0, complaints
        return said | {"ended_in": time.monotonic() - began, "complaints": complaints}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each training saw, by the state of its driver."""
    root = tmp_path_factory.mktemp("devices")
    return {name: trained(root / name.replace(" ", "-"), setting, 2.0) | {"run_dir": root / name.replace(" ", "-")}
            for name, setting in SETTINGS.items()}  # fmt: skip


def test_the_weights_are_bitwise_the_same_whatever_the_driver_does(seen: dict[str, dict[str, Any]]) -> None:
    assert len({result["weights"] for result in seen.values()}) == 1


@pytest.mark.parametrize("name", SETTINGS)
def test_no_step_and_no_end_waits_for_the_driver(seen: dict[str, dict[str, Any]], name: str) -> None:
    assert seen[name]["longest"] < 10.0, "a step that waited for a driver that hangs would not end at all"
    assert seen[name]["closed"] < 3.0
    assert seen[name]["ended_in"] < 5.0


def test_a_device_in_order_has_all_its_series_and_no_error(seen: dict[str, dict[str, Any]]) -> None:
    assert len(seen["steady"]["samples"]) == 5  # two temperatures share a name
    assert seen["steady"]["errors"] == [0.0]
    assert "lastgood" not in seen["steady"]["complaints"]


def test_without_a_device_there_is_no_series(seen: dict[str, dict[str, Any]]) -> None:
    assert (seen["off"]["samples"], seen["off"]["errors"]) == ({}, [0.0])


@pytest.mark.parametrize("name", ["lost", "flaky"])
def test_a_failing_driver_is_counted_and_said_once(seen: dict[str, dict[str, Any]], name: str) -> None:
    assert seen[name]["errors"] == [1.0]
    assert seen[name]["complaints"].count("GpuIsLost") == 1
    assert "Training goes on." in seen[name]["complaints"]


def test_a_hot_device_is_journaled_by_its_own_rank(seen: dict[str, dict[str, Any]]) -> None:
    events, unreadable = read_run(seen["hot"]["run_dir"])
    assert not unreadable
    told = [event for event in events if event.type == "device.excursion"]
    assert [(e.data["nature"], e.data["state"], e.rank) for e in told] == [("thermal_margin", "started", 0)]
    assert "fake GPU" in told[0].data["text"]
    started = next(event for event in events if event.type == "run.started")
    assert started.data["config"]["devices"] == SETTINGS["hot"]
    assert all("fake GPU" in key for key in started.data["environment"])
