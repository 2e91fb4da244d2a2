"""Watch the gradient reduce of FSDP2 (``fully_shard``) from inside its communication.

A custom reduce-scatter stands around the one that is there, per parameter group, and sees the local gradient before
and this rank's part of the average after. What was projected before is split into the parts (:mod:`slice_projection`),
so the sum over the ranks' parts can be compared with it in the one vector of the step, as for
``DistributedDataParallel``. With replicas (HSDP) the parts are averaged once more, between the ranks that hold the
same part: that is a bucket of its own, projected before it and in torch's all-reduce hook after it.

On a GPU torch runs all this on a stream of its own, beside the backward: a part is read there before torch goes on to
scale it in place, and nothing else has to wait.

A backward that accumulates without a reduce (``set_requires_gradient_sync(False)``) is seen with the one that reduces.
Where the communication cannot be wrapped, the reduced gradient alone is read, and conservation does not run.

Not covered: compiled autograd, and communication that is exchanged after ``watch``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lastgood.comm import World
from lastgood.fingerprint import count_nonfinite
from lastgood.fsdp_groups import FsdpGroup, parameters
from lastgood.projection import numbers_of, project
from lastgood.reduce import NORM_EVERY, BackwardView, BucketView, ReduceWatch, SentStep
from lastgood.shard_views import BucketParts, Parts
from lastgood.sharded import local
from lastgood.slice_projection import project_slices, weights_of
from lastgood.stepvector import FLAGS, scale_floor

LAST: Final = 1 << 30
"""Place of the row that carries the norm of the reduced gradient: behind all buckets."""


@dataclass(slots=True)
class _Partial:
    """Parts that were reduced and wait for their average between replicas (``set_requires_all_reduce(False)``)."""

    projection: Tensor
    square_sum: Tensor


@dataclass(slots=True)
class _Seen:
    """What this backward has seen so far beside the views of the buckets."""

    parts: dict[int, BucketParts] = field(default_factory=dict)
    squares: list[Tensor] = field(default_factory=list)  # of this rank's part of the reduced gradient


class FsdpWatch(ReduceWatch):
    """Attach to the groups of a model; the rest as :class:`lastgood.reduce.ReduceWatch`.

    ``module`` without groups: a model of which only tensors are sharded (tensor parallel), whose own gradients are
    read. ``nodes``: rank -> node.
    """

    def __init__(
        self,
        module: nn.Module,
        groups: Sequence[FsdpGroup],
        world: World,
        nodes: Sequence[str],
        **rest: Any,
    ) -> None:
        self.groups, self.nodes = groups, dict(enumerate(nodes))
        self._seen = _Seen()
        self._partial: dict[int, _Partial] = {}
        self._waiting: dict[int, tuple[int, bool]] = {}  # group -> bucket that its all-reduce hook ends, and averages
        bare = cast(Any, SimpleNamespace(module=module))
        super().__init__(bare, world, **rest)

    def _attach(self, measurable: bool) -> bool:
        if self.groups:
            self.device = self.groups[0].inner.device
            self.near = self.device.type == "cpu" and self.late is None
        if measurable and not unmeasurable(self.groups):
            for group in self.groups:
                group.module.set_custom_reduce_scatter(_Scatter(group.inner._reduce_scatter_comm, self, group))
                if group.replicas > 1:
                    group.module.set_all_reduce_hook(_Averaged(group.inner._all_reduce_hook, self, group))
            return True
        for parameter in parameters(self.ddp.module):
            if parameter.requires_grad:
                held: Any = parameter
                held.register_post_accumulate_grad_hook(self._see_gradient)
        return False

    # --- a bucket ----------------------------------------------------------------------------------------------------

    def scatter(self, comm: _Scatter, output: Tensor, given: Tensor, group: Any, op: Any, async_op: bool) -> Any:
        """Run one reduce-scatter, and look at it before and after."""
        self.queue()
        self.side.made_here()
        index, step = len(self.state.buckets), self.step()
        with self.spending.on("every_step"):
            self._see_local(index, comm.group, given, group)
        self.injector.bucket(index, given, step)
        work = comm.inner(output_tensor=output, input_tensor=given, group=group, op=op, async_op=async_op)
        if async_op and work is not None:
            work.wait()
        self.injector.reduced(index, output, step, self.world.rank)
        with self.spending.on("every_step"):
            self._see_part(index, comm.group, output, group, op)
        return work

    def _see_local(self, index: int, group: FsdpGroup, given: Tensor, process_group: Any) -> None:
        """Read the local gradient of a group."""
        try:
            size = process_group.size()
            slices, square_sum = project_slices(given, size, key=group.place, near=self.near)
            view = BucketView(torch.dot(slices, weights_of(size, given.device)), square_sum)
            view.floor = scale_floor(torch.finfo(given.dtype).smallest_normal, given.numel())
            if self.near and not math.isfinite(float(view.before)):
                view.nonfinite = int(count_nonfinite(given))
            self.state.buckets[index], self.state.dtype = view, given.dtype
            self._seen.parts[index] = BucketParts.scattered(process_group, slices)
        except Exception as error:
            self._leave_out(index)
            self.on_error(error)

    def _see_part(self, index: int, group: FsdpGroup, output: Tensor, process_group: Any, op: Any) -> None:
        """Read this rank's part of what was reduced."""
        try:
            factor = _factor(op, process_group.size(), group)
            part, squares = project(output, key=group.place, near=self.near)
            weight = weights_of(process_group.size(), output.device)[process_group.rank()]
            self.state.buckets[index].after = factor * weight * part
            if parts := self._seen.parts.get(index):
                parts.after = factor * part
            averages = op == dist.ReduceOp.AVG and group.inner.gradient_divide_factor is None
            self._then_averaged(group, weight * part, squares, output, averages)
        except Exception as error:
            self._fail(error)
            if group.replicas > 1 and group.inner.all_reduce_grads and group.place not in self._waiting:
                self._leave_out(len(self.state.buckets))  # the vector has the same length everywhere

    def _then_averaged(self, group: FsdpGroup, part: Tensor, squares: Tensor, output: Tensor, averages: bool) -> None:
        """Begin the bucket of the average between replicas, where there are any."""
        if group.replicas == 1:
            self._seen.squares.append(squares)
            return
        if found := self._partial.pop(group.place, None):
            part, squares = part + found.projection, squares + found.square_sum
        if not group.inner.all_reduce_grads:
            self._partial[group.place] = _Partial(part, squares)
            return
        index = len(self.state.buckets)
        view = BucketView(part, squares, local=False)
        view.floor = scale_floor(torch.finfo(output.dtype).smallest_normal, output.numel())
        self.state.buckets[index] = view
        self._waiting[group.place] = index, averages

    def averaged(self, group: FsdpGroup, output: Tensor) -> None:
        """Look at a part after its average between replicas."""
        if group.place not in self._waiting:
            return
        self.side.made_here()
        index, averages = self._waiting.pop(group.place)
        self.injector.reduced(index, output, self.step(), self.world.rank)
        try:
            mesh = group.inner.mesh_info
            factor = 1.0 if averages else 1.0 / group.replicas
            part, squares = project(output, key=group.place, near=self.near)
            weight = weights_of(group.shards, output.device)[dist.get_rank(mesh.shard_process_group)]
            view = self.state.buckets[index]
            view.after = factor * weight * part
            self._seen.squares.append(squares / group.replicas)
            self._seen.parts[index] = BucketParts.averaged(group.replicate_group, view.before, view.after)
        except Exception as error:
            self._fail(error)

    def _see_gradient(self, parameter: Tensor) -> None:
        """Read a gradient where the reduce is not seen: what came out of it, or this rank's own where there is none."""
        self.queue()
        self.side.made_here()
        if parameter.grad is None:
            return
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        reduced = self.state.buckets.setdefault(0, BucketView(zero, zero)) if self.groups else None
        try:
            grad = numbers_of(local(parameter.grad))
            projection, squares = project(grad, key=0, near=self.near)
            if reduced is not None:  # which rank made it not finite cannot be told
                reduced.after = projection * 0 if reduced.after is None else reduced.after + projection * 0
                self._seen.squares.append(squares)
                return
            view = BucketView(projection, squares)
            if self.near and not math.isfinite(float(projection)):
                view.nonfinite = int(count_nonfinite(grad))
            self.state.parameters.append(view)
        except Exception as error:
            self._fail(error)

    # --- the end of the backward -------------------------------------------------------------------------------------

    def _send(self) -> SentShards:
        sent = super()._send()
        seen, self._seen = self._seen, _Seen()
        self._waiting.clear()
        return SentShards(sent, Parts(self.world, self.nodes, seen.parts))

    def _made(self, state: Any) -> list[Tensor]:
        return [*super()._made(state), *self._seen.squares]

    def _vector(self, state: Any) -> Tensor:
        """Add the row of the reduced gradient's norm, which :meth:`SentShards.view` takes away again."""
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        squares = torch.stack(self._seen.squares).sum() if self._seen.squares else zero
        squares = torch.nan_to_num(squares, nan=0.0, posinf=0.0)
        state.buckets[LAST] = BucketView(zero, squares, after=zero, local=False)
        return super()._vector(state)


