"""Read tensors of which every rank holds a part: what lies here, where it stands in the whole, and who counts it.

A tensor of a sharded model is a ``DTensor``: a part of it lies on this rank, placed by a mesh of ranks. Fingerprints
add up over pieces, so each rank digests what it holds with the pieces' places in the whole tensor, one sum over the
ranks gives the fingerprint of the whole, and that is the same whatever the number of ranks: a record that was made
on eight ranks verifies on four, or on one.

A plain tensor is what every rank holds alike. A part that several ranks hold is counted once, by the first of them.

Not covered: tensors that are partial sums, and meshes of which several lie beside each other without a common parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lastgood.comm import World
from lastgood.fingerprint import TensorDigests, canonical_name, fingerprint

Named = tuple[str, Tensor]


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether the tensor is one of which this rank holds a part."""
    return _mesh_of(tensor) is not None


def local(tensor: Tensor) -> Tensor:
    """Return what this rank holds of the tensor, detached: the tensor itself when it is a plain one."""
    held: Any = tensor.detach()
    here: Tensor = held if _mesh_of(tensor) is None else held._local_tensor
    return here


def locally(items: Iterable[Named]) -> Iterator[Named]:
    """Yield names and what this rank holds of each tensor."""
    return ((name, local(tensor)) for name, tensor in items)


def pieces(tensor: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield the parts of the tensor on this rank that are contiguous in the whole, with their flat offsets in it.

    A plain tensor is one piece at offset 0; a shard along the first dimension too, at its own offset; one along
    another dimension is a piece per row. Nothing on a rank that holds nothing. Raises TypeError for partial sums.
    """
    held = local(tensor)
    if not is_sharded(tensor):
        yield held, 0
        return
    if not held.numel():
        return
    start, whole = _place(tensor), tensor.shape
    if tuple(held.shape) == tuple(whole):
        yield held, 0
        return
    cut = max(d for d in range(held.dim()) if held.shape[d] != whole[d])  # the last dimension that is not whole
    strides = [prod(whole[d + 1 :]) for d in range(held.dim())]
    base = sum(s * stride for s, stride in zip(start, strides, strict=True))
    rows = held.reshape(-1, *held.shape[cut:])
    for row, index in enumerate(_indices(held.shape[:cut])):
        yield rows[row], base + sum(i * stride for i, stride in zip(index, strides, strict=False))


def counts(tensor: Tensor) -> bool:
    """Tell whether this rank is the one that counts what it holds: the first of those that hold the same."""
    mesh = _mesh_of(tensor)
    if mesh is None:
        return not _is_distributed() or dist.get_rank() == 0
    here = mesh.get_coordinate()
    if here is None:
        return False
    alike = [i for i, placement in enumerate(_placements(tensor)) if placement.is_replicate()]
    return all(here[i] == 0 for i in alike) and _is_first_of_the_others(mesh)


def digest_whole(world: World, items: Iterable[Named], *, lanes: int = 2) -> TensorDigests:
    """Fingerprint whole tensors of which every rank gives its part. Collective; the same on every rank.

    Equal to ``digest_tensors`` of the whole tensors. All ranks must pass the same names in the same order. Raises
    ValueError when two names are one canonical name.
    """
    names: list[str] = []
    rows: list[Tensor] = []
    for name, tensor in items:
        names.append(canonical_name(name))
        rows.append(_digest(tensor, names[-1], lanes))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two tensors are named {twice!r}: names must be unique, give one a prefix")
    values = torch.stack(rows) if rows else torch.zeros((0, lanes), dtype=torch.int64)
    if world.size > 1:
        dist.all_reduce(values, group=world.control)
    return TensorDigests(tuple(names), values, {name: i for i, name in enumerate(names)})


def holding(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """Return how a tensor is spread, and which part of it this rank holds: ranks with the same answer hold the same.

    The first is the same on every rank. A plain tensor is spread over nobody.
    """
    mesh = _mesh_of(tensor)
    if mesh is None:
        return "whole", ()
    here = mesh.get_coordinate() or ()
    placements = _placements(tensor)
    if all(p.is_replicate() for p in placements):
        return "whole", ()
    shards = tuple(here[i] for i, p in enumerate(placements) if not p.is_replicate() and here)
    return f"{tuple(mesh.shape)} {placements}", shards


def _digest(tensor: Tensor, name: str, lanes: int) -> Tensor:
    """Return this rank's share of a whole tensor's fingerprint, int64 [lanes] on the CPU."""
    total = torch.zeros(lanes, dtype=torch.int64)
    if not counts(tensor):
        return total
    found = [
        torch.stack([fingerprint(piece, name, lane=lane, offset=offset) for lane in range(lanes)])
        for piece, offset in pieces(tensor)
    ]
    return torch.stack(found).sum(0).cpu() if found else total


def _place(tensor: Tensor) -> tuple[int, ...]:
    """Return where this rank's part begins in the whole, by dimension."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    placements = _placements(tensor)
    if any(p.is_partial() for p in placements):
        raise TypeError(f"a tensor of placement {placements} is a partial sum: it has no bytes of its own")
    shape, start = compute_local_shape_and_global_offset(tensor.shape, _mesh_of(tensor), placements)
    if tuple(shape) != tuple(local(tensor).shape):
        raise TypeError(f"a part of placement {placements} has the shape {tuple(local(tensor).shape)}, not {shape}")
    return tuple(start)


def _indices(shape: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield every index into a shape, the last dimension fastest; one empty index for no dimensions."""
    return product(*(range(n) for n in shape))


def _is_first_of_the_others(mesh: Any) -> bool:
    """Tell whether this mesh is the first of those that lie beside it in a larger one (data parallel beside it)."""
    whole = mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh
    here, names = whole.get_coordinate(), mesh.mesh_dim_names
    if whole is mesh or not whole.mesh_dim_names or not names or here is None:
        return True
    inside = {part for name in names for part in _parts_of(whole, name)}
    return all(at == 0 for at, name in zip(here, whole.mesh_dim_names, strict=True) if name not in inside)


def _parts_of(whole: Any, name: str) -> tuple[str, ...]:
    """Return the dimensions that a name stands for; a flattened one stands for several."""
    if name in whole.mesh_dim_names:
        return (name,)
    return tuple(part for part in whole.mesh_dim_names if part in name.split("_"))


def _mesh_of(tensor: Tensor) -> Any:
    return getattr(tensor, "device_mesh", None)


def _placements(tensor: Tensor) -> tuple[Any, ...]:
    sharded: Any = tensor
    return tuple(sharded.placements)


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
