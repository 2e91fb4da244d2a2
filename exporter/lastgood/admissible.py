"""Say which models can be watched: what is checked of a job before anything is attached to it. Raises ConfigError."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from lastgood.comm import World
from lastgood.errors import ConfigError
from lastgood.fingerprint import key_of
from lastgood.fsdp_groups import groups_of, named_parameters, parameters
from lastgood.sharded import is_sharded
from lastgood.wrappers import ddp_of, innermost


def is_sharded_model(module: nn.Module) -> bool:
    """Tell whether any part of a model is spread over the ranks, by ``fully_shard`` or as tensors."""
    return bool(groups_of(module)) or any(is_sharded(parameter) for parameter in parameters(module))


def require_alike(world: World, module: nn.Module) -> None:
    """Refuse a job whose ranks hold different parts of a model (pipeline parallel): they could not be compared."""
    if not is_sharded_model(module):
        return
    parts = [(n, tuple(p.shape)) for n, p in named_parameters(module)]
    groups = [(group.name, group.shards, group.replicas) for group in groups_of(module)]
    if not world.equal(key_of(f"{parts} {groups}")):
        raise ConfigError("the ranks hold different parts of a model (pipeline parallel): lastgood cannot watch it yet")


def require_wrapper(model: nn.Module, world: World, optimizers: Sequence[Optimizer]) -> None:
    """Refuse a job of several ranks whose model nothing averages, and one without an optimizer."""
    if world.size > 1 and ddp_of(model) is None and not is_sharded_model(innermost(model)):
        raise ConfigError(
            f"model is a {type(model).__name__} in a job of {world.size} ranks: wrap it in DistributedDataParallel, "
            "or shard it with fully_shard, before lastgood.watch"
        )
    if not optimizers:
        raise ConfigError("optimizer is empty: pass the optimizer, or a list of them")
