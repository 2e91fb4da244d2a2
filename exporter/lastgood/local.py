"""Read the gradients of a job of one rank, where nothing is reduced and nobody is asked."""

from __future__ import annotations

import math

from torch import nn

from lastgood.fingerprint import count_nonfinite
from lastgood.projection import numbers_of, project
from lastgood.reduce import BackwardView
from lastgood.stepvector import step_mark


class LocalWatch:
    """Look at ``.grad`` just before the optimizer does."""

    def __init__(self, module: nn.Module, rank: int) -> None:
        self.module = module
        self.rank = rank

    def view(self, loss_is_bad: bool, step: int) -> BackwardView:
        """Return the same view that a reduce gives, with a vector of flags only (one rank: own is total)."""
        squares, bad = 0.0, False
        for parameter in self.module.parameters():
            if parameter.grad is None:
                continue
            grad = numbers_of(parameter.grad)
            projection, square_sum = project(grad, key=0)
            if not math.isfinite(float(projection)):
                bad = bad or int(count_nonfinite(grad)) > 0
            squares += float(square_sum)
        flags = [float(loss_is_bad), float(bad), 0.0, 0.0, 0.0, step_mark(step), step_mark(step) ** 2]
        norm = math.sqrt(squares) if math.isfinite(squares) else math.nan
        return BackwardView(own=flags, total=flags, local_norm=norm, reduced_norm=None)
