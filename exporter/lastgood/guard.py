"""Keep a step out of the weights without changing anything else.

A pre-hook of an optimizer cannot cancel a step. So it takes every gradient away (``p.grad = None``), for which the
optimizers of torch do nothing, and a post-hook puts the same objects back. Weights and state stay bitwise as they
were for Adam(W), SGD, Adafactor, RMSprop, Adagrad, Muon, NAdam, RAdam, through GradScaler and schedulers. LBFGS fills
its gradients again inside the step: there ``skip`` has to act as ``stop``. Others run a closure once, before they read
the gradients: theirs is wrapped, so that what it made is judged in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

Closure = Callable[[], Any]


def closure_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Closure | None:
    """Return the closure among the arguments of an optimizer's step (the optimizer itself may be the first)."""
    found = kwargs.get("closure") or next((a for a in args if callable(a) and not isinstance(a, Optimizer)), None)
    return found if callable(found) else None


def with_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], closure: Closure
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with another closure in the place of the one they have."""
    if kwargs.get("closure") is not None:
        return args, {**kwargs, "closure": closure}
    return tuple(closure if callable(a) and not isinstance(a, Optimizer) else a for a in args), kwargs


class Guard:
    """Take the gradients of a step away and put them back."""

    def __init__(self) -> None:
        self._taken: list[tuple[nn.Parameter | Tensor, Tensor | None]] = []

    def can_skip(self, optimizer: Optimizer) -> bool:
        """Tell whether a step of this optimizer can be skipped."""
        return not isinstance(optimizer, LBFGS)

    def take(self, optimizer: Optimizer) -> None:
        """Take the gradients of this optimizer's parameters away."""
        self.restore()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._taken.append((parameter, parameter.grad))
                    parameter.grad = None

    def restore(self) -> None:
        """Put back what was taken. Also called before the next step, in case the step itself raised."""
        for parameter, grad in self._taken:
            parameter.grad = grad
        self._taken = []
