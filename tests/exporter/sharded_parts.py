"""FSDP2 with other optimizers, a loss scaler, and parameters that are frozen, tied or made again in the backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from sharded_ways import SHARDED, Deep, line
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from training_job import batch_of
from ways_job import Job, way

ADAMW = torch.optim.AdamW


class Tied(Deep):
    """The head shares its weight with another layer of the same parameter group."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = nn.Linear(33, 5)
        self.twin.weight = self.last.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(torch.relu(self.middle(torch.relu(self.first(x)))))
        out: Tensor = self.last(hidden) * torch.sigmoid(self.twin(hidden))
        return out


class Remade(Deep):
    """The activations in the middle are made again in the backward."""

    def forward(self, x: Tensor) -> Tensor:
        hidden: Any = checkpoint(self.middle, torch.relu(self.first(x)), use_reentrant=False)
        out: Tensor = self.last(self.drop(torch.relu(hidden)))
        return out


def frozen() -> nn.Module:
    model = Deep()
    model.middle.requires_grad_(False)
    return model


def sharded_as(make: Callable[[], nn.Module], optimize: Callable[[Any], Any]) -> Job:
    model, mesh = make(), line()
    for layer in (model.first, model.middle):
        fully_shard(layer, mesh=mesh)  # type: ignore[call-overload]
    fully_shard(model, mesh=mesh)
    made = optimize(model)
    return Job(model, made if isinstance(made, list) else [made])


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return ADAMW((p for p in model.parameters() if p.requires_grad), 1e-2)


def two(model: Any) -> list[torch.optim.Optimizer]:
    body: Iterable[nn.Parameter] = [*model.first.parameters(), *model.middle.parameters()]
    return [ADAMW(body, 1e-2), torch.optim.SGD(model.last.parameters(), 0.1, momentum=0.9)]


def scaled() -> Job:
    job = sharded_as(Deep, adamw)
    job.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    return job


def with_scaler(job: Job, step: int) -> None:
    job.scaler.scale(job.loss(batch_of(step))).backward()
    job.scaler.step(job.optimizers[0])
    job.scaler.update()
    job.optimizers[0].zero_grad()


way(
    "fsdp_fused",
    build=lambda: sharded_as(Deep, lambda model: ADAMW(model.parameters(), 1e-2, fused=True)),
    faults=SHARDED,
)
way("fsdp_two_optimizers", build=lambda: sharded_as(Deep, two), faults=SHARDED)
way("fsdp_frozen", build=lambda: sharded_as(frozen, adamw), faults=SHARDED)
way("fsdp_tied", build=lambda: sharded_as(Tied, adamw), faults=SHARDED)
way("fsdp_remade", build=lambda: sharded_as(Remade, adamw), faults=SHARDED)
way("fsdp_scaler", build=scaled, turn=with_scaler, faults=tuple(fault for fault in SHARDED if fault != "finite"))
