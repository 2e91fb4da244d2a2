"""Keep a step out of the weights without changing anything else.

A pre-hook of an optimizer cannot cancel a step. So it takes every gradient away (``p.grad = None``), for which the
optimizers of torch do nothing, and a post-hook puts the same objects back. Weights and state stay bitwise as they
were for Adam(W), SGD, Adafactor, RMSprop, Adagrad, Muon, NAdam, RAdam, through GradScaler and schedulers. LBFGS fills
its gradients again inside the step: there ``skip`` has to act as ``stop``. Others run a closure once, before they read
the gradients: theirs is wrapped, so that what it made is judged in time.

Where the host has not read the numbers of a step yet, a fused optimizer obeys a flag on the device (``found_inf``: how
loss scalers skip a step). Others, and the first step of any (skipped that way it leaves the momentum of SGD as it was
allocated), cost one host read before the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Optimizer

from lastgood.sharded import local

Closure = Callable[[], Any]
Way = Literal["at_once", "on_device", "host_read"]
"""How the guard learns of a decision: it was made before, the device knows it, or the host reads it now."""


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


def way_of(*, late: bool, fused: bool, first_step: bool) -> Way:
    """Return how the guard learns whether this step may enter the weights.

    ``late``: the host has not read the step's numbers. ``fused``: all of the optimizer's step obeys ``found_inf``.
    ``first_step``: some parameter has no state yet that the step would make.
    """
    if not late:
        return "at_once"
    return "on_device" if fused and not first_step else "host_read"


def is_fused(optimizer: Optimizer) -> bool:
    """Tell whether the whole step of an optimizer obeys ``found_inf``."""
    obeys = getattr(optimizer, "_step_supports_amp_scaling", False)
    return bool(obeys) and all(group.get("fused") for group in optimizer.param_groups)


def is_first_step(optimizer: Optimizer) -> bool:
    """Tell whether the coming step makes state for a parameter; SGD without momentum keeps none."""
    for group in optimizer.param_groups:
        if isinstance(optimizer, SGD) and not group["momentum"]:
            continue
        if any(not optimizer.state.get(p) for p in group["params"] if p.grad is not None):
            return True
    return False


def only_makes_state(optimizer: Optimizer) -> bool:
    """Tell whether the coming step changes no weight and is there to make the state of a fresh optimizer.

    ``get_state_dict`` of ``torch.distributed.checkpoint`` steps an optimizer without state, with gradients of zero and
    a learning rate of zero. The gradients are read on the host, but only where everything else says so.
    """
    rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
    if optimizer.state or any(_is_elsewhere(rate) or rate != 0 for rate in rates):
        return False
    grads = [local(p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return bool(grads) and not any(grad.is_sparse or bool(grad.any()) for grad in grads)


def _is_elsewhere(rate: float | Tensor) -> bool:
    """Tell whether a learning rate lies on a device, where looking at it would make the host wait."""
    return isinstance(rate, Tensor) and rate.device.type != "cpu"


class Guard:
    """Take the gradients of a step away and put them back."""

    def __init__(self) -> None:
        self._taken: list[tuple[nn.Parameter | Tensor, Tensor | None]] = []
        self._held: tuple[Any, Tensor | None] | None = None  # optimizer, and the flag that a loss scaler gave it

    def hold(self, optimizer: Optimizer, flag: Tensor) -> None:
        """Let the device skip the step where ``flag`` (0-dim float32) is 1.0, or where a loss scaler says so."""
        self.restore()
        scalers = getattr(optimizer, "found_inf", None)
        self._held = optimizer, scalers
        obeyed: Any = optimizer
        obeyed.found_inf = flag if scalers is None else torch.maximum(scalers, flag.to(scalers.device))

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
        if self._held is not None:
            optimizer, scalers = self._held
            self._held = None
            if scalers is None:
                del optimizer.found_inf
            else:
                optimizer.found_inf = scalers
        for parameter, grad in self._taken:
            parameter.grad = grad
        self._taken = []
