"""Say which models can be watched: what is checked of a job before anything is attached to it. Raises ConfigError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from torch import nn
from torch.optim import Optimizer

from lastgood.comm import World
from lastgood.errors import ConfigError
from lastgood.fingerprint import key_of
from lastgood.fsdp_groups import groups_of, named_parameters, parameters
from lastgood.injection_points import NoInjection
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


def require_arguments(model: Any, optimizer: Any, loss_fn: Any, scaler: Any, lossless_hook: Any, **others: Any) -> None:
    """Refuse arguments of ``watch`` that are no such thing, before they fail somewhere inside. ``others``: the rest."""
    injector, registry = others["injector"], others["registry"]
    _require(isinstance(model, nn.Module), "model", model, "the wrapped torch.nn.Module that the loop calls")
    listed = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
    ok = isinstance(listed, list | tuple) and all(isinstance(one, Optimizer) for one in listed)
    _require(ok, "optimizer", optimizer, "a torch.optim.Optimizer, or a list of them")
    _require(len({*map(id, listed)}) == len(listed), "optimizer", optimizer, "each optimizer once")
    ok = loss_fn is None or callable(loss_fn)
    _require(ok, "loss_fn", loss_fn, "a function of (model, batch) that returns the loss, or None, without replay")
    ok = scaler is None or _has(scaler, "is_enabled", "step")
    _require(ok, "scaler", scaler, "the GradScaler of the loop (torch.amp.GradScaler), or None where there is none")
    _require(isinstance(lossless_hook, bool), "lossless_hook", lossless_hook, "True or False")
    points = [name for name in vars(NoInjection) if not name.startswith("_")]
    ok = injector is None or _has(injector, *points)
    _require(ok, "injector", injector, "a lastgood.faults.Injector, or None: no job that counts needs one")
    ok = registry is None or isinstance(registry, CollectorRegistry)
    _require(ok, "registry", registry, "a prometheus_client.CollectorRegistry, or None for one of its own")


def _has(value: Any, *methods: str) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


def _require(ok: bool, name: str, value: object, rule: str) -> None:
    if not ok:
        shown = " ".join(repr(value).split())
        raise ConfigError(f"{name}={shown if len(shown) <= 80 else shown[:79] + '…'}: expected {rule}")


def require_wrapper(model: nn.Module, world: World, optimizers: Sequence[Optimizer]) -> None:
    """Refuse a job of several ranks whose model nothing averages, and one without an optimizer."""
    if world.size > 1 and ddp_of(model) is None and not is_sharded_model(innermost(model)):
        raise ConfigError(
            f"model is a {type(model).__name__} in a job of {world.size} ranks: wrap it in DistributedDataParallel, "
            "or shard it with fully_shard, before lastgood.watch"
        )
    if not optimizers:
        raise ConfigError("optimizer is empty: pass the optimizer, or a list of them")
