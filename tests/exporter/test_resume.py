"""Resume by the recipe of ``torch.distributed.checkpoint`` into a fresh job: load and ``watch`` in either order.

``get_state_dict`` makes the state of a fresh optimizer by a step of its own, which is none of training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.exporter.ranks import run_ranks
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import lastgood
from lastgood.guard import only_makes_state
from lastgood.monitor import Monitor

SCRIPT = Path(__file__).with_name("resume_cases.py")
ORDERS = ("load_first", "watch_first")
JOBS = [f"{model}-{optimizer}" for model in ("replicated", "sharded") for optimizer in ("adam", "plain")]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    arguments = [str(tmp_path_factory.mktemp("resume")), "orders"]
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    return [dict(lines)["orders"] for lines in run_ranks(SCRIPT, arguments, nodes=["a", "b"], environ=environ)]


@pytest.mark.torchrun
@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", JOBS)
def test_two_ranks_resume_in_either_order(seen: list[dict[str, Any]], name: str, order: str) -> None:
    for rank in seen:
        steps, text, types = rank[f"{name}-{order}"]
        assert (steps, text) == ([4, 5], "")
        assert types == ["run.started", "run.started", "checkpoint.loaded"]


# --- one rank ---------------------------------------------------------------------------------------------------------


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


MAKES: dict[str, Any] = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "AdamW with a rate that is a tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
}


def fresh(make: Any, root: Path, own_loop: bool, load: Path | None = None) -> tuple[nn.Module, Any, Monitor]:
    """``load``: loaded before ``watch``."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = make(model.parameters())
    if load is not None:
        loaded(load, model, optimizer)
    monitor = lastgood.watch(
        model, optimizer, run_dir=root / "run", metrics_port=0, loss_fn=None if own_loop else loss_fn
    )
    return model, optimizer, monitor


def loaded(path: Path, model: nn.Module, optimizer: Any) -> None:
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)


def turn(model: nn.Module, optimizer: Any, monitor: Monitor, own_loop: bool) -> None:
    batch = torch.ones(3, 4)
    (loss_fn(model, batch) if own_loop else monitor.loss(batch)).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("own_loop", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MAKES)
@pytest.mark.filterwarnings("ignore::UserWarning:torch.distributed.checkpoint")
def test_one_rank_resumes_in_either_order(tmp_path: Path, name: str, order: str, own_loop: bool) -> None:
    path = tmp_path / "checkpoint"
    model, optimizer, monitor = fresh(MAKES[name], tmp_path, own_loop)
    for _ in range(3):
        turn(model, optimizer, monitor, own_loop)
    with monitor.checkpoint(path):
        weights, state = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id=path)
    assert monitor.step == 3
    turn(model, optimizer, monitor, own_loop)
    assert monitor.step == 4
    monitor.close()
    model, optimizer, again = fresh(MAKES[name], tmp_path, own_loop, path if order == "load_first" else None)
    if order == "watch_first":
        loaded(path, model, optimizer)
    again.resume(path)
    turn(model, optimizer, again, own_loop)
    assert again.step == 4
    again.close()


@pytest.mark.parametrize(
    ("rate", "grad", "trained", "makes"),
    [(0.0, 0.0, False, True), (0.1, 0.0, False, False), (0.0, 1.0, False, False), (0.0, 0.0, True, False)],
)
def test_which_step_only_makes_state(rate: float, grad: float, trained: bool, makes: bool) -> None:
    """A warm-up begins at a rate of zero, too, and gradients may be made by hand: those steps are training."""
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], lr=rate)
    parameter.grad = torch.full((3,), grad)
    if trained:
        optimizer.step()
    assert only_makes_state(optimizer) is makes
