"""Train for real on the ranks of one gloo job, one small case after the other, and print what each rank saw.

Started by test_training.py through ranks.py. A case returns plain data; an exception is its result, too.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import lastgood
from lastgood.faults import Fault, Injector
from lastgood.fingerprint import digest_tensors
from lastgood.injection_points import NoInjection
from lastgood.journal_read import JournalTail

ROOT = Path(sys.argv[1])
CASES: dict[str, Callable[[Path], Any]] = {}


def case(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    CASES[function.__name__] = function
    return function


class Net(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32) if norm else nn.Identity()
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.drop(torch.relu(self.norm(self.first(x)))))
        return out


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


def batch_of(step: int, micro: int = 0, rank: int | None = None) -> Tensor:
    rank = dist.get_rank() if rank is None else rank
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(step * 100 + micro * 10 + rank))


def build(norm: bool = False, hook: Any = None) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Net(norm))
    if hook is not None:
        ddp.register_comm_hook(None, hook)
    return ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-2)


def watch(ddp: Any, optimizer: Any, root: Path, **settings: Any) -> lastgood.Monitor:
    settings = {"loss_fn": loss_fn, "replica_every": 4, "replay_every": 4, "metrics_port": 0, **settings}
    return lastgood.watch(ddp, optimizer, run_dir=root / "run", **settings)


def train(
    ddp: DistributedDataParallel,
    optimizer: Any,
    monitor: lastgood.Monitor | None,
    steps: int,
    accumulation: int = 1,
    first: int = 1,
) -> None:
    for step in range(first, first + steps):
        torch.manual_seed(step * 7 + dist.get_rank())
        for micro in range(accumulation):
            x = batch_of(step, micro)
            with nullcontext() if micro == accumulation - 1 else ddp.no_sync():
                loss = monitor.loss(x) if monitor else loss_fn(ddp, x)
                (loss / accumulation).backward()
        optimizer.step()
        optimizer.zero_grad()


def weights(model: nn.Module) -> str:
    return digest_tensors(model.named_parameters(), lanes=2).hex()


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    tensors = [(f"{i}/{k}", v) for i, s in enumerate(optimizer.state.values()) for k, v in s.items()]
    return weights(model) + digest_tensors(tensors, lanes=2).hex()


def events(root: Path, *types: str) -> list[dict[str, Any]]:
    dist.barrier()
    found, unreadable = JournalTail(root / "run").poll()
    assert not unreadable, unreadable
    unique = {e.key: e for e in sorted(found, key=lambda e: e.time, reverse=True)}.values()
    wanted = sorted((e for e in unique if e.type in types), key=lambda e: e.time)
    return [{"type": e.type, "step": e.step, "rank": e.rank, **e.data} for e in wanted]


def failure(action: Callable[[], Any]) -> str:
    try:
        action()
    except lastgood.IntegrityError as error:
        return f"{error}"
    return ""


def armed(fault: Fault, module: nn.Module | None = None) -> Injector:
    injector = Injector(fault, rank=dist.get_rank())
    if module is not None:
        injector.wrap(module)
    injector.arm()
    return injector


@case
def same_weights_with_and_without(root: Path) -> Any:
    out = []
    for watched in (False, True):
        ddp, optimizer = build(norm=True)
        monitor = watch(ddp, optimizer, root, accumulation=2) if watched else None
        train(ddp, optimizer, monitor, 9, accumulation=2)
        out.append(state(ddp, optimizer) + digest_tensors(ddp.module.named_buffers(), lanes=2).hex())
        if monitor:
            monitor.close()
    return {"equal": out[0] == out[1], "checks": [(e["check"], e["phase"], e["result"]) for e in events(root, "check")]}


def halved(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    buffer = bucket.buffer().half().div_(dist.get_world_size())
    work = dist.all_reduce(buffer, async_op=True)
    target = bucket.buffer()
    return work.get_future().then(lambda f: target.copy_(f.value()[0]))


halved.__annotations__ = {"state": None, "bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]}


@case
def a_users_own_hook(root: Path) -> Any:
    out = []
    for watched in (False, True):
        ddp, optimizer = build(hook=halved)
        monitor = watch(ddp, optimizer, root) if watched else None
        train(ddp, optimizer, monitor, 5)
        out.append(weights(ddp))
        if monitor:
            monitor.close()
    started = events(root, "run.started")[0]
    checks = [(e["check"], e["result"]) for e in events(root, "check")]
    return {"equal": out[0] == out[1], "not_run": started["not_run"], "checks": checks}


@case
def a_users_own_hook_and_nan(root: Path) -> Any:
    ddp, optimizer = build(hook=halved)
    fault = Fault(site="gradient", kind="nan", rank=1, step=3, permanent=False)
    monitor = watch(ddp, optimizer, root, injector=armed(fault, ddp.module.first))
    return failure(lambda: train(ddp, optimizer, monitor, 5))


@case
def skip_leaves_everything_bitwise(root: Path) -> Any:
    ddp, optimizer = build()
    fault = Fault(site="gradient", kind="nan", rank=1, step=3, permanent=False)
    monitor = watch(ddp, optimizer, root, policy="skip", injector=armed(fault, ddp.module.first))
    train(ddp, optimizer, monitor, 2)
    before = state(ddp, optimizer)
    train(ddp, optimizer, monitor, 1, first=3)
    after, grads = state(ddp, optimizer), [p.grad is None for p in ddp.parameters()]
    train(ddp, optimizer, monitor, 1, first=4)
    moved = state(ddp, optimizer) != after
    monitor.close()
    verdicts = [(e["status"], e["action"]) for e in events(root, "verdict")]
    findings = [(e["check"], e["phase"], e["contained"]) for e in events(root, "finding")]
    return {
        "equal": before == after,
        "zero_grad_ran": all(grads),
        "moved": moved,
        "step": monitor.step,
        "verdicts": verdicts,
        "findings": findings,
    }


@case
def everyone_raises_the_same(root: Path) -> Any:
    ddp, optimizer = build()
    fault = Fault(site="gradient", kind="scale", rank=2, step=2, permanent=True)
    monitor = watch(ddp, optimizer, root, injector=armed(fault, ddp.module.first))
    text = failure(lambda: train(ddp, optimizer, monitor, 6))
    monitor.close()
    ended = [(e["reason"], e["last_step"]) for e in events(root, "run.ended")]
    found = events(root, "finding")
    writers = sorted({e.rank for e in JournalTail(root / "run").poll()[0] if e.type == "finding"})
    return {"text": text, "step": monitor.step, "ended": ended, "writers": writers, "finding": found[0]}


@case
def a_batch_that_cannot_be_pickled(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, loss_fn=lambda model, batch: loss_fn(model, batch[0]))
    for step in range(1, 6):
        monitor.loss((batch_of(step), lambda: None)).backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.close()
    return [(e["phase"], e["result"], e["reason"]) for e in events(root, "check") if e["check"] == "replay"]


@case
def out_of_memory_in_a_replay(root: Path) -> Any:
    ddp, optimizer = build()

    def greedy(model: nn.Module, batch: Tensor) -> Tensor:
        if dist.get_rank() == 1 and not isinstance(model, DistributedDataParallel):
            raise torch.OutOfMemoryError("no memory left")
        return loss_fn(model, batch)

    monitor = watch(ddp, optimizer, root, loss_fn=greedy)
    train(ddp, optimizer, monitor, 5)
    monitor.close()
    return [(e["phase"], e["result"], e["reason"]) for e in events(root, "check") if e["check"] == "replay"]


@case
def a_replay_leaves_no_trace(root: Path) -> Any:
    ddp, optimizer = build(norm=True)
    monitor = watch(ddp, optimizer, root)
    loss = monitor.loss(batch_of(1))
    loss.backward()  # step 1 was audited in here
    grads = [p.grad.clone() for p in ddp.parameters() if p.grad is not None]
    before = weights(ddp), digest_tensors(ddp.module.named_buffers()).hex(), torch.get_rng_state().tolist()
    recorder = monitor.inspector.recorder
    assert recorder is not None
    assert monitor.inspector.replayer is not None
    round_ = monitor.inspector.replayer.round(recorder.current, actual=False)
    after = weights(ddp), digest_tensors(ddp.module.named_buffers()).hex(), torch.get_rng_state().tolist()
    same = all(torch.equal(p.grad, g) for p, g in zip(ddp.parameters(), grads, strict=True) if p.grad is not None)
    return {"ran": round_.ran, "disputes": len(round_.disputes), "same": same and before == after}


@case
def a_rank_that_comes_late_to_a_save(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, save_timeout_seconds=0.5)
    train(ddp, optimizer, monitor, 2)
    if dist.get_rank() == 2:
        time.sleep(1.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with monitor.checkpoint(root / "late"):
            if dist.get_rank() == 0:
                torch.save(ddp.module.state_dict(), root / "late")
    monitor.close()
    saved = len(events(root, "checkpoint.saved"))
    return {"saved": saved, "warned": [str(w.message) for w in caught if "waits" in str(w.message)]}


def save_and_resume(root: Path, change: Callable[[nn.Module], None]) -> str:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    train(ddp, optimizer, monitor, 3)
    path = root / "run" / "checkpoint"
    with monitor.checkpoint(path):
        if dist.get_rank() == 0:
            torch.save({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    monitor.close()
    ddp, optimizer = build()
    loaded = torch.load(path, weights_only=True)
    ddp.module.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    change(ddp.module)
    monitor = watch(ddp, optimizer, root)
    text = failure(lambda: monitor.resume(path))
    if not text:
        train(ddp, optimizer, monitor, 1, first=monitor.step + 1)
    monitor.close()
    return text


@case
def resume_what_was_saved(root: Path) -> Any:
    text = save_and_resume(root, lambda module: None)
    loaded = [(e["step"], e["path"], e["checks"]) for e in events(root, "checkpoint.loaded")]
    started = [(e["from_step"], e["parent"], e["parent_verified"]) for e in events(root, "run.started")]
    return {"text": text, "loaded": loaded, "started": started}


@case
def resume_what_was_changed(root: Path) -> Any:
    def flip(module: Any) -> None:
        if dist.get_rank() == 1:
            with torch.no_grad():
                module.last.weight[0, 0] += 1.0

    return save_and_resume(root, flip)


@case
def another_thread_count_accuses_nobody(root: Path) -> Any:
    torch.set_num_threads(2 if dist.get_rank() == 1 else 1)
    try:
        ddp, optimizer = build()
        monitor = watch(ddp, optimizer, root)
        train(ddp, optimizer, monitor, 6)
        monitor.close()
    finally:
        torch.set_num_threads(1)
    rounds = [e for e in events(root, "check") if e["check"] == "replay"]
    left_out = sorted({x["rank"] for e in rounds for x in e["exceptions"]})
    return {"findings": len(events(root, "finding")), "left_out": left_out, "rounds": len(rounds)}


@case
def a_job_that_does_not_repeat_itself(root: Path) -> Any:
    noise = torch.Generator().manual_seed(time.time_ns() % 2**31 + dist.get_rank())

    def noisy(model: nn.Module, batch: Tensor) -> Tensor:
        return loss_fn(model, batch) * (1 + 1e-3 * torch.rand((), generator=noise))

    ddp, optimizer = build()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monitor = watch(ddp, optimizer, root, loss_fn=noisy)
        train(ddp, optimizer, monitor, 9)
        monitor.close()
    rounds = [(e["result"], e["reason"]) for e in events(root, "check") if e["check"] == "replay"]
    said = [str(w.message) for w in caught if "not deterministic" in str(w.message)]
    return {"findings": len(events(root, "finding")), "rounds": rounds, "said": said}


@case
def record_only_records(root: Path) -> Any:
    ddp, optimizer = build()
    fault = Fault(site="reduce-one", kind="scale", rank=1, step=2, permanent=False)
    monitor = watch(ddp, optimizer, root, policy="record", injector=armed(fault))
    text = failure(lambda: train(ddp, optimizer, monitor, 3))
    monitor.close()
    found = [(e["check"], e["contained"], e["ranks"]) for e in events(root, "finding")]
    return {"text": text, "findings": found, "actions": sorted({e["action"] for e in events(root, "verdict")})}


@case
def too_little_to_be_seen_in_the_sum(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, policy="record")
    train(ddp, optimizer, monitor, 21)
    limit = monitor.inspector.tolerance
    assert limit is not None
    seen: list[float] = []

    class Nudge(NoInjection):  # a wrong value on one rank: above its own limit, below W times that
        def reduced(self, index: int, tensor: Tensor, step: int, rank: int) -> None:
            if step == 22 and rank == 1:
                tensor[0] += seen[0]

    scale = monitor.inspector.judge.norms[-1]
    norms = torch.tensor([scale**2], dtype=torch.float64)
    dist.all_reduce(norms)
    seen.append(2 * limit.value * float(norms.sqrt()) / dist.get_world_size())
    assert monitor._reduce is not None
    monitor._reduce.injector = Nudge()
    train(ddp, optimizer, monitor, 2, first=22)
    monitor.close()
    return [(e["check"], e["phase"], e["step"], e["ranks"]) for e in events(root, "finding")]


@case
def autocast_and_a_scaler(root: Path) -> Any:
    ddp, optimizer = build()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, backoff_factor=2.0**-12)
    monitor = watch(ddp, optimizer, root, scaler=scaler)
    for step in range(1, 7):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = monitor.loss(batch_of(step) * 1e5)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    monitor.close()
    replays = [(e["phase"], e["result"]) for e in events(root, "check") if e["check"] == "replay"]
    skipped = monitor.metrics._values["nonfinite_steps_total"][("local",)]
    return {"step": monitor.step, "findings": len(events(root, "finding")), "skipped": skipped, "replays": replays}


@case
def two_optimizers_and_one_decision(root: Path) -> Any:
    ddp, _ = build()
    optimizers = [torch.optim.SGD(ddp.module.first.parameters(), 0.1), torch.optim.AdamW(ddp.module.last.parameters())]
    fault = Fault(site="gradient", kind="nan", rank=0, step=2, permanent=False)
    monitor = watch(ddp, optimizers, root, policy="skip", injector=armed(fault, ddp.module.first))
    marks = []
    for step in range(1, 4):
        monitor.loss(batch_of(step)).backward()
        before = weights(ddp)
        for optimizer in optimizers:
            optimizer.step()
        marks.append(weights(ddp) == before)
        ddp.zero_grad()
    monitor.close()
    return {"unchanged": marks, "step": monitor.step}


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
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    with ddp.join():
        for step in range(1, 4 + dist.get_rank()):
            monitor.loss(batch_of(step)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return monitor.step


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


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    names = sys.argv[2].split(",") if len(sys.argv) > 2 and sys.argv[2] else list(CASES)
    for name in names:
        root = ROOT / name
        root.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        result = CASES[name](root)
        print("@" + json.dumps([name, result]), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
