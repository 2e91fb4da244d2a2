"""Watch the gradient reduce of ``DistributedDataParallel`` from inside its communication hook.

Per bucket one read before the reduce (projection, square sum, and with it NaN and infinity) and one after it. When
the backward ends, every rank packs what it saw into one vector (:mod:`lastgood.stepvector`), which is summed by the
only collective of a clean step. The callback is queued twice (the last bucket's hook queues ``outer``, which queues
``inner``): the inner one runs after the wrapper has finalised the backward, sees reduced ``.grad`` and may communicate.

Our hook multiplies by 1/W before the reduce, which is bitwise what the wrapper does without a hook (a division, and
the stock hook, are not when W is no power of two). A user's own hook that averages without loss is called inside ours
(:mod:`lastgood.user_hook`). Any other is left alone: then the local gradients are read parameter by parameter and
conservation does not run.

Annotations in this module are evaluated on purpose: torch checks those of a communication hook.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lastgood.comm import World
from lastgood.fingerprint import count_nonfinite
from lastgood.injection_points import InjectionPoints
from lastgood.late import LateReading
from lastgood.projection import numbers_of, project, project_only
from lastgood.readback import AtOnce, Pending, Readback
from lastgood.side_stream import InLine, Side
from lastgood.spending import Spending
from lastgood.stepvector import StepFacts, scale_floor, step_mark
from lastgood.user_hook import take_over
from lastgood.verdict import Ruling

NORM_EVERY: Final = 10
"""Steps between two norms of the reduced gradient: a picture for people, which a scrape samples anyway."""


@dataclass(slots=True)
class BucketView:
    """What this rank saw of one bucket: float64 scalars on the gradient's device."""

    before: Tensor
    square_sum: Tensor
    after: Tensor | None = None
    reduced_square_sum: Tensor | None = None
    nonfinite: int = 0
    floor: float = 0.0
    local: bool = True  # what was read before is this rank's own gradient, and counts in its norm


@dataclass(slots=True)
class BackwardView:
    """What this rank saw of one synchronised backward, and the sum over all ranks.

    ``own`` and ``total`` are the step vector's numbers, ``afters`` the bucket projections after the reduce.
    """

    own: list[float]
    total: list[float]
    local_norm: float
    reduced_norm: float | None
    dtype: torch.dtype | None = None
    floors: tuple[float, ...] = ()
    shards: "ShardViews | None" = None


class ShardViews(Protocol):
    """What this rank saw of buckets whose result is spread over the ranks."""

    def rule(self, bucket: int, facts: StepFacts, limit: float) -> tuple[list[int], Ruling]:
        """Return the ranks that hold a wrong part of the bucket's result, and what that says. Collective."""


@dataclass(slots=True)
class _State:
    queued: bool = False
    buckets: dict[int, BucketView] = field(default_factory=dict)
    parameters: list[BucketView] = field(default_factory=list)
    dtype: torch.dtype | None = None
    failed: bool = False


