"""See whether the weights that FSDP2 gathered on a rank are exactly those that the ranks hold.

In a step that is due, a custom all-gather stands around the one that is there: before it, each rank digests the part
that it sends; after it, the whole that it received. Digests add up over the parts, so the sum of what the ranks sent
must be the digest of every copy. All gathers of the step are looked at, in the forward and in the backward; nothing is
exchanged until the step's comparison. One gather of bytes says who has another copy than was sent, without a majority.

Cost: in a due step, one read of the gathered weights per gather, on every rank.

Not seen: a gather in a step that is not due, the copy of a shard into the buffer that is sent, and the copy out of the
buffer that was received. Groups of one rank gather nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from lastgood.comm import World
from lastgood.fingerprint import TensorDigests, fingerprint
from lastgood.fsdp_groups import FsdpGroup
from lastgood.gather_order import Gather, GatherOrder
from lastgood.replica import Comparison
from lastgood.verdict_sharded import rule_gathered

WORD: Final = 1 << 64
WHOLE_MODEL: Final = "the model"


@dataclass(frozen=True, slots=True)
class _Gather:
    """One gather: digests of the part that was sent and of the copy that came, int64 on the device."""

    name: str
    sent: Tensor
    copy: Tensor
    members: tuple[int, ...]  # the ranks it is among


class GatherDigest:
    """The gathers of the step in progress on this rank.

    ``due``: step -> whether it is looked at; ``timed()``: a context that counts what it costs. Both are set later.
    ``on_error(exception)`` hears of our own failures, which never reach training.
    """

    def __init__(self, groups: Sequence[FsdpGroup], step: Callable[[], int], on_error: Callable[[Exception], None]):
        self.groups = groups
        self.step, self.on_error = step, on_error
        self.due: Callable[[int], bool] = lambda step: False
        self.timed: Callable[[], AbstractContextManager[None]] = nullcontext
        self.order = GatherOrder()
        self._sizes = sizes_of(groups)
        self._found: list[_Gather] = []
        self._of, self._failed = -1, False
        self._ended = -1  # the newest step that was compared: what runs in it from then on is a replay
        for group in groups:
            group.module.set_custom_all_gather(_AllGather(group.inner._all_gather_comm, self, group))

    def gather(
        self, comm: _AllGather, output: Tensor, given: Tensor, group: dist.ProcessGroup, asynchronous: bool
    ) -> Any:
        """Run one all-gather, and in a due step look at it before and after."""
        self.order.add(comm.noted(given, group))
        looked = self._looks()
        name = f"{comm.group.place}#{len(self._found)}"
        sent = self._digest(given, name, group.rank() * given.numel()) if looked else None
        work = comm.inner(output_tensor=output, input_tensor=given, group=group, async_op=asynchronous)
        if sent is not None:
            if asynchronous and work is not None:
                work.wait()
            copy = self._digest(output, name, 0)
            if copy is not None:
                members = tuple(dist.get_process_group_ranks(group))
                self._found.append(_Gather(comm.group.name or WHOLE_MODEL, sent, copy, members))
        return work

    def compare(self, world: World, nodes: Mapping[int, str]) -> Comparison | None:
        """Compare what the ranks gathered in this step; None where a rank could not look. Collective, once a step."""
        found, ready = self._found, self._of == self.step() and not self._failed
        self._ended, self._found = self.step(), []
        rows = world.gather_ints([int(ready), len(found), *_sums(found if ready else [], self._sizes)])
        if not all(row[0] and row[1] == rows[0][1] for row in rows) or not rows[0][1]:
            return None
        odd = sorted({rank for column in range(2, len(rows[0]), 3) for rank in _odd([row[column:] for row in rows])})
        nothing = TensorDigests((), torch.zeros((0, 1), dtype=torch.int64), {})
        if not odd:
            return Comparison(nothing, None)
        name, observed, expected, asked = self._first(world, found, odd[0])
        ruling = rule_gathered(odd, asked, nodes, name)
        return Comparison(nothing, ruling, f"{name}, as gathered", observed, expected)

    def _first(self, world: World, found: Sequence[_Gather], odd: int) -> tuple[str, int, int, list[int]]:
        """Return the first gather that is wrong on rank ``odd``: its name, the copy's digest, the right, its ranks."""
        rows = world.gather_json([[g.name, int(g.sent), int(g.copy), list(g.members)] for g in found])
        for number, (name, _, copy, members) in enumerate(rows[odd]):
            right = sum(rows[rank][number][1] for rank in members) % WORD
            if copy % WORD != right:
                return name, copy, right, members
        return WHOLE_MODEL, 0, 0, [odd]

    def _looks(self) -> bool:
        """Tell whether the gather that begins is looked at; forget those of an earlier step."""
        step = self.step()
        if step != self._of:
            self._of, self._found, self._failed = step, [], False
        try:
            return not (step == self._ended or self._failed or self.order.replays) and self.due(step)
        except Exception as error:
            self._failed = True
            self.on_error(error)
            return False

    def _digest(self, tensor: Tensor, name: str, offset: int) -> Tensor | None:
        try:
            with self.timed():
                return fingerprint(tensor, name, offset=offset)
        except Exception as error:  # the step is not compared, on all ranks
            self._failed = True
            self.on_error(error)
            return None