class SentShards(SentStep):
    """The numbers of a backward on their way, with what this rank knows of each part."""

    def __init__(self, sent: SentStep, shards: Parts) -> None:
        super().__init__(sent.step, sent.total, sent.pending, sent.squares, sent.floors, sent.dtype)
        self.shards = shards

    def view(self) -> BackwardView:
        """Read them: without the row of the norm, but with the norm."""
        view = super().view()
        cut = len(view.total) - len(FLAGS) - 3
        norm = math.sqrt(view.total[cut + 2]) if not self.step % NORM_EVERY else None
        own, total = [*view.own[:cut], *view.own[cut + 3 :]], [*view.total[:cut], *view.total[cut + 3 :]]
        return replace(view, own=own, total=total, floors=view.floors[:-1], reduced_norm=norm, shards=self.shards)


class _Scatter:
    """Stand around a reduce-scatter; memory is allocated as it does."""

    def __init__(self, inner: Any, watch: FsdpWatch, group: FsdpGroup) -> None:
        self.inner, self.watch, self.group = inner, watch, group

    def allocate(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return memory for the communication."""
        memory: Tensor = self.inner.allocate(*args, **kwargs)
        return memory

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        return self.watch.scatter(self, output_tensor, input_tensor, group, op, async_op)


class _Averaged:
    """Torch's hook after the average between replicas; one of the user's is called first."""

    def __init__(self, inner: Callable[[Tensor], None] | None, watch: FsdpWatch, group: FsdpGroup) -> None:
        self.inner, self.watch, self.group = inner, watch, group

    def __call__(self, reduce_output: Tensor) -> None:
        if self.inner is not None:
            self.inner(reduce_output)
        self.watch.averaged(self.group, reduce_output)


def unmeasurable(groups: Sequence[FsdpGroup]) -> str:
    """Return why the reduces of these groups cannot be seen from inside, or "" when they can."""
    if not groups:
        return "no gradient is reduced by fully_shard"
    if not all(group.alone for group in groups):
        return "a module has several parameter groups, whose communication cannot be wrapped"
    if any(group.shards == 1 for group in groups):
        return "a parameter group is spread over one rank, and is not reduced by a reduce-scatter"
    if any(group.replicas > 1 and group.inner._all_reduce_hook is not None for group in groups):
        return "the job has an all-reduce hook of its own"
    return ""


def _factor(op: Any, size: int, group: FsdpGroup) -> float:
    """Return by what a part must be multiplied to be the sum of what the ranks put in."""
    if op == dist.ReduceOp.AVG:
        return float(size)
    if op == dist.ReduceOp.SUM:
        return 1.0
    return float(group.inner.gradient_divide_factor)
