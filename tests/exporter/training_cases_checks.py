"""The checks themselves, on real ranks: what runs, what is found, what the guard does, what a save refuses."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training_job import (
    armed,
    batch_of,
    build,
    case,
    events,
    failure,
    loss_fn,
    state,
    train,
    watch,
    weights,
)

from lastgood.faults import Fault
from lastgood.fingerprint import digest_tensors
from lastgood.injection_points import NoInjection
from lastgood.journal_read import JournalTail


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
    assert monitor.inspector.replay.replayer is not None
    round_ = monitor.inspector.replay.replayer.round(recorder.current, actual=False)
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
def a_nan_in_an_audited_step_that_is_recorded(root: Path) -> Any:
    ddp, optimizer = build()
    injector = armed(Fault(site="gradient", kind="nan", rank=1, step=2))
    injector.wrap(ddp.module)
    monitor = watch(ddp, optimizer, root, policy="record", replay_every=2, injector=injector)
    text = failure(lambda: train(ddp, optimizer, monitor, 2))
    monitor.close()
    rounds = [(e["phase"], e["step"] if "step" in e else e["state_step"], e["result"], e["reason"])
              for e in events(root, "check") if e["check"] == "replay"]  # fmt: skip
    return {"text": text, "rounds": rounds, "not_run": monitor.inspector.why_not.get("replay", "")}


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
