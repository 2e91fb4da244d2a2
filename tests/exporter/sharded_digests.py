"""Digest tensors that four ranks spread in every way, and refuse jobs whose ranks hold different models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sharded_ways import line, sharded
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from training_job import case, watch

import lastgood
from lastgood.comm import World
from lastgood.fingerprint import digest_tensors
from lastgood.sharded import digest_whole, pieces


def spread() -> list[tuple[str, Tensor, Tensor]]:
    """Name, whole tensor, and the same tensor as this rank holds it: every placement on meshes of one and two sides."""
    one = line()
    two = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    out: list[tuple[str, Tensor, Tensor]] = []
    for shape in ((7, 5), (3,), (4, 6, 5), (9, 2), ()):
        whole = torch.randn(shape)
        placed: list[tuple[Any, list[Any]]] = [(one, [Replicate()])]
        for side in map(Shard, range(len(shape))):
            placed += [(one, [side]), (two, [Replicate(), side]), (two, [side, Replicate()])]
            placed += [(two["tensor"], [side]), (two["tensor"], [Replicate()])]
            placed += [(two, [side, other]) for other in map(Shard, range(len(shape)))]
        held = [whole, *(distribute_tensor(whole, mesh, places) for mesh, places in placed)]
        out += [(f"{'x'.join(map(str, shape))}.{number}", whole, tensor) for number, tensor in enumerate(held)]
    return out


@case
def every_way_to_spread_a_tensor(root: Path) -> Any:
    tensors = spread()
    world = World()
    expected = digest_tensors([(name, whole) for name, whole, _ in tensors], lanes=2).by_name()
    digests = digest_whole(world, [(name, held) for name, _, held in tensors]).by_name()
    return {"count": len(tensors), "wrong": [name for name in expected if digests[name] != expected[name]]}


@case
def pieces_are_where_they_say(root: Path) -> Any:
    """Every piece equals that part of the whole tensor, read flat."""
    wrong = [
        name
        for name, whole, held in spread()
        for piece, offset in pieces(held)
        if not torch.equal(piece.reshape(-1), whole.reshape(-1)[offset : offset + piece.numel()])
    ]
    partial = DTensor.from_local(torch.ones(3), line(), [Partial()])
    try:
        list(pieces(partial))
    except TypeError as error:
        return {"wrong": wrong, "partial": str(error)}
    return {"wrong": wrong, "partial": ""}


@case
def ranks_with_other_parts_of_a_model(root: Path) -> Any:
    """As in a pipeline: two stages, each sharded over its own ranks."""
    stage = dist.get_rank() // 2
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stage", "shard"))["shard"]
    job = sharded(lambda: mesh) if stage else None
    model = job.model if job else torch.nn.Linear(4, 4)
    if not stage:
        fully_shard(model, mesh=mesh)
    try:
        watch(model, torch.optim.SGD(model.parameters(), 0.1), root)
    except lastgood.ConfigError as error:
        return str(error)
    return ""
