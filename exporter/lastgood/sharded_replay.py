"""Replay a micro-batch of another node on a model that FSDP2 has sharded.

No rank can run such a model alone: its forward and its backward gather the weights from all ranks. So every run of a
round is entered by all of them, in lock-step: who has no package to run runs its own batch and forgets the result. A
rank whose run fails half-way (its memory is full, the loss function raises) takes part in the gathers that the others
still make, in the order that training showed; then all of them hear that the round did not run.

The gradients are digested on the gathered parameters, as the backward makes them, and dropped before they would be
reduced. So ``.grad`` is never touched, and no more of the gradient is kept than one group's.

Not covered: a model that is parallel over more than its batches, and gathers that cannot be seen.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from lastgood.comm import World
from lastgood.fingerprint import count_nonfinite
from lastgood.fsdp_groups import FsdpGroup, named_parameters
from lastgood.gather_order import GatherOrder, held_by, hold
from lastgood.projection import numbers_of
from lastgood.recorder import MicroBatch, Recorder, untouched
from lastgood.replay import Replayer, Round, Turn
from lastgood.replay_package import Outcome, forward_again, free_memory, outcome_of, recorded

Leaf = tuple[str, nn.Parameter]

_PRIVATE: Final = "torch.distributed.fsdp._fully_shard._fsdp_param_group"


class ShardedReplayer(Replayer):
    """Run replay rounds over the ranks of a sharded model. ``order``: in which the groups are gathered."""

    can_repeat = False

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        nodes: Sequence[str],
        environments: Sequence[str],
        groups: Sequence[FsdpGroup],
        order: GatherOrder,
    ) -> None:
        super().__init__(world, recorder, nodes, environments)
        self.groups, self.order = groups, order
        recorder.late_leaves = self.leaves

    def leaves(self) -> Iterator[Leaf]:
        """Yield the gathered parameters that have gradients."""
        return leaves_of(self.groups, self.recorder.module)

    def turn(
        self, result: Round, micros: Sequence[MicroBatch], actual: bool, nonfinite: Mapping[int, str]
    ) -> LockStepTurn:
        """Return the round as it begins on this rank."""
        return LockStepTurn(self, result, micros, actual, dict(nonfinite))

    def run(self, blob: bytes, count: int) -> Outcome:
        """Run a package of up to ``count`` micro-batches, as all ranks do now; a shorter one repeats its last.

        Raises what the run raises, after this rank has taken part in all gathers of the others.
        """
        before = held_by(self.groups)
        self.order.restart()
        self.order.replays = True
        try:
            with untouched(self.recorder.module, self.recorder.device), torch.enable_grad(), unreduced(self.groups):
                # from a rank of this very job over its own process group; nothing from outside is ever unpickled
                micros = torch.load(io.BytesIO(blob), weights_only=False, map_location=self.recorder.device)
                outcomes = [self._run_micro(micros[min(n, len(micros) - 1)]) for n in range(count)]
        except Exception:
            self._take_part(count)
            raise
        finally:
            hold(self.groups, before)
            self.order.replays = False
        first = outcomes[0]
        return Outcome(first.names, first.values, any(o.nonfinite for o in outcomes[: len(micros)]))

    def _run_micro(self, micro: tuple[Any, ...]) -> Outcome:
        hold(self.groups, self.order.held)
        loss, upstream = forward_again(micro, self.recorder, outside_of_a_backward())
        rows: dict[str, Tensor] = {}
        bad: list[Tensor] = []
        leaves = list(self.leaves())
        handles: list[Any] = []
        for name, leaf in leaves:
            handles.append(leaf.register_hook(partial(self._digest, rows, bad, name)))  # type: ignore[no-untyped-call]
            handles.append(leaf.register_post_accumulate_grad_hook(_drop))  # type: ignore[no-untyped-call]
        try:
            given = None if upstream is None else [upstream.to(loss)]
            torch.autograd.backward([loss], given, inputs=[leaf for _, leaf in leaves])
        finally:
            for handle in handles:
                handle.remove()
        return outcome_of(rows, loss.detach(), self.recorder, sum(int(b) for b in bad))

    def _digest(self, rows: dict[str, Tensor], bad: list[Tensor], name: str, grad: Tensor) -> None:
        rows[name] = self.recorder.digest(grad.detach(), name)
        bad.append(count_nonfinite(numbers_of(grad)))

    def _take_part(self, count: int) -> None:
        """Gather what the other ranks still gather in this run, so that none of them waits for this one."""
        rest = (self.order.usual * count)[self.order.count() :]
        root = next(g.module for g in self.groups if g.module._get_fsdp_state()._is_root)
        root.reset_iter_state()
        for gather in rest:
            gather.take_part(self.groups[gather.place])


class LockStepTurn(Turn):
    """One round in progress: every rank enters every run."""

    replayer: ShardedReplayer

    def pack(self) -> str:
        """Serialise this rank's micro-batches. Returns why it could not, or an empty string."""
        held = [leaf for _, leaf in self.replayer.leaves() if leaf.grad is not None]
        return "gradients wait for their reduce" if held else super().pack()

    def _run_first(self, senders: Sequence[int]) -> str:
        self.count = max(count for (count,) in self.world.gather_ints([len(self.micros)]))
        failure = ""
        if self.actual:
            if self.micros[0].digests:
                self.own = recorded(self.micros[0], self.replayer.recorder)
            else:
                failure = "the gradient of the audit step was not digested"
        else:
            self.own, failure = self._try(self.blob)
        for turn in range(max(Counter(self.result.pairs.values()).values())):
            owner = senders[turn] if turn < len(senders) else None
            outcome, problem = self._try(self.blob if owner is None else self.received[owner])
            failure = failure or problem
            if owner is not None and outcome is not None:
                self.partner_run[owner] = outcome
        return failure

    def _try(self, blob: bytes) -> tuple[Outcome | None, str]:
        try:
            return self._run(blob), ""
        except Exception as error:  # whatever the user's loss_fn raises must not stop training
            free_memory(error)
            return None, f"the replay failed ({type(error).__name__})"

    def _run(self, blob: bytes) -> Outcome:
        return self.replayer.run(blob, self.count)

    def _measure(self, tasks: Mapping[int, bytes], flag: bool) -> list[int]:
        """Run this rank's package, or its own batch beside the others; nobody runs where nobody has a package."""
        if not tasks:
            return [0, 0]
        mine = tasks.get(self.world.rank, b"")
        outcome, _ = self._try(mine or self.blob)
        if not mine or outcome is None:
            return [0, 0]
        return [1, int(outcome.nonfinite) if flag else outcome.total]

    def _measure_eager(self, tasks: Mapping[int, bytes], flag: bool) -> list[int]:
        if len(self.world.agree(not self.replayer.recorder.compiled)) == 0:
            return [0, 0]
        with torch.compiler.set_stance("force_eager"):
            return self._measure(tasks, flag)


