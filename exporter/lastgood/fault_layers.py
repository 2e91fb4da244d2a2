"""Put faults into the forward and the backward of a layer: what a wrong kernel of one device would leave there."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Corrupted = Callable[[Tensor], Tensor]
"""Returns the tensor, or a corrupted copy."""


class Removable(Protocol):
    """What stands in a model until it is removed."""

    def remove(self) -> None:
        """Take it out of the model."""


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


class AtParameter:
    """Pass the gradient of one seeded parameter of ``module``, as autograd made it, through ``hand``.

    Make it before lastgood's own hooks are there (before training begins): the device made that gradient wrong, so
    whoever looks at it later sees the wrong one. ``fully_shard`` trains with another parameter than the one that
    stands in the module now: the gathered one, which is there from the first forward on, has the gradient.
    """

    def __init__(self, module: nn.Module, seed: int, hand: Callable[[str, Tensor], Tensor]) -> None:
        named = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        self.name = random.Random(f"parameter {seed}").choice(named)
        self.hand = hand
        path, _, self._last = self.name.rpartition(".")
        owner = module.get_submodule(path)
        self._stand_at(getattr(owner, self._last))
        self._at_forward = owner.register_forward_pre_hook(self._look_again)  # behind the gather, which comes first

    def remove(self) -> None:
        """Let every gradient pass as it is."""
        self._at_forward.remove()
        self._handle.remove()

    def _look_again(self, owner: nn.Module, _inputs: Any) -> None:
        parameter = getattr(owner, self._last)
        if parameter is not self._parameter and parameter.requires_grad:
            self._handle.remove()
            self._stand_at(parameter)

    def _stand_at(self, parameter: Tensor) -> None:
        self._parameter = parameter
        self._handle: RemovableHandle = parameter.register_hook(partial(self.hand, self.name))  # type: ignore[no-untyped-call]
