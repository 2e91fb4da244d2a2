"""Keep a step out of the weights without changing anything else.

A pre-hook of an optimizer cannot cancel a step. So it takes every gradient away (``p.grad = None``), for which the
optimizers of torch do nothing, and a post-hook puts the same objects back. Weights and state stay bitwise as they
were for Adam(W), SGD, Adafactor, RMSprop, Adagrad, Muon, NAdam, RAdam, through GradScaler and schedulers. An optimizer
with a closure (LBFGS) fills its gradients again inside the step: there ``skip`` has to act as ``stop``.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer


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
