"""Read the gradients of a job of one rank, where nothing is reduced and nobody is asked."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lastgood.fingerprint import count_nonfinite
from lastgood.projection import numbers_of, project
from lastgood.reduce import BackwardView
from lastgood.sharded import local
from lastgood.stepvector import step_mark


class LocalWatch:
    """Look at ``.grad`` just before the optimizer does."""

    def __init__(self, module: nn.Module, rank: int) -> None:
        self.module = module
        self.rank = rank

    def view(self, loss: Tensor | None, step: int) -> BackwardView:
        """Return the same view that a reduce gives, with a vector of flags only (one rank: own is total).

        One host read, and another where a projection is not finite.
        """
        grads = [numbers_of(local(p.grad)) for p in self.module.parameters() if p.grad is not None]
        rows = [torch.stack(project(grad, key=0)) for grad in grads]
        rows.append(_NO_LOSS if loss is None else loss.detach().double().reshape(1).expand(2))
        *read, (seen_loss, _) = torch.stack([row.to(rows[0].device) for row in rows]).tolist()
        odd = [grad for grad, (projection, _) in zip(grads, read, strict=True) if not math.isfinite(projection)]
        bad = any(int(count_nonfinite(grad)) for grad in odd)
        flags = [float(not math.isfinite(seen_loss)), float(bad), 0.0, 0.0, 0.0, step_mark(step), step_mark(step) ** 2]
        squares = sum(square_sum for _, square_sum in read)
        norm = math.sqrt(squares) if math.isfinite(squares) else math.nan
        return BackwardView(own=flags, total=flags, local_norm=norm, reduced_norm=None)


_NO_LOSS = torch.zeros(2, dtype=torch.float64)
