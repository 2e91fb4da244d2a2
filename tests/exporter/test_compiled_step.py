"""Optimizer steps that ``torch.compile`` compiled: the hooks stay outside, and what they decide holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.exporter.ranks import run_ranks
from tests.exporter.test_ways import NODES, assert_clean, assert_found
from torch import Tensor, nn

import lastgood
from lastgood.journal_read import JournalTail
from lastgood.monitor import Monitor

SCRIPT = Path(__file__).with_name("compiled_step_cases.py")
REPLAY = "replay_of_a_permanent_fault"
WAYS = {
    "recipe": (REPLAY, "conservation", "one_result", "replica", "finite"),
    "method_fused": (REPLAY, "finite"),
    "scheduled_foreach": (REPLAY, "finite"),
}

pytestmark = [  # of torch itself, when it compiles
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, compiler_program: str) -> list[dict[str, Any]]:
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    arguments = [str(tmp_path_factory.mktemp("compiled-step")), ",".join([*WAYS, "skipped"])]
    return [dict(lines) for lines in run_ranks(SCRIPT, arguments, nodes=NODES, environ=environ, timeout=280)]


@pytest.mark.torchrun
@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_compiled_step_is_watched_like_any_other(seen: list[dict[str, Any]], name: str) -> None:
    """Bitwise as the compiled step without lastgood; a replay finding and a NaN stop it."""
    assert_clean(seen, name, {})
    assert_found(seen, name, WAYS[name])
    stopped = {fault: seen[0][name]["faults"][fault]["step"] for fault in (REPLAY, "finite")}
    assert stopped == {REPLAY: 4, "finite": 3}


@pytest.mark.torchrun
@pytest.mark.slow
def test_a_compiled_step_is_skipped_and_compiled_no_further(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        assert rank["skipped"] == {
            "unchanged": [False, True, False, False, False],
            "finite": True,
            "contained": [True],
            "step": 6,
            "compiled_late": 0,
        }


# --- one rank ---------------------------------------------------------------------------------------------------------


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


@pytest.fixture
def model() -> Iterator[nn.Module]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield nn.Linear(4, 2)
    torch._dynamo.reset()  # what was compiled here is no other test's


def watch(model: nn.Module, optimizer: Any, root: Path, **settings: Any) -> Monitor:
    settings = {"loss_fn": loss_fn, "metrics_port": 0, **settings}
    return lastgood.watch(model, optimizer, run_dir=root / "run", **settings)


def contained(root: Path) -> list[bool]:
    return [e.data["contained"] for e in JournalTail(root / "run").poll()[0] if e.type == "finding"]


NAN, GOOD = torch.full((3, 4), math.nan), torch.ones(3, 4)


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}])
def test_nan_never_reaches_the_weights_and_a_third_one_stops(
    model: nn.Module, tmp_path: Path, options: dict[str, Any]
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **options)
    monitor = watch(model, optimizer, tmp_path)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    seen = []

    def loop() -> None:
        for batch in (GOOD, GOOD, NAN, GOOD, NAN, NAN, NAN, GOOD):
            monitor.loss(batch).backward()
            step()
            optimizer.zero_grad()
            seen.append(model.weight.detach().clone())

    with pytest.raises(lastgood.IntegrityError):
        loop()
    monitor.close()
    assert [torch.equal(a, b) for a, b in zip(seen, seen[1:], strict=False)] == [False, True, False, True, True]
    assert model.weight.isfinite().all()
    assert contained(tmp_path) == [True] * 4


def test_a_step_that_was_compiled_before_is_watched(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(2):
        loss_fn(model, GOOD).backward()
        step()
        optimizer.zero_grad()
    monitor = watch(model, optimizer, tmp_path, loss_fn=None)
    before = model.weight.detach().clone()
    loss_fn(model, NAN).backward()
    step()
    assert torch.equal(model.weight, before)
    assert monitor.step == 1
    monitor.close()


def test_a_compiled_step_with_a_closure_is_skipped(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, tmp_path)
    batches = iter((GOOD, NAN, GOOD))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = monitor.loss(next(batches))
        loss.backward()
        return loss

    step: Callable[[], Any] = torch.compile(lambda: optimizer.step(closure), backend="eager")
    seen = [model.weight.detach().clone()]
    for _ in range(3):
        step()
        seen.append(model.weight.detach().clone())
    monitor.close()
    assert [torch.equal(a, b) for a, b in zip(seen, seen[1:], strict=False)] == [False, True, False]
    assert contained(tmp_path) == [True]
    assert monitor.step == 3


def test_a_compiled_step_of_a_loss_scaler_is_counted(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    monitor = watch(model, optimizer, tmp_path, scaler=scaler)
    step = torch.compile(lambda: scaler.step(optimizer), backend="eager")
    for batch in (GOOD, NAN, GOOD):
        scaler.scale(monitor.loss(batch)).backward()
        step()
        scaler.update()
        optimizer.zero_grad()
    monitor.close()
    assert monitor.step == 3
    assert model.weight.isfinite().all()


def test_a_step_compiled_as_one_graph_is_refused_by_torch_with_our_reason(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, tmp_path)
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    before = model.weight.detach().clone()
    monitor.loss(GOOD).backward()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="without fullgraph=True"):
        step()
    assert torch.equal(model.weight, before)
    monitor.close()