class ReduceWatch:
    """Attach to a wrapper and call ``on_backward(view)`` at the end of every synchronised backward.

    ``flags()`` returns this rank's (loss or None, own conservation test failed in the previous step, step).
    ``on_unchecked()`` is called for a backward that is reduced and cannot be checked (inside ``join``).
    ``on_error(exception)`` hears of our own failures, which never reach training. ``plain``: the wrapper has no hook of
    the user's; ``lossless``: it has one, whose result is the average. ``measures``: the reduce is seen from inside.
    ``spending`` hears how long it all took. ``readback`` brings the numbers to the host; with ``late`` they are judged
    when the next backward has ended, and nothing here makes the host wait for the device. ``side``: where a bucket is
    read before its reduce, beside the rest of the backward.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        world: World,
        *,
        flags: Callable[[], tuple[Tensor | None, bool, int]],
        on_backward: Callable[[BackwardView], None],
        on_unchecked: Callable[[], None],
        on_error: Callable[[Exception], None],
        injector: InjectionPoints,
        step: Callable[[], int],
        plain: bool = True,
        lossless: bool = False,
        spending: Spending | None = None,
        readback: Readback | None = None,
        late: LateReading | None = None,
        side: Side | None = None,
    ) -> None:
        self.ddp = ddp
        self.world = world
        self.flags = flags
        self.on_backward = on_backward
        self.on_unchecked = on_unchecked
        self.on_error = on_error
        self.injector = injector
        self.step = step
        self.spending = spending or Spending()
        self.state = _State()
        self.readback, self.late, self.side = readback or AtOnce(), late, side or InLine()
        self.device = next(ddp.module.parameters()).device
        self.near = self.device.type == "cpu" and late is None  # reading a number makes nobody wait
        self.scale = 1.0 / world.size
        self.inner = take_over(ddp) if lossless else None
        self.measures = self._attach(plain or self.inner is not None)

    def _attach(self, measurable: bool) -> bool:
        """Place the hooks; tell whether the reduce is seen from inside."""
        if measurable and self._register():
            return True
        for parameter in self.ddp.module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._see_parameter)
        return False

    def _register(self) -> bool:
        """Register our hook; tell whether the wrapper took it (it cannot have a second one)."""
        try:
            self.ddp.register_comm_hook(self, _hook)
        except RuntimeError:
            return False
        return True

    def reduce(self, bucket: Any) -> torch.futures.Future[Any]:
        """Start the reduce of a bucket, by the user's hook where there is one (see :func:`_value`)."""
        if self.inner is not None:
            hook, state = self.inner
            future: torch.futures.Future[Any] = hook(state, bucket)
            return future
        work = dist.all_reduce(bucket.buffer(), group=self.ddp.process_group, async_op=True)
        started: torch.futures.Future[Any] = work.get_future()
        return started

    def beside(self) -> AbstractContextManager[None]:
        """Return where a bucket is read and its reduce begins; a user's hook finds the stream that it is called on."""
        return self.side.apart() if self.inner is None else nullcontext()

    def queue(self) -> None:
        """Ask for one call at the end of the backward in progress."""
        if not self.state.queued:
            self.state.queued = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: engine.queue_callback(self._end))

    def average(self, buffer: Tensor) -> None:
        """Scale a local bucket as the wrapper does without a hook: a sparse one it divides."""
        if buffer.is_sparse:
            buffer.div_(self.world.size)
        else:
            buffer.mul_(self.scale)

    def see_before(self, index: int, buffer: Tensor) -> None:
        """Read a local bucket and scale it for the average, in one go (a user's hook scales by itself).

        A sparse one cannot be projected: conservation does not run in such a step.
        """
        scale = None if self.inner is not None else self.scale
        if scale is not None and not _scales_as_it_is_read(buffer):
            self.average(buffer)
            scale = None
        try:
            numbers = numbers_of(buffer)
            if buffer.is_sparse:
                self._see_sparse(index, numbers)
                return
            before, square_sum = project(numbers, key=index, scale=scale, near=self.near)
            view = BucketView(before, square_sum)
            view.floor = scale_floor(torch.finfo(numbers.dtype).smallest_normal, numbers.numel())
            if self.near and not math.isfinite(float(before)):
                view.nonfinite = int(count_nonfinite(numbers))  # scaling makes and unmakes no NaN and no infinity
            self.state.buckets[index] = view
            self.state.dtype = numbers.dtype
        except Exception as error:  # a bucket that cannot be read: the step is not measured, on all ranks
            self._leave_out(index)
            self.on_error(error)

    def _see_sparse(self, index: int, values: Tensor) -> None:
        """Look for NaN and infinity alone."""
        self._leave_out(index)
        view = self.state.buckets[index]
        view.before = view.square_sum = (values * 0).sum(dtype=torch.float64)  # 0, or NaN
        if self.near:
            view.nonfinite = int(count_nonfinite(values))

    def _leave_out(self, index: int) -> None:
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        self.state.buckets[index] = BucketView(zero, zero)  # the vector has the same length everywhere
        self.state.failed = True

    def see_after(self, index: int, buffer: Tensor) -> None:
        """Read a reduced bucket."""
        if buffer.is_sparse:
            return
        try:
            view, numbers = self.state.buckets[index], numbers_of(buffer)
            if self.step() % NORM_EVERY:
                view.after = project_only(numbers, key=index)
            else:
                view.after, view.reduced_square_sum = project(numbers, key=index, near=self.near)
        except Exception as error:
            self._fail(error)

    def _see_parameter(self, parameter: Tensor) -> None:
        if not self.ddp.require_backward_grad_sync:
            return
        if self.ddp._join_config.enable:
            self.on_unchecked()
            return
        self.queue()
        if parameter.grad is None:
            return
        try:
            grad = numbers_of(parameter.grad)
            view = BucketView(*project(grad, key=0, near=self.near))
            if self.near and not math.isfinite(float(view.before)):
                view.nonfinite = int(count_nonfinite(grad))
            self.state.parameters.append(view)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.state.failed = True
        self.on_error(error)

    def _end(self) -> None:
        """End of the backward: one SUM all-reduce, then the decision."""
        self.settle()
        with self.spending.on("every_step"):
            sent = self._send()
            if self.late is not None and self.late.keep(sent):
                return
            view = sent.view()
        self.on_backward(view)

    def settle(self) -> None:
        """Give the verdict on the backward before, if it is still to come. Collective."""
        if self.late is not None:
            self.late.settle()

    def _send(self) -> "SentStep":
        """Sum the vector over the ranks and send what the host must know on its way, in one piece."""
        state, self.state = self.state, _State()
        self.side.join(self._made(state))
        own = self._vector(state)
        total = self.world.sum_(own.clone())
        squares, reduced = self._squares(state)
        pending = self.readback.send(torch.cat([own, total, squares, reduced]))
        floors = tuple(state.buckets[i].floor for i in sorted(state.buckets))
        return SentStep(self.step(), total, pending, squares.numel(), floors, state.dtype)

    def _made(self, state: _State) -> list[Tensor]:
        """Return the numbers that were made on other streams: by what reads a bucket before and after its reduce."""
        views = (*state.buckets.values(), *state.parameters)
        found = [n for v in views for n in (v.before, v.square_sum, v.after, v.reduced_square_sum)]
        return [number for number in found if number is not None]

    def _squares(self, state: _State) -> tuple[Tensor, Tensor]:
        """Return the square sums of the local and of the reduced gradient."""
        views = [v for v in (*state.buckets.values(), *state.parameters) if v.local]
        none = torch.zeros(0, dtype=torch.float64, device=self.device)
        reduced = [v.reduced_square_sum for v in state.buckets.values() if v.reduced_square_sum is not None]
        local = torch.stack([v.square_sum for v in views]) if views else none
        return local, torch.stack(reduced) if reduced else none

    def _vector(self, state: _State) -> Tensor:
        """Return this rank's step vector; the layout is that of :mod:`lastgood.stepvector`."""
        rows = [state.buckets[i] for i in sorted(state.buckets)]
        none = torch.zeros((), dtype=torch.float64, device=self.device)
        cells = [c for v in rows for c in (v.before, none if v.after is None else v.after, v.square_sum)]
        seen = torch.stack(cells).view(-1, 3) if cells else none.new_zeros((0, 3))
        finite = torch.isfinite(seen)
        whole = finite[:, 0] & finite[:, 2]
        kept = torch.where(finite & whole.unsqueeze(1), seen, 0)
        loss, previous, step = self.flags()
        bad_loss = none if loss is None else (~torch.isfinite(loss)).double().reshape(()).to(self.device)
        reduced = (whole & ~finite[:, 1]).any().double()
        invalid = (~whole).any().double() if not state.failed else none + 1
        measured = torch.stack([bad_loss, self._local(state, whole), reduced, none + float(previous), invalid])
        mark = step_mark(step)
        return torch.cat([kept.reshape(-1), measured, torch.stack([none + mark, none + mark * mark])])

    def _local(self, state: _State, whole: Tensor) -> Tensor:
        """Return 1.0 when a local gradient is not finite.

        Where numbers are near it was recounted on the bits. Elsewhere the square sums say it: in float64 they are
        finite for all numbers below 1e150, so that no large one is taken for an infinity.
        """
        if self.near:
            views = [*state.buckets.values(), *state.parameters]
            return torch.tensor(float(any(v.nonfinite for v in views)), dtype=torch.float64)
        seen = [torch.isfinite(v.square_sum) for v in (*state.buckets.values(), *state.parameters) if v.local]
        return (~torch.stack(seen)).any().double() if seen else torch.zeros_like(whole, dtype=torch.float64).sum()


