"""Remember in which order FSDP2 gathers its groups in a micro-batch, so that a rank can take part in the rest of it.

What is gathered depends on what was gathered already: an evaluation leaves the root so, and the next micro-batch does
not gather it. So a replay begins as the usual micro-batch did, and leaves the groups as it found them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from lastgood.fsdp_groups import FsdpGroup

Held = Mapping[int, bool]
"""Place of a group that is not sharded -> whether each rank keeps a larger shard (``reshard_after_forward=n``)."""


@dataclass(frozen=True, slots=True)
class Gather:
    """One gather of a group. ``among``: the ranks, where these are not all that share its shards."""

    place: int
    numel: int = 0
    dtype: torch.dtype = torch.float32
    among: dist.ProcessGroup | None = None

    def take_part(self, group: FsdpGroup) -> None:
        """Gather with the others and keep nothing. ``group`` must be sharded. What is sent to a few is zeros."""
        inner = group.inner
        if self.among is None:
            inner.unshard()
            inner.wait_for_unshard()
            inner._to_sharded()
            return
        size, rank = self.among.size(), self.among.rank()
        comm = inner._all_gather_comm
        output = comm.allocate((self.numel * size,), dtype=self.dtype, device=inner.device).zero_()
        given = output.narrow(0, self.numel * rank, self.numel)
        comm(output_tensor=output, input_tensor=given, group=self.among, async_op=False)


class GatherOrder:
    """The gathers of a micro-batch, forward and backward, those before it included; the same on every rank."""

    def __init__(self) -> None:
        self.replays = False
        """Whether what is gathered now belongs to a replay."""
        self.usual: tuple[Gather, ...] = ()
        self.held: Held = {}
        """What the usual micro-batch found gathered when it began."""
        self._now: list[Gather] = []
        self._found: Held = {}
        self._open = False

    def begin(self, held: Held) -> None:
        """Begin a micro-batch of the training, with what is gathered already."""
        self._now, self._found, self._open = [Gather(place) for place in held], held, True

    def add(self, gather: Gather) -> None:
        """Note a gather."""
        self._now.append(gather)

    def end(self) -> None:
        """End a micro-batch: its order is the usual one from now on. What is gathered after it is no part of it."""
        if self._open:
            self.usual, self.held, self._open = tuple(self._now), self._found, False

    def count(self) -> int:
        """Return how many gathers there were since the last :meth:`begin` or :meth:`restart`."""
        return len(self._now)

    def restart(self) -> None:
        """Count from here."""
        self._now, self._open = [], False


def held_by(groups: Sequence[FsdpGroup]) -> Held:
    """Return which groups are not sharded now."""
    return {group.place: group.inner.is_sharded_post_forward for group in groups if not group.inner.is_sharded}


def hold(groups: Sequence[FsdpGroup], held: Held) -> None:
    """Gather these groups, and shard the others. Collective, one gather per group that is held."""
    for group in groups:
        inner: Any = group.inner
        inner.wait_for_unshard()  # of a gather that was begun ahead
        inner._to_sharded()
        if group.place not in held:
            continue
        inner.unshard()
        inner.wait_for_unshard()
        if held[group.place]:
            with inner.use_training_state(type(inner._training_state).FORWARD):
                inner.reshard()
