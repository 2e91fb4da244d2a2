"""Find the parameter groups of a model that ``fully_shard`` has sharded (FSDP2).

A group is what is gathered and reduced together: the parameters of one module that was passed to ``fully_shard`` and of
no other one inside it. Its communication can be wrapped. That part of torch is private; a test pins it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lastgood.fingerprint import canonical_name


@dataclass(frozen=True, slots=True)
class FsdpGroup:
    """One parameter group. ``name``: canonical name of its module, empty for the model itself; ``place``: a number."""

    place: int
    name: str
    module: Any  # FSDPModule
    inner: Any  # FSDPParamGroup
    alone: bool  # the module has no other group: the setters of torch refuse several

    @property
    def shards(self) -> int:
        """Return over how many ranks its parameters are spread."""
        return int(getattr(self.inner.mesh_info, "shard_mesh_size", 1))

    @property
    def replicas(self) -> int:
        """Return how many ranks hold the same shard."""
        return int(getattr(self.inner.mesh_info, "replicate_mesh_size", 1))

    @property
    def replicate_group(self) -> dist.ProcessGroup | None:
        """Return the ranks that hold the same shard, None when there is one."""
        found: dist.ProcessGroup | None = getattr(self.inner.mesh_info, "replicate_process_group", None)
        return found if self.replicas > 1 else None


def groups_of(model: nn.Module) -> tuple[FsdpGroup, ...]:
    """Return the groups of a model in the order of its modules; none when nothing in it is sharded by FSDP2."""
    return tuple(FsdpGroup(place, *found) for place, found in enumerate(_groups(model)))


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield what ``module.named_parameters()`` does, but this rank's shard of what FSDP2 keeps gathered at the moment.

    A forward without gradients leaves the root gathered, and every module with ``reshard_after_forward=False``; so does
    ``unshard()``. The shards are what the optimizer writes and what a checkpoint holds; the copy is another object.
    """
    shards = {id(held): shard for held, shard in _swapped(module)}
    for name, parameter in module.named_parameters():
        yield name, shards.get(id(parameter), parameter)


def parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the same without the names."""
    return (parameter for _, parameter in named_parameters(module))


def computes_on(model: nn.Module, otherwise: torch.device) -> torch.device:
    """Return the device that runs a model: that of its groups, which may keep their weights elsewhere (offloading)."""
    return next((group.inner.device for group in groups_of(model)), otherwise)


def _groups(model: nn.Module) -> Iterator[tuple[str, Any, Any, bool]]:
    seen: set[int] = set()
    for name, module in model.named_modules():
        get_state: Callable[[], Any] | None = getattr(module, "_get_fsdp_state", None)
        if get_state is None:
            continue
        state = get_state()
        if id(state) in seen:  # one group of several modules
            continue
        seen.add(id(state))
        groups = state._fsdp_param_groups
        yield from ((_canonical(name), module, group, len(groups) == 1) for group in groups)


def _swapped(module: nn.Module) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
    """Yield each parameter that may stand in the place of a shard, and the shard."""
    for _, _, group, _ in _groups(module):
        for parameter in group.fsdp_params:
            for name in ("_unsharded_param", "_sharded_post_forward_param"):
                held = getattr(parameter, name, None)
                if held is not None:
                    yield held, parameter.sharded_param


def _canonical(name: str) -> str:
    return canonical_name(name) if name else ""
