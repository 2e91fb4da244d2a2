"""Put faults into the forward and the backward of a layer: what a wrong kernel of one device would leave there."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Corrupted = Callable[[Tensor], Tensor]
"""Returns the tensor, or a corrupted copy."""


class Between(torch.autograd.Function):
    """Stand behind a layer: its output passes ``forward``, the gradient that enters its backward ``backward``."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, forward: Corrupted, backward: Corrupted) -> Tensor:
        """Return the output itself as another tensor, or a corrupted copy of it."""
        ctx.corrupted = backward
        passed = forward(output)
        return output.view_as(output) if passed is output else passed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient, corrupted when the fault is due."""
        corrupted: Corrupted = ctx.corrupted
        return corrupted(gradients[0]), None, None


def stand_behind(module: nn.Module, hands: Callable[[], tuple[Corrupted, Corrupted]]) -> RemovableHandle:
    """Pass every output of ``module`` through :class:`Between`; ``hands`` is asked at each forward."""
    return module.register_forward_hook(lambda _module, _inputs, output: _behind(output, *hands()))


def _behind(output: Any, forward: Corrupted, backward: Corrupted) -> Any:
    """Apply :class:`Between` to a layer's output, or to the first tensor of several that has a gradient."""
    if isinstance(output, Tensor):
        return Between.apply(output, forward, backward) if output.requires_grad else output  # type: ignore[no-untyped-call]
    if not isinstance(output, (tuple, list)):
        return output
    items = list(output)
    place = next((i for i, item in enumerate(items) if isinstance(item, Tensor) and item.requires_grad), None)
    if place is not None:
        items[place] = _behind(items[place], forward, backward)
    return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)


def stand_at_a_parameter(module: nn.Module, seed: int, hand: Callable[[str, Tensor], Tensor]) -> RemovableHandle:
    """Pass the gradient of one seeded parameter of ``module``, as autograd made it, through ``hand``.

    Register it before lastgood's own hooks do (before training begins): the device made that gradient wrong, so
    whoever looks at it later sees the wrong one.
    """
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    name, parameter = random.Random(f"parameter {seed}").choice(named)
    handle: RemovableHandle = parameter.register_hook(lambda gradient: hand(name, gradient))  # type: ignore[no-untyped-call]
    return handle
