"""Replicas of healthy devices that come apart, because a parameter is trained and never averaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training_job import batch_of, case, events, failure, watch
from ways_numbers import Frozen


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
