"""Replicas of healthy devices that come apart, and a step that is skipped inside its closure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training_job import armed, batch_of, build, case, events, failure, watch, weights
from ways_numbers import Frozen

from lastgood.faults import Fault


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
