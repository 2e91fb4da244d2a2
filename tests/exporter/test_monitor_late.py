"""A job of one rank whose numbers are read a step late, as on a GPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.exporter.syncs import counted, of_lastgood
from tests.exporter.test_monitor import GOOD, NAN, assert_lbfgs_stops, events, loss_fn, step, watch
from torch import Tensor, nn

import lastgood
from lastgood import monitor as watching
from lastgood.cadences import REVIEW_EVERY
from lastgood.local import LocalWatch
from lastgood.readback import LateOnHost

MAKES: dict[str, Any] = {
    "fused AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.1, fused=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.1),
}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    monkeypatch.setattr(watching, "readback_for", lambda device: LateOnHost())
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def findings(monitor: lastgood.Monitor, tmp_path: Path) -> list[tuple[str, int, bool]]:
    assert monitor.publisher.files.settle(10)
    return [(e.data["check"], e.step, e.data["contained"]) for e in events(tmp_path) if e.type == "finding"]


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(before: list[Tensor], model: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("name", MAKES)
def test_a_nan_stays_out_and_is_known_a_step_later(model: nn.Module, tmp_path: Path, name: str) -> None:
    optimizer = MAKES[name](model.parameters())
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    before = weights(model)
    step(monitor, optimizer, NAN)
    assert same(before, model)
    assert findings(monitor, tmp_path) == []
    step(monitor, optimizer, GOOD)
    assert not same(before, model)
    assert findings(monitor, tmp_path) == [("finite", 2, True)]
    monitor.close()
    verdict = next(e for e in events(tmp_path) if e.type == "verdict")
    assert (verdict.data["status"], verdict.data["action"]) == ("suspicious", "skip")


def test_the_first_step_of_an_optimizer_stays_out_too(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    monitor = watch(model, optimizer, tmp_path)
    before = weights(model)
    step(monitor, optimizer, NAN)
    assert same(before, model)
    step(monitor, optimizer, GOOD)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    monitor.close()
    assert findings(monitor, tmp_path) == [("finite", 1, True)]


def test_the_last_step_is_judged_at_close(model: nn.Module, tmp_path: Path) -> None:
    optimizer = MAKES["fused AdamW"](model.parameters())
    monitor = watch(model, optimizer, tmp_path)
    for batch in (GOOD, NAN, NAN, NAN):  # one is skipped, the third in a row stops
        step(monitor, optimizer, batch)
    with pytest.raises(lastgood.IntegrityError):
        monitor.close()
    assert findings(monitor, tmp_path) == [("finite", 2, True), ("finite", 3, True), ("finite", 4, True)]


def test_it_stops_before_the_next_update(model: nn.Module, tmp_path: Path) -> None:
    optimizer = MAKES["fused AdamW"](model.parameters())
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    before = weights(model)
    for _ in range(3):
        step(monitor, optimizer, NAN)
    with pytest.raises(lastgood.IntegrityError):
        step(monitor, optimizer, GOOD)
    assert same(before, model)
    monitor.close()


@pytest.mark.parametrize(("name", "reads"), [("fused AdamW", 0), ("AdamW", 4)])
def test_a_clean_step_never_waits_for_the_device(model: nn.Module, tmp_path: Path, name: str, reads: int) -> None:
    optimizer = MAKES[name](model.parameters())
    monitor = watch(model, optimizer, tmp_path, budget=0.5)
    for _ in range(REVIEW_EVERY - 1):  # the look at the costs falls on what is counted
        step(monitor, optimizer, GOOD)
    with counted() as seen:
        for _ in range(4):
            step(monitor, optimizer, GOOD)
    assert monitor.inspector.cadences.share() is not None
    calls = [call for call in of_lastgood(seen) if not call.startswith("aten")]
    assert calls == ["__bool__ in lastgood/monitor.py:_obey_the_device"] * reads
    monitor.close()
    assert findings(monitor, tmp_path) == []


def test_a_step_in_which_bits_are_compared_is_read_at_once(model: nn.Module, tmp_path: Path) -> None:
    optimizer = MAKES["fused AdamW"](model.parameters())
    monitor = watch(model, optimizer, tmp_path, at_rest_every=2)
    step(monitor, optimizer, GOOD)
    step(monitor, optimizer, NAN)
    assert findings(monitor, tmp_path) == [("finite", 2, True)]
    monitor.close()


def test_lbfgs_is_read_at_once(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.LBFGS(model.parameters())
    assert_lbfgs_stops(watch(model, optimizer, tmp_path), optimizer)


@pytest.mark.parametrize("value", [1.0, 1e-25, 1e25, math.inf, math.nan])
def test_what_is_sent_says_the_same_as_what_is_read(value: float) -> None:
    model = nn.Linear(3, 2)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)
    watch, loss = LocalWatch(model, 0), torch.tensor(value)
    sent, read = watch.send(loss, 7).view(), watch.view(loss, 7)
    assert (sent.own, sent.total, sent.reduced_norm) == (read.own, read.total, read.reduced_norm)
    assert sent.local_norm == pytest.approx(read.local_norm, nan_ok=True)


def test_a_model_without_gradients_has_only_a_loss() -> None:
    model = nn.Linear(3, 2)
    assert LocalWatch(model, 0).send(None, 1).view().own == LocalWatch(model, 0).view(None, 1).own


def test_a_loop_without_a_loss_fn_is_judged_late(model: nn.Module, tmp_path: Path) -> None:
    optimizer = MAKES["fused AdamW"](model.parameters())
    monitor = watch(model, optimizer, tmp_path, loss_fn=None)
    for batch in (GOOD, NAN, GOOD):
        loss_fn(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.close()
    assert findings(monitor, tmp_path) == [("finite", 2, True)]