@dataclass(slots=True)
class SentStep:
    """The numbers of one synchronised backward on their way to the host. ``total``: summed, on the device."""

    step: int
    total: Tensor
    pending: Pending
    squares: int
    floors: tuple[float, ...]
    dtype: torch.dtype | None

    def view(self) -> BackwardView:
        """Read them: the one host read of a step."""
        numbers, n = self.pending.numbers(), self.total.numel()
        tail = numbers[2 * n :]
        norms = _norm(tail[: self.squares]) or 0.0, _norm(tail[self.squares :])
        return BackwardView(numbers[:n], numbers[n : 2 * n], *norms, self.dtype, self.floors)


def _scales_as_it_is_read(buffer: Tensor) -> bool:
    """Complex numbers are scaled as the wrapper does: by parts, a zero could come out with another sign."""
    return buffer.layout == torch.strided and buffer.is_floating_point()


def _norm(squares: list[float]) -> float | None:
    if not squares:
        return None
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan


def _hook(watch: ReduceWatch, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    index, buffer = bucket.index(), bucket.buffer()
    if watch.ddp._join_config.enable:  # uneven inputs: ranks that have finished take part in no collective of ours
        watch.on_unchecked()
        if watch.inner is None:
            watch.average(buffer)
        plain: torch.futures.Future[torch.Tensor] = watch.reduce(bucket).then(_value)
        return plain
    if bucket.is_last():  # a nested backward (activation checkpointing) may have run the first ones
        watch.queue()
    step = watch.step()

    def done(future: torch.futures.Future[Any]) -> torch.Tensor:
        reduced = _value(future)
        watch.injector.reduced(index, reduced, step, watch.world.rank)
        with watch.spending.on("every_step"):
            watch.see_after(index, reduced)
        return reduced

    with watch.beside():  # the reduce writes in place: it waits for this read, and begins on the same stream
        with watch.spending.on("every_step"):
            watch.see_before(index, buffer)
        watch.injector.bucket(index, buffer, step)
        averaged: torch.futures.Future[torch.Tensor] = watch.reduce(bucket).then(done)
    return averaged


def _value(future: torch.futures.Future[Any]) -> torch.Tensor:
    """Return the reduced bucket: a collective gives a list of one tensor, a hook the tensor itself."""
    value = future.value()
    tensor: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
    return tensor
