"""Read the gradients of a job of one rank, where nothing is reduced and nobody is asked."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lastgood.fingerprint import count_nonfinite
from lastgood.fsdp_groups import parameters
from lastgood.projection import numbers_of, project, square_sum
from lastgood.readback import AtOnce, Readback
from lastgood.reduce import BackwardView, SentStep
from lastgood.sharded import local
from lastgood.stepvector import step_mark


class LocalWatch:
    """Look at ``.grad`` just before the optimizer does. ``readback`` brings the numbers to the host."""

    def __init__(self, module: nn.Module, rank: int, readback: Readback | None = None) -> None:
        self.module = module
        self.rank = rank
        self.readback = readback or AtOnce()

    def send(self, loss: Tensor | None, step: int) -> SentStep:
        """Send what the host must know on its way, without a host read: flags, the same for own and total."""
        squares = [square_sum(grad, near=False) for grad in self._gradients()]
        device = next((local(p).device for p in parameters(self.module)), torch.device("cpu"))
        zero, mark = torch.zeros((), dtype=torch.float64, device=device), step_mark(step)
        seen = torch.stack([s.to(device) for s in squares]) if squares else zero.new_zeros(0)
        bad_loss = zero if loss is None else (~torch.isfinite(local(loss))).double().reshape(()).to(device)
        bad = (~torch.isfinite(seen)).any().double()
        flags = torch.stack([bad_loss, bad, zero, zero, zero, zero + mark, zero + mark * mark])
        return SentStep(step, flags, self.readback.send(torch.cat([flags, flags, seen])), seen.numel(), (), None)

    def view(self, loss: Tensor | None, step: int) -> BackwardView:
        """Return the same view that a reduce gives, with a vector of flags only (one rank: own is total).

        One host read, and another where a projection is not finite.
        """
        grads = self._gradients()
        rows = [torch.stack(project(grad, key=0)) for grad in grads]
        rows.append(_NO_LOSS if loss is None else loss.detach().double().reshape(1).expand(2))
        *read, (seen_loss, _) = torch.stack([row.to(rows[0].device) for row in rows]).tolist()
        odd = [grad for grad, (projection, _) in zip(grads, read, strict=True) if not math.isfinite(projection)]
        bad = any(int(count_nonfinite(grad)) for grad in odd)
        flags = [float(not math.isfinite(seen_loss)), float(bad), 0.0, 0.0, 0.0, step_mark(step), step_mark(step) ** 2]
        squares = sum(square_sum for _, square_sum in read)
        norm = math.sqrt(squares) if math.isfinite(squares) else math.nan
        return BackwardView(own=flags, total=flags, local_norm=norm, reduced_norm=None)

    def _gradients(self) -> list[Tensor]:
        return [numbers_of(local(p.grad)) for p in parameters(self.module) if p.grad is not None]


_NO_LOSS = torch.zeros(2, dtype=torch.float64)
