"""See through what stands around a model: ``DistributedDataParallel``, ``torch.compile``, and what was compiled inside.

Compiled code matters to a replay: the same batch may run through a kernel made for its shape or through one made for
any shape, and healthy devices then come to other bits. What torch has compiled in this process is read from its
private counters; where they have changed, only what the modules say is known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer


def layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model, then what is inside each of its wrappers, the innermost module last."""
    while True:
        yield model
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, DistributedDataParallel):
            inner = model.module
        if inner is None:
            return
        model = inner


def innermost(model: nn.Module) -> nn.Module:
    """Return the module inside all wrappers."""
    return [*layers(model)][-1]


def ddp_of(model: nn.Module) -> DistributedDataParallel | None:
    """Return the ``DistributedDataParallel`` around a module, also inside ``torch.compile``; None without one."""
    return next((layer for layer in layers(model) if isinstance(layer, DistributedDataParallel)), None)


def plain_optimizer(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer of torch inside one that wraps it (Accelerate's), whose step runs the hooks."""
    inner = getattr(optimizer, "optimizer", None)
    return plain_optimizer(inner) if isinstance(inner, Optimizer) else optimizer


def inside_ddp(model: nn.Module) -> nn.Module:
    """Return what the wrapper calls, compiled or not; the model itself without a wrapper."""
    ddp = ddp_of(model)
    return model if ddp is None else ddp.module


def is_compiled_around(model: nn.Module) -> bool:
    """Tell whether ``DistributedDataParallel`` itself is compiled: its code cannot run without the other ranks."""
    ddp = ddp_of(model)
    return ddp is not None and (ddp is not model or ddp._compiled_call_impl is not None)


def is_compiled(model: nn.Module, loss_fn: Any = None) -> bool:
    """Tell whether the model, a part of it, ``loss_fn`` or anything else in this process is compiled."""
    parts = any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())
    return parts or hasattr(loss_fn, "_torchdynamo_orig_callable") or bool(_compilations())


def is_compiled_again() -> bool:
    """Tell whether any code was compiled more than once: for another shape, or for any shape."""
    return any(times > 1 for times in _compilations())


def _compilations() -> list[int]:
    """Return how often each piece of code was compiled in this process."""
    convert = sys.modules.get("torch._dynamo.convert_frame")
    return [*getattr(convert, "FRAME_COMPILE_COUNTER", {}).values()]
