"""Train jobs that do not repeat themselves on the ranks of one gloo job; started by test_spread_training.py."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training_job import armed, batch_of, build, case, events, failure, loss_fn, run_cases, state, train, watch

from lastgood.faults import Fault
from lastgood.fold import derive
from lastgood.journal_read import JournalTail

STEPS, EVERY = 240, 20
Loss = Callable[[nn.Module, Any], Tensor]


def chance() -> torch.Generator:
    return torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))


def unordered(model: nn.Module, batch: Tensor) -> Tensor:
    """Compute the loss of the rows in an order that no seed repeats: the sums over rows are rounded otherwise."""
    return loss_fn(model, batch[torch.randperm(len(batch), generator=chance())])


def replays_unordered(model: nn.Module, batch: Tensor) -> Tensor:
    """Train in order, so that the training repeats itself, and let only replays do otherwise."""
    return (loss_fn if isinstance(model, DistributedDataParallel) else unordered)(model, batch)


def noisy(size: Callable[[], float]) -> Loss:
    def noisy_loss(model: nn.Module, batch: Tensor) -> Tensor:
        return loss_fn(model, batch) * (1 + size() * torch.rand((), generator=chance()))

    return noisy_loss


def plain() -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    ddp, optimizer = build()
    ddp.module.drop.p = 0.0  # a mask belongs to a row, and the rows change places
    return ddp, optimizer


def trained(root: Path, loss: Loss, fault: Fault | None = None, steps: int = STEPS, save: int = 0) -> dict[str, Any]:
    ddp, optimizer = plain()
    injector = {"injector": armed(fault, ddp.module.first)} if fault else {}
    monitor = watch(ddp, optimizer, root, loss_fn=loss, replay_every=EVERY, replica_every=EVERY, **injector)
    path = root / "run" / "saved"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = failure(lambda: train(ddp, optimizer, monitor, save or steps))
        if save:
            with monitor.checkpoint(path):
                if dist.get_rank() == 0:
                    torch.save({"model": ddp.module.state_dict()}, path)
            text += failure(lambda: train(ddp, optimizer, monitor, steps - save, first=save + 1))
        monitor.close()
    calibrated = monitor.inspector.replay.calibrated
    return {
        "text": text,
        "step": monitor.step,
        "said": [str(w.message) for w in caught if "not deterministic" in str(w.message)],
        "spreads": calibrated.replayer.spreads if calibrated else None,
        "floor": calibrated.replayer.floor if calibrated else None,
        "passed": monitor.inspector.judge.passed.get("replay"),
        "cadence": monitor.inspector.cadence()["replay"],
        "state": state(ddp, optimizer),
        "rounds": [(e["step"], e["result"], e["reason"]) for e in events(root, "check") if e["check"] == "replay"],
        "told": events(root, "cadence"),
        "findings": events(root, "finding"),
        "verdicts": events(root, "verdict"),
        **derived(root),
    }


def derived(root: Path) -> dict[str, Any]:
    """What a reader of the journal makes of it."""
    found = derive("run", JournalTail(root / "run").poll()[0])
    replay = {status.check: status for status in found.checks}["replay"]
    return {
        "status": [replay.running, replay.reason, replay.last_pass_step, replay.due_step],
        "trust": [(c.step, c.trust, c.checks.get("replay")) for c in found.checkpoints],
        "windows": [(f.window.start, f.window.end) for f in found.findings if f.window],
    }


@case
def clean(root: Path) -> Any:
    return trained(root, unordered, save=100)


@case
def broken_later(root: Path) -> Any:
    return trained(root, unordered, Fault("gradient", "scale", 1, 50, permanent=True), steps=120, save=30)


@case
def broken_from_the_start(root: Path) -> Any:
    return trained(root, unordered, Fault("gradient", "scale", 2, 1, permanent=True), steps=10)


@case
def broken_once_in_an_audited_step(root: Path) -> Any:
    return trained(root, unordered, Fault("gradient", "scale", 0, 2 * EVERY), steps=3 * EVERY)


@case
def broken_once_in_another_step(root: Path) -> Any:
    return trained(root, unordered, Fault("gradient", "scale", 0, 2 * EVERY + 1), steps=3 * EVERY)


@case
def deterministic(root: Path) -> Any:
    return trained(root, loss_fn, steps=3 * EVERY)


@case
def replays_differ_and_the_training_does_not(root: Path) -> Any:
    watched = trained(root, replays_unordered, steps=2 * EVERY)
    ddp, optimizer = plain()
    train(ddp, optimizer, None, 2 * EVERY)
    return watched | {"equal": watched["state"] == state(ddp, optimizer)}


@case
def too_much_to_compare(root: Path) -> Any:
    return trained(root, noisy(lambda: 1.0), steps=2 * EVERY)


@case
def batches_that_spread_more_later(root: Path) -> Any:
    runs = iter(range(10**9))
    return trained(root, noisy(lambda: 1e-6 if next(runs) < 20 else 1e-3), steps=3 * EVERY)


@case
def other_kernels_on_every_node(root: Path) -> Any:
    def shifted(model: nn.Module, batch: Tensor) -> Tensor:
        return loss_fn(model, batch) * (1 + 1e-4 * dist.get_rank())

    return trained(root, shifted, steps=3 * EVERY)


@case
def a_rank_that_cannot_repeat(root: Path) -> Any:
    replays = iter(range(10**9))

    def failing(model: nn.Module, batch: Tensor) -> Tensor:
        alone = not isinstance(model, DistributedDataParallel)
        if alone and dist.get_rank() == 1 and next(replays) > 8:
            raise torch.OutOfMemoryError("no memory left")
        return unordered(model, batch)

    return trained(root, failing, steps=2 * EVERY)


@case
def autocast_inside_the_loss(root: Path) -> Any:
    def narrow(model: nn.Module, batch: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return unordered(model, batch) * (1 + 1e-6 * torch.rand((), generator=chance()))

    result = trained(root, narrow, steps=STEPS)
    return {"findings": len(result["findings"]), "spreads": result["spreads"], "floor": result["floor"]}


@case
def accumulated_under_autocast(root: Path) -> Any:
    ddp, optimizer = plain()
    monitor = watch(ddp, optimizer, root, loss_fn=noisy(lambda: 1e-3), replay_every=4, accumulation=2)
    for step in range(1, 41):
        for micro in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = monitor.loss(batch_of(step, micro))
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.close()
    calibrated = monitor.inspector.replay.calibrated
    rounds = [e["reason"] for e in events(root, "check") if e["check"] == "replay"]
    return {
        "findings": len(events(root, "finding")),
        "floor": calibrated.replayer.floor if calibrated else 0.0,
        "rounds": rounds,
    }


if __name__ == "__main__":
    run_cases()