class _AllGather:
    """Stand around an all-gather; memory is allocated as it does."""

    def __init__(self, inner: Any, digest: GatherDigest, group: FsdpGroup) -> None:
        self.inner, self.digest, self.group = inner, digest, group

    def allocate(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return memory for the communication."""
        memory: Tensor = self.inner.allocate(*args, **kwargs)
        return memory

    def noted(self, given: Tensor, group: dist.ProcessGroup) -> Gather:
        """Return how a gather is remembered."""
        few = group.size() != self.group.shards
        return Gather(self.group.place, given.numel(), given.dtype, group) if few else Gather(self.group.place)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        return self.digest.gather(self, output_tensor, input_tensor, group, async_op)


def sizes_of(groups: Sequence[FsdpGroup]) -> list[int]:
    """Return among how many ranks gathers are: all shards, and fewer where a forward keeps larger ones."""
    fewer = (getattr(group.inner.post_forward_mesh_info, "shard_mesh_size", group.shards) for group in groups)
    return sorted({*(group.shards for group in groups), *map(int, fewer)})


def _sums(found: Sequence[_Gather], sizes: Sequence[int]) -> list[int]:
    """Return, per size, the first rank that gathers with this one, and the sums of what it sent and received.

    One host read. Zeros where nothing was gathered among so many ranks.
    """
    kinds = [[g for g in found if len(g.members) == size] for size in sizes]
    sums = [
        torch.stack([torch.stack([g.sent for g in kind]).sum(), torch.stack([g.copy for g in kind]).sum()])
        for kind in kinds
        if kind
    ]
    numbers = iter(torch.cat(sums).tolist() if sums else [])
    return [n for kind in kinds for n in ([min(kind[0].members), next(numbers), next(numbers)] if kind else [0, 0, 0])]


def _odd(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the ranks whose copies are not what the ranks sent; a row begins with first rank, sent, received."""
    whole: dict[int, int] = {}
    for first, sent, *_ in rows:
        whole[first] = (whole.get(first, 0) + sent) % WORD
    return [rank for rank, (first, _, copy, *_) in enumerate(rows) if copy % WORD != whole[first]]


def ungatherable(groups: Sequence[FsdpGroup]) -> str:
    """Return why the gathers of these groups cannot be seen, or "" when they can."""
    if not groups:
        return "nothing is gathered by fully_shard"
    if not all(group.alone for group in groups):
        return "a module has several parameter groups, whose communication cannot be wrapped"
    if any(group.shards == 1 for group in groups):
        return "a parameter group is on one rank, and is not gathered"
    if len({tuple(dist.get_process_group_ranks(g.inner.mesh_info.shard_process_group)) for g in groups}) > 1:
        return "the parameter groups are sharded over different ranks"
    return ""
