"""FSDP2 on a mesh of one dimension and of two (HSDP), its options, and mixed precision."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from training_job import batch_of
from ways_job import Job, way

SHARDED = ("replay", "conservation", "one_result", "finite", "at_rest")
"""What is in reach where no other rank holds the same weights."""
REPLICATED = (*SHARDED, "replica", "state")
TWO = {"accumulation": 2}


class Deep(nn.Module):
    """Layers whose sizes the ranks do not divide evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.middle = nn.Linear(32, 33)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(33, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        out: Tensor = self.last(self.drop(torch.relu(self.middle(hidden))))
        return out


def line() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def plane() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))


def sharded(mesh: Any = line, layers: tuple[str, ...] = ("first", "middle"), **options: Any) -> Job:
    model, placed = Deep(), mesh()
    for name in layers:
        fully_shard(getattr(model, name), mesh=placed, **options)
    fully_shard(model, mesh=placed, **options)
    return Job(model, [torch.optim.AdamW(model.parameters(), lr=1e-2)])


def accumulated(job: Job, step: int, *, apart: bool = True) -> None:
    """Two micro-batches; only the last one is reduced, or both of them."""
    model: Any = job.model
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1 or not apart)
        (job.loss(batch_of(step, micro)) / 2).backward()
    job.update()


def averaged_late(job: Job, step: int) -> None:
    """Both micro-batches are reduced within the shards, and averaged between the replicas once."""
    model: Any = job.model
    for micro in range(2):
        model.set_requires_all_reduce(micro == 1)
        (job.loss(batch_of(step, micro)) / 2).backward()
    job.update()


def clipped(job: Job, step: int) -> None:
    job.loss(batch_of(step)).backward()
    nn.utils.clip_grad_norm_(job.model.parameters(), 0.1)
    job.update()


BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
ALL_BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
way("fsdp", build=sharded, faults=SHARDED)
way("fsdp_as_one_group", build=lambda: sharded(layers=()), faults=SHARDED)
way("fsdp_kept_gathered", build=lambda: sharded(reshard_after_forward=False), faults=SHARDED)
way("fsdp_accumulated", build=sharded, turn=accumulated, settings=TWO, faults=SHARDED)
way(
    "fsdp_reduced_every_time",
    build=sharded,
    turn=lambda job, step: accumulated(job, step, apart=False),
    settings=TWO,
    faults=SHARDED,
)
way("fsdp_clipped", build=sharded, turn=clipped, faults=SHARDED)
way("fsdp_bf16", build=lambda: sharded(mp_policy=BF16), faults=SHARDED)
way("fsdp_all_bf16", build=lambda: sharded(mp_policy=ALL_BF16), faults=SHARDED)
way("fsdp_offloaded", build=lambda: sharded(offload_policy=CPUOffloadPolicy(pin_memory=False)), faults=SHARDED)
way("hsdp", build=lambda: sharded(plane), faults=REPLICATED)
way("hsdp_averaged_late", build=lambda: sharded(plane), turn=averaged_late, settings=TWO, faults=REPLICATED)