def leaves_of(groups: Sequence[FsdpGroup], module: nn.Module) -> Iterator[Leaf]:
    """Yield the module's name and the gathered parameter of what is trained; it exists once it has been gathered."""
    names = {id(shard): name for name, shard in named_parameters(module)}
    for group in groups:
        for parameter in group.inner.fsdp_params:
            leaf, name = getattr(parameter, "_unsharded_param", None), names.get(id(parameter.sharded_param))
            if leaf is not None and leaf.requires_grad and name is not None:
                yield name, leaf


@contextmanager
def unreduced(groups: Sequence[FsdpGroup]) -> Iterator[None]:
    """Let a backward reduce nothing, not even the zeros of ``set_reduce_scatter_unused_params``."""
    before = [group.inner.reduce_scatter_unused_params for group in groups]
    try:
        for group in groups:
            group.inner.reduce_scatter_unused_params = False
        yield
    finally:
        for group, value in zip(groups, before, strict=True):
            group.inner.reduce_scatter_unused_params = value


@contextmanager
def outside_of_a_backward() -> Iterator[None]:
    """Let a forward at the end of a backward gather and free its weights as any other forward.

    Inside a backward FSDP2 takes a forward for a recomputation, and keeps all weights gathered. That it is asked for by
    name is private; a test pins it.
    """
    private: Any = sys.modules[_PRIVATE]
    asked = private.is_bw
    private.is_bw = lambda: False
    try:
        yield
    finally:
        private.is_bw = asked


def unreplayable(groups: Sequence[FsdpGroup], world: World) -> str:
    """Return why micro-batches of these groups cannot be replayed elsewhere, or "" when they can."""
    if not groups or any(group.shards * group.replicas != world.size for group in groups):
        return "the model is parallel over more than its batches"
    if not hasattr(sys.modules.get(_PRIVATE), "is_bw"):
        return "this version of torch cannot run a forward at the end of a backward"
    return ""


def _drop(leaf: Tensor) -> None:
    leaf.grad = None
