"""Models that ``torch.compile`` compiled: inside the wrapper, around it, in place, in parts, and for other shapes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from training_job import Net, batch_of
from ways_ddp import wrapped
from ways_job import ALL, Job, way


def seen_from_outside(job: Job) -> Job:
    """Put a layer that is not compiled behind the model: the injector cannot stand inside what is compiled."""
    outside = job.extra["outside"] = nn.Identity()
    job.loss_fn = lambda model, batch: outside(model(batch)).square().mean()
    return job


def inside() -> Job:
    return seen_from_outside(wrapped(torch.compile(Net())))


def around() -> Job:
    job = wrapped(Net())
    job.model = torch.compile(job.model)
    return seen_from_outside(job)


def in_place() -> Job:
    net = Net()
    net.compile()
    return seen_from_outside(wrapped(net))


def in_parts() -> Job:
    net: Any = Net()
    net.last = torch.compile(net.last)
    net.norm = torch.compile(nn.Sequential(nn.Linear(32, 32), nn.GELU()))
    return wrapped(net)


def other_shapes(job: Job, step: int) -> None:
    """Every rank and step has a batch of its own length, as sequences have."""
    rows = 3 + (step * 3 + dist.get_rank()) % 5
    job.loss(torch.cat([batch_of(step), batch_of(step + 1)])[:rows]).backward()
    job.update()


OUTSIDE = {"layer": lambda job: job.extra["outside"]}
PERMANENT = (*ALL, "replay_of_a_permanent_fault")
way("compiled_inside", build=inside, faults=PERMANENT, **OUTSIDE)
way("compiled_around", build=around, faults=PERMANENT, **OUTSIDE)
way("compiled_in_place", build=in_place, faults=PERMANENT, **OUTSIDE)
way("compiled_in_parts", build=in_parts, faults=PERMANENT)
way("compiled_for_other_shapes", build=in_parts, turn=other_shapes, faults=PERMANENT)
