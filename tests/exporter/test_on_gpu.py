"""A job of one rank on a real GPU, where there is one: no step waits for it, and it is kept out where it must be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.exporter.test_monitor import events, step, watch
from torch import nn

from lastgood.cadences import REVIEW_EVERY
from lastgood.projection import project
from lastgood.side_stream import SideStream, side_of
from lastgood.stopwatch import DeviceEvents, stopwatch_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

AT_REST = 7


@contextmanager
def no_waiting() -> Iterator[None]:
    """Raise where the host would wait for the device to read from it, or to write to it."""
    cuda: Any = torch.cuda
    cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        cuda.set_sync_debug_mode("default")


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 256), nn.Linear(256, 2)).cuda()


def test_no_clean_step_waits_for_the_device(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    monitor = watch(model, optimizer, tmp_path, budget=0.5, at_rest_every=AT_REST)
    good = torch.ones(3, 4, device="cuda")
    for number in range(1, 3 * REVIEW_EVERY):
        if number == 1 or not number % AT_REST:  # the optimizer makes its state; bits are compared
            step(monitor, optimizer, good)
            continue
        with no_waiting():
            step(monitor, optimizer, good)
    torch.cuda.synchronize()
    share = monitor.inspector.cadences.share()
    monitor.close()
    assert share is not None
    assert 0 < share < 1
    assert monitor.passed["at_rest"] > 0
    assert not [e for e in events(tmp_path) if e.type == "finding"]
    assert monitor.session.registry.get_sample_value(
        "lastgood_exporter_errors_total",
        {"run": "run", "rank": "0", "node": monitor.session.place.node, "part": "check"},
    ) in (None, 0.0)


def test_a_nan_stays_out_and_is_told_a_step_later(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    monitor = watch(model, optimizer, tmp_path)
    good, bad = torch.ones(3, 4, device="cuda"), torch.full((3, 4), math.nan, device="cuda")
    step(monitor, optimizer, good)
    before = [p.detach().clone() for p in model.parameters()]
    with no_waiting():
        step(monitor, optimizer, bad)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    step(monitor, optimizer, good)
    monitor.close()
    found = [(e.data["check"], e.step, e.data["contained"]) for e in events(tmp_path) if e.type == "finding"]
    assert found == [("finite", 2, True)]


def test_what_is_read_apart_is_what_was_there_before_it_is_written() -> None:
    side = side_of(torch.device("cuda"))
    assert isinstance(side, SideStream)
    assert isinstance(stopwatch_of(torch.device("cuda")), DeviceEvents)
    bucket = torch.randn(1 << 24, device="cuda")
    wanted = project(bucket.clone(), key=3)
    for _ in range(20):
        with side.apart():
            read = project(bucket, key=3, scale=0.5)
        side.join(read)
        bucket.mul_(2.0)
        assert torch.allclose(torch.stack(read), torch.stack(wanted), rtol=1e-9)
