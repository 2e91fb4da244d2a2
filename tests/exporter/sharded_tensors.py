"""Tensor parallel models, alone and under FSDP2; several parameter groups in a module; compiled sharded models."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from sharded_rest import with_wrong_gather
from sharded_ways import BF16, SHARDED, TWO, Deep, accumulated, line, sharded
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from training_job import CASES, batch_of
from ways_compiled import seen_from_outside
from ways_job import FAULTS, Job, way

PLAN = {"first": ColwiseParallel(), "middle": RowwiseParallel()}


def alike(job: Job, step: int) -> None:
    """All ranks of a tensor parallel model have the same batch, and the same dropout."""
    torch.manual_seed(step * 7)
    job.loss(batch_of(step, rank=0)).backward()
    job.update()


def tensor_parallel(mesh: DeviceMesh) -> Job:
    torch.manual_seed(0)
    model = Deep()
    parallelize_module(model, mesh, dict(PLAN))
    return Job(model, [torch.optim.AdamW(model.parameters(), lr=1e-2)])


def both() -> Job:
    """Two ranks share each layer, two each share the batches."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    model = Deep()
    parallelize_module(model, mesh["tensor"], dict(PLAN))
    for module in (model.first, model.middle, model):
        fully_shard(module, mesh=mesh["data"])
    return Job(model, [torch.optim.AdamW(model.parameters(), lr=1e-2)])


def by_group(job: Job, step: int) -> None:
    """The two ranks of a layer have the same batch, which differs between the others; all have the same dropout."""
    torch.manual_seed(step * 7)
    job.loss(batch_of(step, rank=dist.get_rank() // 2)).backward()
    job.update()


def several_groups() -> Job:
    """A module whose parameters are sharded over different meshes: torch refuses to have its communication wrapped."""
    plane = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))
    weights = FSDPMeshInfo(mesh=line(), shard_mesh_dim=0)
    biases = HSDPMeshInfo(mesh=plane, shard_mesh_dim=1, replicate_mesh_dim=0)

    def place(parameter: nn.Parameter) -> Any:
        return ShardPlacementResult(placement=Shard(0), mesh_info=biases if parameter.dim() == 1 else weights)

    model = Deep()
    fully_shard(model, mesh=weights.mesh, shard_placement_fn=place)
    return Job(model, [torch.optim.AdamW(model.parameters(), lr=1e-2)])


def compiled_inside() -> Job:
    model, mesh = Deep(), line()
    for module in (model.first, model.middle):
        module.compile(backend="aot_eager")
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return seen_from_outside(Job(model, [torch.optim.AdamW(model.parameters(), lr=1e-2)]))


def compiled_around() -> Job:
    job = sharded()
    job.model.compile(backend="aot_eager")
    return seen_from_outside(job)


UNREDUCED = ("finite", "at_rest", "replica", "state")
"""What is in reach where no reduce is seen and no batch can be replayed alone, but some parameters have replicas."""


OF_A_BIAS = {name: replace(FAULTS[name], seed=12) for name in ("replica", "state")}
"""The seed chooses the bias in the middle, which has replicas in all of these models, and its state."""


way("tensor_parallel_alone", build=lambda: tensor_parallel(line()), turn=alike, faults=UNREDUCED, own=OF_A_BIAS)
way(
    "tensor_parallel_and_fsdp",
    build=both,
    turn=by_group,
    faults=("conservation", "one_result", *UNREDUCED),
    own=OF_A_BIAS,
)
way("several_groups_in_one_module", build=several_groups, faults=UNREDUCED, own=OF_A_BIAS)
way("compiled_inside_fsdp", build=compiled_inside, faults=SHARDED, layer=lambda job: job.extra["outside"])
way("compiled_around_fsdp", build=compiled_around, faults=SHARDED, layer=lambda job: job.extra["outside"])


COPIES: dict[str, dict[str, Any]] = {
    "compiled_inside_fsdp": {"build": compiled_inside},
    "compiled_around_fsdp": {"build": compiled_around},
    "fsdp_kept_gathered": {"build": lambda: sharded(reshard_after_forward=False)},
    "fsdp_accumulated": {"build": sharded, "turn": accumulated, **TWO},
    "fsdp_bf16": {"build": lambda: sharded(mp_policy=BF16)},
    "fsdp_offloaded": {"build": lambda: sharded(offload_policy=CPUOffloadPolicy(pin_memory=False))},
}
"""Ways in which a rank gets a wrong copy of gathered weights as well."""
CASES |= {
    f"one_copy_is_wrong_{name}": partial(with_wrong_gather, ranks=(1,), **parts) for name, parts in COPIES.items()
}
