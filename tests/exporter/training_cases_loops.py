"""The ways people write their loops, on real ranks: nobody is accused and training is left as it is."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from training_job import (
    Net,
    armed,
    batch_of,
    build,
    case,
    events,
    failure,
    loss_fn,
    train,
    watch,
    weights,
)

import lastgood
from lastgood.faults import Fault


class Nested(Net):
    """Re-run the first half inside the backward, as activation checkpointing does."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        hidden = checkpoint(lambda x: torch.relu(self.first(x)), x, use_reentrant=True)
        out: Tensor = self.last(self.drop(hidden))
        return out


@case
def a_nested_backward(root: Path) -> Any:
    out = []
    for watched in (False, True):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(Nested(), bucket_cap_mb=0.0001)
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
        monitor = watch(ddp, optimizer, root) if watched else None
        train(ddp, optimizer, monitor, 5)
        out.append(weights(ddp))
        if monitor:
            monitor.close()
    checks = sorted({(e["check"], e["result"]) for e in events(root, "check")})
    return {"equal": out[0] == out[1], "findings": len(events(root, "finding")), "checks": checks}


class Centred(nn.Module):
    """The forward depends on a buffer that every rank moves in its own way, and the wrapper broadcasts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 4)
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        out: Tensor = self.first(x - self.mean)
        return out


@case
def buffers_that_the_forward_needs(root: Path) -> Any:
    found = {}
    for broadcast in (True, False):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(Centred(), broadcast_buffers=broadcast)
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
        monitor = watch(ddp, optimizer, root / str(broadcast))
        train(ddp, optimizer, monitor, 6)
        with monitor.checkpoint(root / "save"):
            if dist.get_rank() == 0:
                torch.save(ddp.module.state_dict(), root / "save")
        train(ddp, optimizer, monitor, 1, first=7)
        monitor.close()
        replays = [e["result"] for e in events(root / str(broadcast), "check") if e["check"] == "replay"]
        found[str(broadcast)] = [len(events(root / str(broadcast), "finding")), sorted(set(replays)), len(replays)]
    return found


@case
def a_loss_fn_that_writes_into_its_batch(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, loss_fn=lambda m, b: loss_fn(m, b.mul_(0.5)), policy="record")
    train(ddp, optimizer, monitor, 9)
    monitor.close()
    replays = [e["result"] for e in events(root, "check") if e["check"] == "replay"]
    return {"findings": len(events(root, "finding")), "replays": sorted(set(replays))}


@case
def a_batch_that_is_written_after_the_loss(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, loss_fn=lambda m, b: loss_fn(m, b * 1.0))
    for step in range(1, 10):
        x = batch_of(step)
        loss = monitor.loss(x)
        if dist.get_rank() == 1:
            x.zero_()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.close()
    return {"findings": len(events(root, "finding"))}


@case
def gradients_below_the_normal_range(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, loss_fn=lambda m, b: loss_fn(m, b) * 1e-41)
    train(ddp, optimizer, monitor, 25)
    monitor.close()
    return {"findings": len(events(root, "finding"))}


@case
def parameters_that_the_wrapper_ignores(root: Path) -> Any:
    torch.manual_seed(dist.get_rank())
    model = Net()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["first.bias"])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    monitor = watch(ddp, optimizer, root)
    train(ddp, optimizer, monitor, 5)
    monitor.close()
    not_run = events(root, "run.started")[0]["not_run"]
    return {"findings": len(events(root, "finding")), "not_run": sorted(not_run)}


@case
def resume_on_some_ranks_only(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    path = root / "save"
    with monitor.checkpoint(path):
        if dist.get_rank() == 0:
            torch.save(ddp.module.state_dict(), path)
    monitor.close()
    monitor = watch(ddp, optimizer, root)
    out = []
    for mine, step in ((path if dist.get_rank() else root / "missing", None), (None, 5 + dist.get_rank())):
        try:
            monitor.resume(mine, step=step)
            out.append("resumed")
        except lastgood.ConfigError as error:
            out.append(f"{error}")
    monitor.close()
    return out


@case
def ranks_at_different_steps(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, replica_every=5, replay_every=0)
    monitor.step = 1_000_002 + (dist.get_rank() == 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(ddp, optimizer, monitor, 4)
    monitor.world.size = 1  # nothing to compare at the end of this
    return [str(w.message) for w in caught if "different optimizer steps" in str(w.message)]


@case
def warnings_that_are_errors(root: Path) -> Any:
    ddp, optimizer = build()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor = watch(ddp, optimizer, root, loss_fn=lambda m, b: loss_fn(m, b) * (1 + time.time_ns() % 1000 * 1e-6))
        train(ddp, optimizer, monitor, 5)
        monitor.close()
    return monitor.step


@case
def sparse_gradients(root: Path) -> Any:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.EmbeddingBag(50, 8, mode="sum", sparse=True)
            self.last = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.table(x))
            return out

    out = []
    for watched in (False, True):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(Table())
        optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
        monitor = watch(ddp, optimizer, root) if watched else None
        for step in range(1, 6):
            x = torch.randint(50, (8, 4), generator=torch.Generator().manual_seed(step * 9 + dist.get_rank()))
            (monitor.loss(x) if monitor else loss_fn(ddp, x)).backward()
            optimizer.step()
            optimizer.zero_grad()
        out.append(weights(ddp))
        if monitor:
            monitor.close()
    ran = {k[0]: v for k, v in monitor.metrics._values["check_runs_total"].items()} if monitor else {}
    return {"equal": out[0] == out[1], "findings": len(events(root, "finding")), "ran": ran}


@case
def other_arithmetic_on_one_rank(root: Path) -> Any:
    torch.set_flush_denormal(dist.get_rank() == 2)
    try:
        with torch.backends.mkldnn.flags(enabled=dist.get_rank() != 1):
            ddp, optimizer = build()
            monitor = watch(ddp, optimizer, root)
            train(ddp, optimizer, monitor, 5)
            monitor.close()
    finally:
        torch.set_flush_denormal(False)
    started = events(root, "run.started")[0]
    return {"findings": len(events(root, "finding")), "keys": len(started["environment"])}


@case
def complex_parameters(root: Path) -> Any:
    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(16, 4)
            self.phase = nn.Parameter(torch.ones(4, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return (self.first(x) * self.phase).abs()

    out = []
    for watched in (False, True):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(Wave())
        optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
        monitor = watch(ddp, optimizer, root) if watched else None
        train(ddp, optimizer, monitor, 5)
        out.append(weights(ddp))
        if monitor:
            monitor.close()
    return {"equal": out[0] == out[1], "findings": len(events(root, "finding"))}


def averaged(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer().mul_(1 / dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


averaged.__annotations__ = {"state": None, "bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]}


def unevenly(root: Path, ddp: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> int:
    """Train each rank one step longer than the rank before it; return how far it came."""
    monitor = watch(ddp, optimizer, root)
    with ddp.join():
        for step in range(1, 4 + dist.get_rank()):
            monitor.loss(batch_of(step)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return monitor.step


@case
def uneven_inputs_under_a_users_own_hook(root: Path) -> Any:
    return unevenly(root, *build(hook=averaged))


@case
def a_loss_fn_that_communicates(root: Path) -> Any:
    def counted(model: nn.Module, batch: Tensor) -> Tensor:
        count = torch.tensor([float(len(batch))])
        dist.all_reduce(count)
        return model(batch).square().sum() / count.item()

    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, loss_fn=counted)
    for step in range(1, 6):
        monitor.loss(batch_of(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.close()
    rounds = {(e["result"], e["reason"].split(": ")[-1]) for e in events(root, "check") if e["check"] == "replay"}
    return {"findings": len(events(root, "finding")), "rounds": sorted(rounds)}


@case
def another_mode_at_the_end(root: Path) -> Any:
    ddp, optimizer = build(norm=True)
    monitor = watch(ddp, optimizer, root)
    train(ddp, optimizer, monitor, 5)
    if dist.get_rank() == 0:
        ddp.eval()
    monitor.close()
    return {"findings": len(events(root, "finding")), "training": ddp.training}


@case
def autocast_around_the_loop(root: Path) -> Any:
    out = []
    for watched in (False, True):
        ddp, optimizer = build()
        monitor = watch(ddp, optimizer, root) if watched else None
        with torch.autocast("cpu", dtype=torch.bfloat16):  # its cache keeps casts of old weights
            train(ddp, optimizer, monitor, 5)
        out.append(weights(ddp))
        if monitor:
            monitor.close()
    return {"equal": out[0] == out[1], "findings": len(events(root, "finding"))}


@case
def uneven_inputs(root: Path) -> Any:
    return unevenly(root, *build())


@case
def lbfgs_takes_the_nan_in(root: Path) -> Any:
    ddp, _ = build()
    optimizer = torch.optim.LBFGS(ddp.parameters(), max_iter=1)
    fault = Fault(site="gradient", kind="nan", rank=1, step=2, permanent=False)
    monitor = watch(ddp, optimizer, root, injector=armed(fault, ddp.module.first))

    def loop() -> None:
        for step in range(1, 5):

            def closure(step: int = step) -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = monitor.loss(batch_of(step))
                loss.backward()
                return loss

            optimizer.step(closure)

    text = failure(loop)
    monitor.close()
    return {"stopped": bool(text), "contained": sorted({e["contained"] for e in events(root, "finding")})}


@case
def a_rank_that_forgets_to_resume(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, save_timeout_seconds=0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if dist.get_rank() == 2:
            time.sleep(1.5)
        monitor.resume(None, step=7)
    monitor.close()
    return [str(w.message) for w in caught if "waits" in str(w.message)]


@case
def close_inside_a_handler(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    try:
        raise FileNotFoundError("no checkpoint: start anew")
    except FileNotFoundError:
        train(ddp, optimizer, monitor, 3)
        monitor.close()
    return [(e["reason"], e["exit_code"]) for e in events(root, "run.ended")]


@case
def a_clean_run(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, replica_every=50, replay_every=100)
    train(ddp, optimizer, monitor, int(sys.argv[3]) if len(sys.argv) > 3 else 60)
    monitor.close()
    runs = {k[0]: v for k, v in monitor.metrics._values["check_runs_total"].items()}
    tolerance = monitor.inspector.tolerance
    return {"findings": len(events(root, "finding")), "runs": runs, "tolerance": tolerance and tolerance.value}
