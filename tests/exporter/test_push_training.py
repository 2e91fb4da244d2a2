"""A training job of one rank that pushes: every step arrives, and however it ends its series end."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.exporter.push_sink import Sink, receiving
from torch import Tensor, nn

import lastgood
from lastgood.devices import NoDevices
from lastgood.monitor import Monitor
from lastgood.push_wire import STALE

pytestmark = pytest.mark.slow

GOOD = torch.ones(3, 4)
NAN = torch.full((3, 4), math.nan)


@pytest.fixture
def sink() -> Iterator[Sink]:
    with receiving() as running:
        yield running


class Job:
    """A model, its optimizer and its monitor."""

    def __init__(self, tmp_path: Path, url: str, **settings: Any) -> None:
        model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.monitor: Monitor = lastgood.watch(
            model, self.optimizer, run_dir=tmp_path / "run", loss_fn=loss_fn, metrics_port=0, push_url=url,
            push_seconds=0, node="node-a", **settings,
        )  # fmt: skip

    def step(self, batch: Tensor = GOOD) -> None:
        self.monitor.loss(batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch).square().mean()
    return loss


def steps_in(sink: Sink) -> list[float]:
    return [value for value, _ in sink.values("lastgood_step") if not math.isnan(value)]


def all_ended(sink: Sink) -> bool:
    """Tell whether the last thing that is known of every series is its end."""
    last = {tuple(labels.items()): value for message in sink.taken for labels, value, _ in message}
    return set(last.values()) == {STALE}


def test_every_step_of_a_clean_run_arrives_and_its_series_end(tmp_path: Path, sink: Sink) -> None:
    job = Job(tmp_path, sink.url)
    for _ in range(5):
        job.step()
    job.monitor.close()
    assert steps_in(sink) == [1, 2, 3, 4, 5]
    assert sink.taken[0][0][0]["instance"] == "node-a:0"
    assert all_ended(sink)


def test_a_run_that_is_stopped_ends_its_series_before_the_error_is_handled(tmp_path: Path, sink: Sink) -> None:
    job = Job(tmp_path, sink.url)
    job.step()
    for _ in range(2):  # a NaN that nobody can settle is skipped twice
        job.step(NAN)
    with pytest.raises(lastgood.IntegrityError):
        job.step(NAN)
    deadline = time.monotonic() + 5
    while not (sink.taken and all_ended(sink)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all_ended(sink)
    assert [value for value, _ in sink.values("lastgood_nonfinite_steps_total", stage="local")][-2] == 3
    job.monitor.close()


def test_a_run_that_raises_ends_its_series(tmp_path: Path, sink: Sink) -> None:
    job = Job(tmp_path, sink.url)
    job.step()
    with pytest.raises(ZeroDivisionError), job.monitor:
        raise ZeroDivisionError
    assert steps_in(sink) == [1]
    assert all_ended(sink)


def test_a_receiver_and_a_console_that_hang_delay_the_end_by_one_second_together(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as mute:
        job = Job(
            tmp_path,
            f"http://127.0.0.1:{silent.getsockname()[1]}/write",
            console_url=f"http://127.0.0.1:{mute.getsockname()[1]}",
        )
        job.step()
        start = time.monotonic()
        with pytest.raises(ZeroDivisionError), job.monitor:
            raise ZeroDivisionError
        assert time.monotonic() - start < 1.8


def test_what_the_end_waits_for_first_leaves_the_console_less_of_the_second(tmp_path: Path) -> None:
    class Slow(NoDevices):
        def close(self) -> None:
            time.sleep(0.9)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        job = Job(tmp_path, "", console_url=f"http://127.0.0.1:{mute.getsockname()[1]}")
        job.monitor.session.devices = Slow()
        job.step()
        while not job.monitor.publisher.delivery.errors:  # then the end is the next try
            time.sleep(0.01)
        start = time.monotonic()
        with pytest.raises(ZeroDivisionError), job.monitor:
            raise ZeroDivisionError
        assert time.monotonic() - start < 1.7


def test_a_script_that_crashes_without_close_ends_its_series(tmp_path: Path, sink: Sink) -> None:
    script = (
        "import sys, torch, lastgood\nfrom torch import nn\n"
        "model = nn.Linear(4, 2)\no = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "m = lastgood.watch(model, o, run_dir=sys.argv[1], metrics_port=0, push_url=sys.argv[2])\n"
        "model(torch.ones(3, 4)).sum().backward()\no.step()\nraise RuntimeError('crash')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run"), sink.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "RuntimeError: crash" in done.stderr
    assert steps_in(sink) == [1]
    assert all_ended(sink)
