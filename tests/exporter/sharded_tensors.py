"""Tensor parallel models: alone, and under FSDP2; modules with several parameter groups; compiled ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sharded_rest import said
from sharded_ways import Deep, line, sharded
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from training_job import armed, batch_of, case, events, failure, watch
from ways_job import Job, everything, plain

from lastgood.faults import Fault

PLAN = {"first": ColwiseParallel(), "middle": RowwiseParallel()}


def alike(job: Job, step: int) -> None:
    """All ranks of a tensor parallel model have the same batch."""
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
    """The two ranks of a layer have the same batch, which differs between the others."""
    job.loss(batch_of(step, rank=dist.get_rank() // 2)).backward()
    job.update()


def seen(root: Path, build: Any, turn: Any, fault: Fault | None = None) -> dict[str, Any]:
    """Train with and without lastgood, and once with a fault."""
    digests = []
    for watched in (False, True):
        job = build()
        if watched:
            injector = armed(fault) if fault else None
            job.monitor = watch(job.model, job.optimizers[0], root, at_rest_every=3, injector=injector)

        def loop(job: Job = job) -> None:
            for step in range(1, 10):
                torch.manual_seed(step * 7)
                turn(job, step)

        text = failure(loop)
        digests.append(everything(job))
    assert job.monitor
    job.monitor.close()
    checks = sorted({(e["check"], e["phase"], e["result"], e["reason"]) for e in events(root, "check")})
    return said(root) | {
        "equal": digests[0] == digests[1],
        "text": text,
        "not_run": events(root, "run.started")[0]["not_run"],
        "passed": sorted(job.monitor.passed),
        "checks": checks,
    }


@case
def tensor_parallel_alone(root: Path) -> Any:
    return seen(root, lambda: tensor_parallel(line()), alike)


@case
def tensor_parallel_with_a_wrong_replica(root: Path) -> Any:
    """The last layer is whole on every rank; the seed chooses its weight."""
    return seen(root, lambda: tensor_parallel(line()), alike, Fault(site="weight", kind="bit", rank=1, step=2, seed=5))


@case
def tensor_parallel_and_fsdp(root: Path) -> Any:
    return seen(root, both, by_group)


@case
def tensor_parallel_and_fsdp_with_a_wrong_part(root: Path) -> Any:
    return seen(root, both, by_group, Fault(site="reduce-one", kind="scale", rank=1, step=3))


@case
def several_groups_in_one_module(root: Path) -> Any:
    """A module whose parameters are sharded over different meshes: torch refuses to have its communication wrapped."""
    plane = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))
    weights = FSDPMeshInfo(mesh=line(), shard_mesh_dim=0)
    biases = HSDPMeshInfo(mesh=plane, shard_mesh_dim=1, replicate_mesh_dim=0)

    def place(parameter: nn.Parameter) -> Any:
        return ShardPlacementResult(placement=Shard(0), mesh_info=biases if parameter.dim() == 1 else weights)

    def build() -> Job:
        torch.manual_seed(0)
        model = Deep()
        fully_shard(model, mesh=weights.mesh, shard_placement_fn=place)
        return Job(model, [torch.optim.AdamW(model.parameters(), lr=1e-2)])

    return seen(root, build, plain)


@case
def compiled_inside_fsdp(root: Path) -> Any:
    def build() -> Job:
        torch.manual_seed(0)
        model = Deep()
        mesh = line()
        for module in (model.first, model.middle):
            module.compile(backend="aot_eager")
            fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return Job(model, [torch.optim.AdamW(model.parameters(), lr=1e-2)])

    return seen(root, build, plain)


@case
def compiled_around_fsdp(root: Path) -> Any:
    def build() -> Job:
        torch.manual_seed(0)
        job = sharded()
        job.model.compile(backend="aot_eager")
        return job

    return seen(root, build, plain)
