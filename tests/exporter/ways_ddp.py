"""The options of ``DistributedDataParallel``, and communication hooks of a user's own."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from training_cases_loops import averaged
from training_job import Net, batch_of
from ways_job import UNREDUCED, Job, way


def wrapped(module: nn.Module | None = None, hook: Any = None, state: Any = None, **options: Any) -> Job:
    ddp = DistributedDataParallel(Net(norm=True) if module is None else module, **options)
    if hook is not None:
        ddp.register_comm_hook(state, hook)
    return Job(ddp, [torch.optim.AdamW(ddp.parameters(), lr=1e-2)])


def accumulated(job: Job, step: int, *, apart: bool = True) -> None:
    """Two micro-batches; only the last one is reduced, or both of them."""
    for micro in range(2):
        with job.model.no_sync() if apart and micro == 0 else nullcontext():  # type: ignore[operator]
            (job.loss(batch_of(step, micro)) / 2).backward()
    job.update()


def first_one_synchronised(job: Job, step: int) -> None:
    """A static graph refuses ``no_sync`` in its first iteration."""
    accumulated(job, step, apart=step > 1)


class Branching(Net):
    """Half of the model sleeps on ranks whose batch says so."""

    def __init__(self) -> None:
        super().__init__()
        self.rare = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out + self.rare(x) if float(x[0, 0]) > 0 else out


def bf16(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """What ``bf16_compress_hook`` does; the stock one is refused on a CPU."""
    target = bucket.buffer()
    work = dist.all_reduce(target.to(torch.bfloat16).div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: target.copy_(future.value()[0]))


bf16.__annotations__ = {"state": None, "bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]}


def powered() -> Job:
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3)
    return wrapped(hook=powerSGD_hook.powerSGD_hook, state=state)


def built_in() -> Job:
    job = wrapped()
    job.model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)  # type: ignore[operator]
    return job


def local() -> Job:
    """Replicas take steps of their own between two averages."""
    state = post_localSGD_hook.PostLocalSGDState(None, dist.new_subgroups(group_size=1)[0], start_localSGD_iter=2)
    return wrapped(hook=post_localSGD_hook.post_localSGD_hook, state=state)


TWO = {"accumulation": 2}
way("accumulation", build=wrapped, turn=accumulated, settings=TWO)
way("accumulation_reduced_every_time", build=wrapped, turn=lambda j, s: accumulated(j, s, apart=False), settings=TWO)
way("accumulation_not_told", build=wrapped, turn=accumulated)
way("find_unused_parameters", build=lambda: wrapped(Branching(), find_unused_parameters=True))
way("static_graph", build=lambda: wrapped(static_graph=True))
way(
    "static_graph_and_accumulation",
    build=lambda: wrapped(static_graph=True),
    turn=first_one_synchronised,
    settings=TWO,
)
way("bucket_views", build=lambda: wrapped(gradient_as_bucket_view=True))
way(
    "bucket_views_and_accumulation",
    build=lambda: wrapped(gradient_as_bucket_view=True),
    turn=accumulated,
    settings=TWO,
)
way("many_buckets", build=lambda: wrapped(bucket_cap_mb=0.0001))
way("fp16_hook", build=lambda: wrapped(hook=default_hooks.fp16_compress_hook), faults=UNREDUCED)
way("bf16_hook", build=lambda: wrapped(hook=bf16), faults=UNREDUCED)
way("power_sgd_hook", build=powered, faults=UNREDUCED)
way("built_in_hook", build=built_in, faults=UNREDUCED)
way("local_sgd_hook", build=local, faults=("finite", "at_rest"))
way("stock_hook", build=lambda: wrapped(hook=default_hooks.allreduce_hook))
way("own_hook_not_promised", build=lambda: wrapped(hook=averaged), faults=UNREDUCED)
way("own_hook_promised", build=lambda: wrapped(hook=averaged), settings={"lossless_hook": True})
way(
    "own_hook_promised_and_options",
    build=lambda: wrapped(hook=averaged, static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=0.0001),
    turn=first_one_synchronised,
    settings=TWO | {"lossless_hook": True},
)
way("own_hook_promised_wrongly", build=lambda: wrapped(hook=bf16), settings={"lossless_hook": True}, faults=UNREDUCED)
