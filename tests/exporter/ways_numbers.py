"""Precisions, scalers, clipping, optimizers and the kinds of parameters and buffers that models have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from training_job import Net, batch_of
from ways_ddp import wrapped
from ways_job import ALL, FAULTS, UNREDUCED, Job, way

from lastgood.faults import Injector


def optimized(make: Any, module: nn.Module | None = None, **options: Any) -> Job:
    ddp = DistributedDataParallel(Net() if module is None else module, **options)
    made = make(ddp)
    return Job(ddp, made if isinstance(made, list) else [made])


def autocast(job: Job, step: int) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = job.loss(batch_of(step))
    loss.backward()
    job.update()


def scaled(init_scale: float) -> Job:
    job = wrapped(Net())
    job.scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=3)
    return job


def with_scaler(job: Job, step: int) -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        loss = job.loss(batch_of(step))
    job.scaler.scale(loss).backward()
    job.scaler.unscale_(job.optimizers[0])
    nn.utils.clip_grad_norm_(job.model.parameters(), 0.5)
    job.scaler.step(job.optimizers[0])
    job.scaler.update()
    job.optimizers[0].zero_grad()


def clipped_after(job: Job, step: int) -> None:
    """After the reduce, as usual."""
    job.loss(batch_of(step)).backward()
    nn.utils.clip_grad_norm_(job.model.parameters(), 0.1)
    job.update()


def clipped_before() -> Job:
    """Each local gradient is clipped in a hook, before it is reduced."""
    job = wrapped(Net())
    for parameter in job.model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    return job


def two_optimizers(ddp: Any) -> list[torch.optim.Optimizer]:
    first, last = ddp.module.first.parameters(), ddp.module.last.parameters()
    return [torch.optim.SGD(first, 0.1, momentum=0.9), torch.optim.AdamW(last, 1e-2)]


def with_closure(job: Job, step: int) -> None:
    optimizer: Any = job.optimizers[0]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = job.loss(batch_of(step))
        loss.backward()
        return loss

    optimizer.step(closure)


def scheduled(job: Job, step: int) -> None:
    if "scheduler" not in job.extra:
        job.extra["scheduler"] = torch.optim.lr_scheduler.OneCycleLR(job.optimizers[0], 0.1, total_steps=20)
    job.loss(batch_of(step)).backward()
    job.update()
    job.extra["scheduler"].step()


class Frozen(Net):
    """The middle does not train; the head shares its weight with another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Linear(32, 32).requires_grad_(False)
        self.twin = nn.Linear(32, 4)
        self.twin.weight = self.last.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(torch.relu(self.middle(self.first(x))))
        return self.last(hidden) * torch.sigmoid(self.twin(hidden))


class Table(nn.Module):
    """An embedding whose gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=True)
        self.first = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.first(self.table(((x * 10).long() % 50).abs()))
        return out


class Odd(nn.Module):
    """Complex weights; buffers of every kind, which the forward needs and each rank moves in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 4)
        self.phase = nn.Parameter(torch.ones(4, dtype=torch.complex64))
        self.register_buffer("turn", torch.ones(4, dtype=torch.complex64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.ones(4, dtype=torch.bool))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count += len(x)
        self.turn.mul_(1j)
        self.scratch.copy_(x.detach()[0, :4])
        out: Tensor = (self.first(x) * self.phase + self.turn + self.count * 1e-3).abs()
        return torch.where(self.mask, out, self.scratch)


def later(job: Job, step: int) -> None:
    """The optimizer is given the head's parameters from the fourth step on."""
    if step == 4:
        job.optimizers[0].add_param_group({"params": list(job.module.last.parameters()), "lr": 1e-3})
    job.loss(batch_of(step)).backward()
    job.optimizers[0].step()
    job.model.zero_grad()


class InTheDirection(Injector):
    """LBFGS keeps no state per weight: a fault of its state is in the direction of its last step."""

    def after_update(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if self._is_due("optimizer", step):
            (state,) = optimizer.state.values()
            self._corrupt(step, "d", state["d"])
        else:
            super().after_update(step, model, optimizer)


def half(job: Job, step: int) -> None:
    job.loss(batch_of(step).bfloat16()).backward()
    job.update()


ADAMW = torch.optim.AdamW
UNSCALED = tuple(fault for fault in ALL if fault != "finite")
"""A scaler skips the step of a NaN."""
way("autocast_bf16", build=lambda: wrapped(Net()), turn=autocast)
way("bf16_weights", build=lambda: wrapped(Net().bfloat16()), turn=half)
way("scaler_fp16", build=lambda: scaled(2.0**10), turn=with_scaler, faults=UNSCALED)
way("scaler_and_nan", build=lambda: scaled(2.0**10), turn=with_scaler, faults=("finite",))
way("scaler_that_skips", build=lambda: scaled(2.0**120), turn=with_scaler, faults=())
way("clipped_after_the_reduce", build=lambda: wrapped(Net()), turn=clipped_after)
way("clipped_before_the_reduce", build=clipped_before)
way("two_optimizers", build=lambda: optimized(two_optimizers))
way("fused", build=lambda: optimized(lambda ddp: ADAMW(ddp.parameters(), 1e-2, fused=True)))
way("foreach", build=lambda: optimized(lambda ddp: ADAMW(ddp.parameters(), 1e-2, foreach=True)))
way(
    "lbfgs",
    build=lambda: optimized(lambda ddp: torch.optim.LBFGS(ddp.parameters(), max_iter=3)),
    turn=with_closure,
    injector=InTheDirection,
    own={"state": replace(FAULTS["state"], step=6)},  # its steps are counted at the next one
)
way(
    "a_closure_that_runs_once",
    build=lambda: optimized(lambda ddp: ADAMW(ddp.parameters(), 1e-2)),
    turn=with_closure,
)
way("scheduler", build=lambda: wrapped(Net()), turn=scheduled)
way("frozen_and_tied", build=lambda: wrapped(Frozen()))
way(
    "sparse",
    build=lambda: optimized(lambda ddp: torch.optim.Adagrad(ddp.parameters(), 0.1), Table()),
    faults=UNREDUCED,
)
way("complex_weights_odd_buffers", build=lambda: wrapped(Odd()))
way(
    "a_parameter_group_that_comes_later",
    build=lambda: optimized(lambda ddp: ADAMW(ddp.module.first.parameters(), 1e-2)),
    turn=later,
)
way(
    "sharded_optimizer_state",
    build=lambda: optimized(lambda ddp: ZeroRedundancyOptimizer(ddp.parameters(), ADAMW, lr=1e-2)),
    faults=(*(fault for fault in ALL if fault != "state"), "overwritten"),
    own={"overwritten": FAULTS["replica"], "replica": replace(FAULTS["replica"], step=3)},
)
