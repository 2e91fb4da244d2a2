"""Models that ``torch.compile`` compiled: inside the wrapper, around it, in place, in parts, and for other shapes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from training_job import Net, batch_of
from ways_ddp import wrapped
from ways_job import Job, way


def inside() -> Job:
    return wrapped(torch.compile(Net()))


def around() -> Job:
    job = wrapped(Net())
    job.model = torch.compile(job.model)
    return job


def in_place() -> Job:
    net = Net()
    net.compile()
    return wrapped(net)


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


way("compiled_inside", build=inside, faults=("conservation",))
way("compiled_around", build=around, faults=("replica",))
way("compiled_in_place", build=in_place, faults=())
way("compiled_in_parts", build=in_parts, faults=("replay_of_a_permanent_fault",))
way("compiled_for_other_shapes", build=in_parts, turn=other_shapes, faults=("replay_of_a_permanent_fault", "finite"))
