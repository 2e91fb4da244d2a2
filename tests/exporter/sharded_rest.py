"""What the ways do not show: a gathered copy that is wrong, bits at rest, saves, and what cannot be watched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sharded_ways import plane, sharded
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from training_job import armed, case, events, failure, loss_fn, watch
from ways_job import Job, everything, plain, train

from lastgood import fsdp_watch
from lastgood.faults import Fault

WRONG_STEP = 4


class WrongGather:
    """An all-gather that hands some ranks a wrong value in one step: in a copy, or in what is sent to all."""

    def __init__(self, inner: Any, job: Job, ranks: tuple[int, ...]) -> None:
        self.inner, self.job, self.ranks = inner, job, ranks

    def allocate(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.allocate(*args, **kwargs)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        work = self.inner(output_tensor=output_tensor, input_tensor=input_tensor, group=group, async_op=async_op)
        if self.job.monitor and self.job.monitor.step + 1 == WRONG_STEP and dist.get_rank() in self.ranks:
            output_tensor.view(torch.uint8)[13] ^= 1
        return work


def with_wrong_gather(
    root: Path,
    ranks: tuple[int, ...],
    build: Callable[[], Job] = sharded,
    turn: Callable[[Job, int], None] = plain,
    **settings: Any,
) -> dict[str, Any]:
    torch.manual_seed(0)
    job = build()
    layer: Any = job.module.middle
    layer.set_custom_all_gather(WrongGather(layer._get_fsdp_state()._fsdp_param_groups[0]._all_gather_comm, job, ranks))
    job.monitor = watch(job.model, job.optimizers[0], root, loss_fn=job.loss_fn, **settings)
    text = failure(lambda: train(job, turn))
    job.monitor.close()
    return said(root) | {"text": text, "step": job.monitor.step}


def said(root: Path) -> dict[str, Any]:
    return {
        "findings": [(e["check"], e["phase"], e["step"], e["ranks"], e["tensor"]) for e in events(root, "finding")],
        "verdicts": [(e["status"], [s["rank"] for s in e["suspects"]]) for e in events(root, "verdict")],
    }


@case
def one_copy_is_wrong(root: Path) -> Any:
    return with_wrong_gather(root, (1,))


@case
def all_copies_are_wrong(root: Path) -> Any:
    return with_wrong_gather(root, tuple(range(dist.get_world_size())))


@case
def one_copy_of_a_replica_is_wrong(root: Path) -> Any:
    return with_wrong_gather(root, (1,), lambda: sharded(plane))


@case
def bits_of_a_shard_change_at_rest(root: Path) -> Any:
    torch.manual_seed(0)
    job = sharded()
    held: Any = job.module.last.weight  # between forward and backward its place is taken by the gathered one

    def flipping(model: nn.Module, batch: Tensor) -> Tensor:
        out = loss_fn(model, batch)
        if job.monitor and job.monitor.step + 1 == 6 and dist.get_rank() == 1:
            held._local_tensor.data.view(-1)[:1].view(torch.int32).bitwise_xor_(1)
        return out

    job.monitor = watch(job.model, job.optimizers[0], root, loss_fn=flipping, at_rest_every=2)
    text = failure(lambda: train(job, plain))
    job.monitor.close()
    return said(root) | {"text": text}


@case
def one_average_between_replicas_is_wrong(root: Path) -> Any:
    torch.manual_seed(0)
    job = sharded(plane)
    injector = armed(Fault(site="reduce-one", kind="scale", rank=1, step=3, bucket=1))
    job.monitor = watch(job.model, job.optimizers[0], root, injector=injector)
    text = failure(lambda: train(job, plain))
    job.monitor.close()
    return said(root) | {"text": text}


@case
def what_cannot_be_watched(root: Path) -> Any:
    """A shard group of one rank never reduces by a reduce-scatter; its replicas are compared all the same."""
    torch.manual_seed(0)
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("replicate", "shard"))
    job = sharded(lambda: mesh)
    job.monitor = watch(job.model, job.optimizers[0], root)
    text = failure(lambda: train(job, plain))
    job.monitor.close()
    return said(root) | {
        "text": text,
        "not_run": events(root, "run.started")[0]["not_run"],
        "passed": sorted(job.monitor.passed),
    }


def with_replays_that_fail(root: Path, ranks: tuple[int, ...], *, backward: bool) -> dict[str, Any]:
    """In a replay the loss function raises on some ranks, in its forward or in its backward; training is untouched."""
    torch.manual_seed(0)
    job = sharded()
    trained = [0]

    def fails(*_: Any) -> None:
        raise RuntimeError("out of luck")

    def failing(model: nn.Module, batch: Tensor) -> Tensor:
        replayed = job.monitor is not None and trained[0] == job.monitor.step + 1
        trained[0] = job.monitor.step + 1 if job.monitor else 0
        if not replayed or dist.get_rank() not in ranks:
            return loss_fn(model, batch)
        if not backward:
            net: Any = model
            hook = net.middle.register_forward_hook(fails)
            try:
                return loss_fn(model, batch)
            finally:
                hook.remove()
        out: Tensor = model(batch)
        out.register_hook(fails)
        return out.square().mean()

    job.loss_fn = failing
    if root.name != "plain":
        job.monitor = watch(job.model, job.optimizers[0], root, loss_fn=failing)
    text = failure(lambda: train(job, plain))
    digest = everything(job)
    if job.monitor is None:
        return {"digest": digest}
    job.monitor.close()
    rounds = sorted({(e["phase"], e["result"], e["reason"]) for e in events(root, "check") if e["check"] == "replay"})
    return said(root) | {"text": text, "digest": digest, "step": job.monitor.step, "rounds": rounds}


@case
def a_replay_that_fails_on_one_rank(root: Path) -> Any:
    return [
        with_replays_that_fail(root / "plain", (), backward=False),
        with_replays_that_fail(root / "forward", (1,), backward=False),
        with_replays_that_fail(root / "backward", (2,), backward=True),
    ]


@case
def on_one_rank(root: Path) -> Any:
    torch.manual_seed(0)
    job = sharded()
    job.monitor = watch(job.model, job.optimizers[0], root, at_rest_every=2)
    train(job, plain)
    with job.monitor.checkpoint(root / "save"):
        torch.save({}, root / "save")
    job.monitor.close()
    return {"passed": sorted(job.monitor.passed), "norms": min(job.monitor.inspector.judge.norms)}


@case
def a_part_that_cannot_be_read(root: Path) -> Any:
    """On one rank a look at what was reduced raises in the third step; the others must not wait for it."""
    torch.manual_seed(0)
    job = sharded(plane)
    job.monitor = watch(job.model, job.optimizers[0], root)
    looked = fsdp_watch.project

    def broken(*args: Any, **kwargs: Any) -> Any:
        if job.monitor and job.monitor.step + 1 == 3 and dist.get_rank() == 1:
            raise MemoryError("no room to read it")
        return looked(*args, **kwargs)

    fsdp_watch.project = broken
    try:
        text = failure(lambda: train(job, plain))
    finally:
        fsdp_watch.project = looked
    job.monitor.close()
    checks = [(e["state_step"], e["result"]) for e in events(root, "check") if e["check"] == "conservation"]
    return said(root) | {"text": text, "checks": checks, "passed": job.monitor.passed["conservation"]}
