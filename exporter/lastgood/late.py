"""Decide about a step whose numbers the host has not read yet.

Where the numbers of a step come late (:mod:`lastgood.readback`), the device itself says whether the step may enter the
weights: a flag, computed from the summed vector, the same on every rank. It is what the verdict will say a step later:
the same conditions, the same tolerance. Only checks whose policy is not ``record`` raise it. The guard makes the
optimizer obey it (:func:`lastgood.guard.way_of`), and the verdict is given when the next backward has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from lastgood.stepvector import FLAGS

if TYPE_CHECKING:
    from lastgood.reduce import BackwardView


@dataclass(frozen=True, slots=True)
class Armed:
    """What keeps a step out. ``finite``, ``conservation``: whether the policy of the check does.

    ``checked``: conservation runs. ``limit``: its tolerance. ``narrow``: the reduce's type may overflow in a sum.
    """

    finite: bool
    conservation: bool
    checked: bool
    narrow: bool
    limit: float

    def keeps_out(self, check: str) -> bool:
        """Tell whether a step that fails ``check`` stays out of the weights."""
        return {"finite": self.finite, "conservation": self.conservation}.get(check, False)


def is_kept_out(total: Tensor, world_size: int, floors: tuple[float, ...], armed: Armed) -> Tensor:
    """Return 1.0 or 0.0 (0-dim float32 on the device of ``total``): whether the step must not enter the weights.

    ``total``: the summed vector of :mod:`lastgood.stepvector`; ``floors``: as in its ``unpack``. No host read.
    """
    cut = total.numel() - len(FLAGS)
    loss, local, reduced, _, invalid, step, squared = total[cut:].unbind()
    finite = (loss == 0) & (local == 0)
    wrong = _any_wrong(total[:cut].view(-1, 3), world_size, floors, armed.limit) & (invalid == 0)
    if not armed.checked:
        wrong = torch.zeros_like(wrong)
    overflow = (reduced != 0) if armed.narrow else (reduced != 0) & ~wrong
    nonfinite = ~finite | overflow
    kept = torch.zeros_like(finite)
    if armed.finite:
        kept = kept | nonfinite
    if armed.conservation:
        kept = kept | (wrong & ~nonfinite)
    return (kept & (squared * world_size == step * step)).to(torch.float32)


def _any_wrong(rows: Tensor, world_size: int, floors: tuple[float, ...], limit: float) -> Tensor:
    """Tell whether a bucket's result is off by more than ``limit``; 0-dim bool. ``rows``: [buckets, 3]."""
    before, after, squares = rows.unbind(1)
    scale = squares.clamp(min=0).sqrt() / world_size
    if floors:
        scale = torch.maximum(scale, _on_device(floors, rows.device))
    off = (before / world_size - after / world_size).abs()
    over = off / scale > limit  # as on the host: a value made out of nothing is infinitely off
    return (over & (off > 0)).any()


@lru_cache(maxsize=64)
def _on_device(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """Return numbers as a tensor; kept, since bringing them there makes the host wait."""
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=torch.float64, device=device)


class Sent(Protocol):
    """The numbers of one backward on their way. ``step``: the step that it belongs to."""

    total: Tensor
    floors: tuple[float, ...]
    dtype: torch.dtype | None
    step: int

    def view(self) -> BackwardView:
        """Read them."""


class LateReading:
    """Keep the newest backward until the next one has ended.

    ``is_due(step)``: the numbers of this step are needed at once, because other checks run in it. ``arm(dtype)``
    returns what keeps a step out now. ``on_kept()`` hears of a backward that is read later. ``judge(sent, armed)``
    gives the verdict; it may communicate.
    """

    def __init__(
        self,
        world_size: int,
        *,
        is_due: Callable[[int], bool],
        arm: Callable[[torch.dtype | None], Armed],
        on_kept: Callable[[], None],
        judge: Callable[[Sent, Armed], None],
    ) -> None:
        self._world_size = world_size
        self._is_due, self._arm, self._on_kept, self._judge = is_due, arm, on_kept, judge
        self._sent: tuple[Sent, Armed] | None = None
        self._flag: Tensor | None = None

    def keep(self, sent: Sent) -> bool:
        """Keep a backward for later; False when it must be read now."""
        if self._is_due(sent.step):
            return False
        armed = self._arm(sent.dtype)
        flag = is_kept_out(sent.total, self._world_size, sent.floors, armed)
        self._flag = flag if self._flag is None else torch.maximum(self._flag, flag)
        self._sent = sent, armed
        self._on_kept()
        return True

    def settle(self) -> None:
        """Give the verdict on the backward that was kept. Collective where it finds something."""
        kept, self._sent = self._sent, None
        if kept is not None:
            self._judge(*kept)

    def take_flag(self) -> Tensor | None:
        """Return the flag of the step whose update begins, over all its backwards; None when all were read."""
        flag, self._flag = self._flag, None
        return flag
