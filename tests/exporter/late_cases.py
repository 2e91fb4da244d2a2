"""Train for real on three gloo ranks with numbers that are read a step late, as on a GPU. Started by test_late.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from streams import FakeCuda
from syncs import counted
from torch.nn.parallel import DistributedDataParallel
from training_job import Net, armed, case, events, failure, run_cases, state, train, watch

import lastgood
from lastgood import monitor as watching
from lastgood.cadences import REVIEW_EVERY
from lastgood.faults import Fault
from lastgood.injection_points import NoInjection
from lastgood.readback import LateOnHost
from lastgood.side_stream import SideStream

AUDITS = {"replica_every": 6, "replay_every": 6, "at_rest_every": 0}

OPTIMIZERS = {
    "fused AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, fused=True),
    "fused SGD": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, fused=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
}


def build(name: str) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Net())
    return ddp, OPTIMIZERS[name](ddp.parameters())


def late(ddp: Any, optimizer: Any, root: Path, **settings: Any) -> lastgood.Monitor:
    """Watch with numbers that come a step late."""
    before = watching.readback_for
    watching.readback_for = lambda device: LateOnHost()
    try:
        return watch(ddp, optimizer, root, **{**AUDITS, **settings})
    finally:
        watching.readback_for = before


def said(root: Path) -> list[list[Any]]:
    return [[e["check"], e["step"], e["contained"]] for e in events(root, "finding")]


def nan_at(step: int) -> Fault:
    return Fault(site="gradient", kind="nan", rank=1, step=step, permanent=False)


@case
def same_weights(root: Path) -> Any:
    out = []
    for watched in (False, True):
        ddp, optimizer = build("fused AdamW")
        monitor = late(ddp, optimizer, root) if watched else None
        train(ddp, optimizer, monitor, 15)
        out.append(state(ddp, optimizer))
        if monitor:
            monitor.close()
    checks = [(e["check"], e["phase"], e["result"]) for e in events(root, "check")]
    return {"equal": out[0] == out[1], "checks": checks, "passed": monitor.passed, "findings": said(root)}


@case
def a_nan_is_kept_out(root: Path) -> Any:
    """Per optimizer: the state before the wrong step, after it, and what was known when."""
    out = {}
    for name in OPTIMIZERS:
        ddp, optimizer = build(name)
        folder = root / name.replace(" ", "-")
        monitor = late(ddp, optimizer, folder, policy="skip", injector=armed(nan_at(3), ddp.module.first))
        train(ddp, optimizer, monitor, 2)
        before = state(ddp, optimizer)
        train(ddp, optimizer, monitor, 1, first=3)
        after, known = state(ddp, optimizer), said(folder)
        train(ddp, optimizer, monitor, 1, first=4)
        moved, told = state(ddp, optimizer), said(folder)
        train(ddp, optimizer, monitor, 3, first=5)
        monitor.close()
        verdicts = [(e["status"], e["action"]) for e in events(folder, "verdict")]
        out[name] = {"kept": before == after, "known_at_once": known, "moved": moved != after, "told": told,
                     "verdicts": verdicts, "step": monitor.step, "all": said(folder)}  # fmt: skip
    return out


class WrongAverage(NoInjection):
    """One element of the result is wrong on every rank."""

    def __init__(self, step: int) -> None:
        self.at = step

    def reduced(self, index: int, tensor: torch.Tensor, step: int, rank: int) -> None:
        if step == self.at and index == 0:
            tensor[3] += 10.0


@case
def a_wrong_average_stops_a_step_later(root: Path) -> Any:
    ddp, optimizer = build("fused AdamW")
    monitor = late(ddp, optimizer, root, injector=WrongAverage(3))
    train(ddp, optimizer, monitor, 2)
    before = state(ddp, optimizer)
    train(ddp, optimizer, monitor, 1, first=3)
    kept, known = state(ddp, optimizer) == before, said(root)
    text = failure(lambda: train(ddp, optimizer, monitor, 2, first=4))
    monitor.close()
    ended = [(e["reason"], e["last_step"]) for e in events(root, "run.ended")]
    return {"kept": kept, "known_at_once": known, "text": text, "told": said(root), "step": monitor.step,
            "untouched": state(ddp, optimizer) == before, "ended": ended}  # fmt: skip


@case
def under_record_it_enters_the_weights(root: Path) -> Any:
    ddp, optimizer = build("fused AdamW")
    monitor = late(ddp, optimizer, root, policy="record", injector=WrongAverage(3))
    train(ddp, optimizer, monitor, 2)
    before = state(ddp, optimizer)
    train(ddp, optimizer, monitor, 1, first=3)
    entered = state(ddp, optimizer) != before
    train(ddp, optimizer, monitor, 2, first=4)
    monitor.close()
    immediate = [(e["check"], e["result"], e["reason"]) for e in events(root, "check") if e["phase"] == "immediate"]
    return {"entered": entered, "told": said(root), "immediate": immediate}


@case
def an_optimizers_first_step(root: Path) -> Any:
    """A wrong first step of SGD with momentum, in a run in which no audit reads it at once."""
    ddp, optimizer = build("fused SGD")
    injector = armed(nan_at(1), ddp.module.first)
    monitor = late(ddp, optimizer, root, policy="skip", injector=injector, replay_every=0, replica_every=9)
    before = state(ddp, optimizer)
    train(ddp, optimizer, monitor, 1)
    kept = state(ddp, optimizer) == before
    train(ddp, optimizer, monitor, 4, first=2)
    largest = max(float(s["momentum_buffer"].abs().max()) for s in optimizer.state.values())
    monitor.close()
    return {"kept": kept, "momentum": largest, "told": said(root)}


@case
def the_last_step_is_judged_before_a_save_and_at_close(root: Path) -> Any:
    out = {}
    for name in ("save", "close"):
        ddp, optimizer = build("fused AdamW")
        folder = root / name
        monitor = late(ddp, optimizer, folder, injector=WrongAverage(4))
        train(ddp, optimizer, monitor, 4)
        known = said(folder)

        def save(monitor: lastgood.Monitor = monitor, folder: Path = folder) -> None:
            with monitor.checkpoint(folder / "step-4.pt"):
                raise AssertionError("a save of a step that is refused was entered")

        text = failure(save if name == "save" else monitor.close)
        monitor.close()
        out[name] = {"known_at_once": known, "text": text, "told": said(folder)}
    return out


@case
def accumulation_with_a_reduce_per_micro_batch(root: Path) -> Any:
    """The first of two reduces of a step is wrong: the step stays out."""
    ddp, optimizer = build("fused AdamW")

    class First(WrongAverage):
        left = 1

        def reduced(self, index: int, tensor: torch.Tensor, step: int, rank: int) -> None:
            if step == self.at and index == 0 and self.left:
                self.left -= 1
                tensor[3] += 10.0

    monitor = late(ddp, optimizer, root, policy="skip", accumulation=2, injector=First(3))
    states = []
    for step in range(1, 6):
        for _ in range(2):
            torch.manual_seed(step)
            (monitor.loss(torch.randn(8, 16)) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        states.append(state(ddp, optimizer))
    monitor.close()
    return {"kept": states[1] == states[2], "moved": states[2] != states[3], "told": said(root)}


@case
def nothing_waits_for_the_device(root: Path) -> Any:
    """Calls that would make the host wait for a device, in clean steps between two audits."""
    out = {}
    for name in OPTIMIZERS:
        ddp, optimizer = build(name)
        plain, plain_optimizer = build(name)
        monitor = late(ddp, optimizer, root / name.replace(" ", "-"))
        train(ddp, optimizer, monitor, 8)
        train(plain, plain_optimizer, None, 8)
        with counted() as own:
            train(plain, plain_optimizer, None, 3, first=9)
        with counted() as watched:
            train(ddp, optimizer, monitor, 3, first=9)
        monitor.close()
        out[name] = {"own": own, "watched": watched}
    return out


@case
def nothing_waits_with_a_budget(root: Path) -> Any:
    """The look at the costs begins and ends in these steps; the ranks are not at the same place when it begins."""
    ddp, optimizer = build("fused AdamW")
    monitor = late(ddp, optimizer, root, budget=0.5, replica_every=0, replay_every=0)
    train(ddp, optimizer, monitor, REVIEW_EVERY - 1)
    time.sleep(0.05 * dist.get_rank())
    shares = {}
    with counted() as seen:
        for step in range(REVIEW_EVERY, REVIEW_EVERY + 4):
            train(ddp, optimizer, monitor, 1, first=step)
            shares[step] = monitor.inspector.cadences.share()
    monitor.close()
    return {"seen": seen, "shares": shares}


class OnStreams(NoInjection):
    """Stand between a bucket's read and its reduce, on a fake of a GPU's streams."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def bucket(self, index: int, tensor: torch.Tensor, step: int) -> None:
        self.cuda.launch(f"read {index}")


