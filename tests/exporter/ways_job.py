"""Examine one way to train: a clean run with and without lastgood, then one run per fault in its reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from training_job import CASES, armed, batch_of, events, failure, loss_fn, watch

import lastgood
from lastgood.faults import Fault, Injector
from lastgood.fingerprint import digest_tensors
from lastgood.sharded import locally

STEPS = 9
"""Audited steps: 1, 4 and 8, the last with the optimizer's state; sampled at rest: 3, 6 and 9."""

FAULTS: dict[str, Fault] = {
    "replay": Fault(site="gradient", kind="scale", rank=1, step=4),
    "conservation": Fault(site="bucket", kind="scale", rank=1, step=3),
    "one_result": Fault(site="reduce-one", kind="scale", rank=1, step=3),
    "replica": Fault(site="weight", kind="bit", rank=1, step=2),
    "finite": Fault(site="gradient", kind="nan", rank=1, step=3),
    "at_rest": Fault(site="at-rest", kind="bit", rank=1, step=6),
    "state": Fault(site="optimizer", kind="bit", rank=1, step=7),
    "replay_of_a_permanent_fault": Fault(site="gradient", kind="scale", rank=1, step=4, permanent=True),
}
ALL = ("replay", "conservation", "one_result", "replica", "finite", "at_rest", "state")
UNREDUCED = ("replay", "replica", "finite", "at_rest", "state")
"""What is in reach where the reduce is not measured."""


@dataclass
class Job:
    """One run of a way. ``model`` is what the loop calls."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    monitor: lastgood.Monitor | None = None
    scaler: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    loss_fn: Callable[[nn.Module, Any], Any] = loss_fn

    def loss(self, batch: Any) -> Any:
        return self.monitor.loss(batch) if self.monitor else self.loss_fn(self.model, batch)

    @property
    def module(self) -> Any:
        inner: Any = self.model
        while inner is not (deeper := getattr(inner, "_orig_mod", getattr(inner, "module", inner))):
            inner = deeper
        return inner

    def update(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def plain(job: Job, step: int) -> None:
    job.loss(batch_of(step)).backward()
    job.update()


@dataclass(frozen=True)
class Way:
    """``build`` makes the job, ``turn`` is one optimizer step of the loop, ``layer`` has the faults behind it.

    ``own``: faults that are others than those of :data:`FAULTS`. ``injector``: what puts them in.
    """

    build: Callable[[], Job]
    turn: Callable[[Job, int], None] = plain
    faults: tuple[str, ...] = ALL
    settings: Mapping[str, Any] = field(default_factory=dict)
    layer: Callable[[Job], nn.Module] = lambda job: job.module.first
    own: Mapping[str, Fault] = field(default_factory=dict)
    injector: type[Injector] = Injector


def way(name: str, **parts: Any) -> None:
    """Register a way to train as a case."""
    CASES[name] = lambda root: examine(Way(**parts), root)


def train(job: Job, turn: Callable[[Job, int], None]) -> None:
    for step in range(1, STEPS + 1):
        torch.manual_seed(step * 7 + dist.get_rank())
        turn(job, step)


def examine(way: Way, root: Path) -> dict[str, Any]:
    plainly, watched = [run(way, root / "clean", watching) for watching in (False, True)]
    said = events(root / "clean", "check")
    clean = {
        "equal": plainly[:2] == watched[:2],
        "moved": watched[0] != watched[1],
        "findings": len(events(root / "clean", "finding")),
        "not_run": events(root / "clean", "run.started")[0]["not_run"],
        "checks": sorted({(e["check"], e["phase"], e["result"], e["reason"]) for e in said}),
        "passed": watched[2],
    }
    return {"clean": clean, "faults": {name: with_fault(way, root / name, name) for name in way.faults}}


def run(way: Way, root: Path, watching: bool) -> tuple[str, str, list[str]]:
    """Train without a fault; return the digests of everything before and after, and the checks that passed."""
    torch.manual_seed(0)
    job = way.build()
    before = everything(job)
    if watching:
        job.monitor = start(way, job, root)
    train(job, way.turn)
    after = everything(job)
    if not job.monitor:
        return before, after, []
    job.monitor.close()
    return before, after, sorted(job.monitor.passed)


def everything(job: Job) -> str:
    """Digest weights, optimizer state, buffers, the scaler and the generator."""
    tensors: list[tuple[str, Tensor]] = [*job.module.named_parameters(), *job.module.named_buffers()]
    for number, optimizer in enumerate(job.optimizers):
        leaves = tree_leaves(list(optimizer.state.values()))
        tensors += [(f"{number}/{i}", leaf.detach()) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    scaler = job.scaler.state_dict() if job.scaler else ""
    return f"{digest_tensors(locally(tensors), lanes=2).hex()} {scaler}"


def start(way: Way, job: Job, root: Path, **more: Any) -> lastgood.Monitor:
    optimizers = job.optimizers if len(job.optimizers) > 1 else job.optimizers[0]
    settings = {
        "scaler": job.scaler,
        "loss_fn": job.loss_fn,
        "at_rest_every": 3,
        "state_every": 8,
        **way.settings,
        **more,
    }
    return watch(job.model, optimizers, root, **settings)


def with_fault(way: Way, root: Path, name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    job = way.build()
    injector = armed(way.own.get(name) or FAULTS[name], way.layer(job), way.injector)
    job.monitor = start(way, job, root, injector=injector)
    text = failure(lambda: train(job, way.turn))
    job.monitor.close()
    return {
        "text": text,
        "injected": len(events(root, "injection")),
        "findings": [(e["check"], e["phase"], e["step"], e["ranks"]) for e in events(root, "finding")],
        "verdicts": [(e["status"], e["action"]) for e in events(root, "verdict")],
        "step": job.monitor.step,
    }
