"""The coarsest type that a run computes in, wherever it comes from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lastgood.recorder import Recorder
from lastgood.rounding import LEAST, rounding, types_of


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch).square().mean()
    return loss


def narrow(model: nn.Module, batch: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return loss_fn(model, batch)


@pytest.mark.parametrize(
    ("loss", "floor"), [(loss_fn, LEAST), (narrow, 4 * torch.finfo(torch.bfloat16).eps)], ids=["float32", "autocast"]
)
def test_a_type_that_begins_inside_the_loss_function_counts(loss: Any, floor: float) -> None:
    model = nn.Linear(4, 2)
    recorder = Recorder(model, loss, torch.device("cpu"))
    batch = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    alone = loss(model, batch)
    with types_of(recorder) as types:
        watched = loss(model, batch)
        watched.backward()
    assert torch.equal(alone, watched)
    assert rounding(types) == floor


def test_a_compiled_model_hides_its_types_and_counts_as_the_coarsest() -> None:
    model: Any = torch.compile(nn.Linear(4, 2), backend="eager")
    recorder = Recorder(nn.Linear(4, 2), loss_fn, torch.device("cpu"), model)
    assert recorder.compiled
    with types_of(recorder) as types:
        pass
    assert rounding(types) == 4 * torch.finfo(torch.bfloat16).eps


def test_numbers_that_are_no_floating_point_have_no_rounding() -> None:
    assert rounding({torch.int64, torch.bool}) == rounding(set()) == LEAST
    assert rounding({torch.float64, torch.float32}) == LEAST