@case
def what_a_reduce_waits_for(root: Path) -> Any:
    """Two buckets; the reduce runs on the communication's stream, as NCCL's does."""
    cuda = FakeCuda()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=0.0001)
    optimizer = OPTIMIZERS["fused AdamW"](ddp.parameters())
    monitor = late(ddp, optimizer, root, injector=OnStreams(cuda), replay_every=0)
    watched, comm = monitor._reduce, cuda.Stream(None)
    assert watched is not None
    monitor.inspector.side = watched.side = SideStream(
        torch.device("cuda"), cuda
    )  # real numbers of a CPU are not handed to it
    reduce, flags = watched.reduce, watched.flags

    def on_its_stream(bucket: Any) -> Any:
        comm.wait_stream(cuda.current)
        with cuda.stream(comm):
            cuda.launch(f"reduce {bucket.index()}")
        return reduce(bucket)

    def at_the_end() -> Any:
        cuda.launch("end")
        return flags()

    watched.reduce, watched.flags = on_its_stream, at_the_end  # type: ignore[method-assign]

    def rest_of_the_backward(_: Any) -> None:
        cuda.launch("backward")

    for parameter in ddp.module.parameters():
        parameter.register_post_accumulate_grad_hook(rest_of_the_backward)
    train(ddp, optimizer, monitor, 2)
    monitor.close()
    buckets = len({name for name, _, _ in cuda.work if name.startswith("reduce")})
    return {
        "buckets": buckets,
        "places": sorted({cuda.place_of(f"read {n}") for n in range(buckets)}),
        "reduce_waits": all(cuda.is_before(f"read {n}", f"reduce {n}") for n in range(buckets)),
        "backward_waits": cuda.is_before("read 0", "backward"),
        "reduce_waits_for_the_whole_backward": cuda.is_before("backward", "reduce 0"),
        "end_waits": all(cuda.is_before(f"read {n}", "end") for n in range(buckets)),
    }


if __name__ == "__main__":
    run_cases()
