"""Replicas of healthy devices that come apart, and a step that is skipped inside its closure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training_job import armed, batch_of, build, case, events, failure, train, watch, weights
from ways_numbers import Frozen

from lastgood.faults import Fault


class Clipped(nn.Module):
    """An embedding that rescales the rows it looks up where they are too long: one row is, and rank 1 looks it up."""

    def __init__(self, max_norm: float | None) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 16, max_norm=max_norm)
        self.last = nn.Linear(16, 4)
        with torch.no_grad():
            self.table.weight.mul_(0.01)
            self.table.weight[3].fill_(1)
        self.of_rank_1 = {batch_of(step, rank=1)[0, 0].item() for step in range(1, 6)}

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.full((len(x),), 3 if x[0, 0].item() in self.of_rank_1 else 0)
        out: Tensor = self.last(self.table(rows) + x)
        return out


@case
def rewritten_by_the_forward(root: Path) -> Any:
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Clipped(max_norm=1.0))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    monitor = watch(ddp, optimizer, root)
    text = failure(lambda: train(ddp, optimizer, monitor, 5))
    monitor.close()
    found = [(e["check"], e["ranks"], e["tensor"]) for e in events(root, "finding")]
    verdicts = [(e["status"], e["suspects"], e["for"]) for e in events(root, "verdict")]
    return {"text": text, "findings": found, "verdicts": verdicts}


@case
def clipped_alike_after_the_step(root: Path) -> Any:
    """What docs/training.md advises instead."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Clipped(max_norm=None))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    monitor = watch(ddp, optimizer, root)
    for step in range(1, 6):
        train(ddp, optimizer, monitor, 1, first=step)
        with torch.no_grad():
            weight = ddp.module.table.weight
            weight.copy_(torch.renorm(weight, 2, 0, 1.0))
    monitor.close()
    return {"findings": len(events(root, "finding")), "longest": weight.norm(dim=1).max().item()}


def come_apart(root: Path, ranks: set[int]) -> Any:
    """Thaw a layer after wrapping, on some ranks: from then on each of them trains it alone."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Frozen())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    monitor = watch(ddp, optimizer, root)

    def loop() -> None:
        for step in range(1, 6):
            if step == 3 and dist.get_rank() in ranks:
                ddp.module.middle.requires_grad_(True)
            monitor.loss(batch_of(step)).backward()
            optimizer.step()
            optimizer.zero_grad()

    text = failure(loop)
    monitor.close()
    found = [(e["check"], e["ranks"], e["tensor"]) for e in events(root, "finding")]
    return {
        "text": text,
        "findings": found,
        "verdicts": [(e["status"], e["suspects"]) for e in events(root, "verdict")],
    }


@case
def trained_alone_on_every_rank(root: Path) -> Any:
    return come_apart(root, {0, 1, 2})


@case
def trained_alone_on_one_rank(root: Path) -> Any:
    return come_apart(root, {1})


@case
def skipped_inside_a_closure(root: Path) -> Any:
    ddp, optimizer = build()
    fault = Fault(site="gradient", kind="nan", rank=1, step=2)
    monitor = watch(ddp, optimizer, root, policy="skip", injector=armed(fault, ddp.module.first))
    unchanged = []
    for step in range(1, 4):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = monitor.loss(batch_of(step))
            loss.backward()
            return loss

        before = weights(ddp)
        optimizer.step(closure)
        unchanged.append(weights(ddp) == before)
    monitor.close()
    contained = sorted({e["contained"] for e in events(root, "finding") if e["check"] == "finite"})
    return {"unchanged": unchanged, "contained": contained, "step": monitor.step}
