"""What waits for what where checks run beside the training, on a fake of a GPU's streams, and what they take there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.exporter.streams import FakeCuda, FakeNumber
from tests.exporter.test_monitor import GOOD, loss_fn, watch
from torch import Tensor, nn

from lastgood.budget import Costs
from lastgood.side_stream import InLine, SideStream, side_of
from lastgood.spending import WARM_UP, Spending
from lastgood.stopwatch import DeviceEvents, HostClock, stopwatch_of

CPU = torch.device("cpu")


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


@pytest.fixture
def side(cuda: FakeCuda) -> SideStream:
    return SideStream(CPU, cuda)


def test_what_runs_apart_waits_for_what_was_before_and_not_for_what_comes_after(cuda: FakeCuda, side: Any) -> None:
    cuda.launch("gradients of a bucket")
    with side.apart():
        cuda.launch("read")
    cuda.launch("rest of the backward")
    with side.apart():
        cuda.launch("read of the next bucket")
    assert cuda.place_of("read") == "side 1"
    assert cuda.is_before("gradients of a bucket", "read")
    assert not cuda.is_before("read", "rest of the backward")
    assert not cuda.is_before("rest of the backward", "read")
    assert cuda.is_before("rest of the backward", "read of the next bucket")


def test_after_a_join_the_stream_waits_for_all_that_was_apart(cuda: FakeCuda, side: Any) -> None:
    with side.apart():
        cuda.launch("read")
    torchs_own = cuda.Stream(CPU)
    with cuda.stream(torchs_own):
        side.made_here()
        cuda.launch("read after the reduce")
    side.join()
    cuda.launch("update")
    assert cuda.is_before("read", "update")
    assert cuda.is_before("read after the reduce", "update")


def test_numbers_that_are_read_after_a_join_are_kept_until_then(side: Any) -> None:
    here, elsewhere = FakeNumber("cpu"), FakeNumber("meta")
    side.join([here, elsewhere])
    assert (here.handed_to, elsewhere.handed_to) == (["main"], [])


def test_an_exception_leaves_the_stream_of_the_training(cuda: FakeCuda, side: Any) -> None:
    with pytest.raises(ZeroDivisionError), side.apart():
        raise ZeroDivisionError
    assert cuda.current.name == "main"


def test_without_a_gpu_everything_is_done_in_the_call() -> None:
    assert isinstance(side_of(CPU), InLine)
    assert isinstance(stopwatch_of(CPU), HostClock)
    with (inline := InLine()).apart():
        inline.made_here()
    inline.join([torch.ones(())])


def test_the_first_look_at_rest_runs_beside_the_forward_and_before_the_update(
    cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def forward(model: nn.Module, batch: Tensor) -> Tensor:
        cuda.launch("forward")
        return loss_fn(model, batch)

    monitor = watch(model, optimizer, tmp_path, loss_fn=forward, at_rest_every=2)
    monitor.inspector.side = SideStream(CPU, cuda)
    begin = monitor.inspector.resting.sample.begin

    def first_look(*given: Any) -> None:
        cuda.launch("first look")
        begin(*given)

    def update(*_: Any) -> None:
        cuda.launch("update")

    monkeypatch.setattr(monitor.inspector.resting.sample, "begin", first_look)
    optimizer.register_step_pre_hook(update)
    for _ in range(2):
        monitor.loss(GOOD).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert cuda.place_of("first look") == "side 1"
    assert not cuda.is_before("first look", "forward")
    assert cuda.is_before("first look", "update")
    monitor.close()
    assert monitor.passed["at_rest"] == 1


# --- how long it takes ------------------------------------------------------------------------------------------------


def test_a_gpus_time_is_known_once_it_has_passed_both_events(cuda: FakeCuda) -> None:
    end = DeviceEvents(CPU, cuda).begin()
    cuda.launch("check")
    span = end()
    assert span.seconds() is None
    cuda.passed = {0: 1.5}
    assert span.seconds() is None
    cuda.passed[2] = 1.75
    assert span.seconds() == pytest.approx(0.25)


def test_it_is_measured_on_the_stream_on_which_it_runs(cuda: FakeCuda, side: Any) -> None:
    watch = DeviceEvents(CPU, cuda)
    with side.apart():
        watch.begin()()
    assert [stream for _, stream, _ in cuda.work] == ["side 1", "side 1"]


def test_a_step_counts_once_all_that_was_measured_in_it_is_known(cuda: FakeCuda) -> None:
    spending = Spending(DeviceEvents(CPU, cuda))

    def step(seconds: float = 1.0) -> None:
        with spending.on("every_step"):
            pass
        with spending.on("at_rest"):
            pass
        spending.step(seconds)

    def passes(every_step: float, at_rest: float) -> None:
        """Let the device come to the end of the next step."""
        first = len(cuda.passed)
        cuda.passed |= {first: 0.0, first + 1: every_step, first + 2: 0.0, first + 3: at_rest}

    for _ in range(WARM_UP):
        step()
        passes(9.0, 0.5)
    step()
    assert spending.take() is None
    step()
    passes(0.125, 0.5)
    assert spending.take() == Costs(step=0.375, every_step=0.125, run={"at_rest": 0.5})
    assert spending.take() is None
    passes(0.25, 0.25)
    assert spending.take() == Costs(step=0.5, every_step=0.25, run={"at_rest": 0.25})
