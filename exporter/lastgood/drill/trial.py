"""Train one trial on one rank: a small transformer with dropout, watched, with the fault of this rank's device.

Whatever a check finds is only recorded (policy ``record``) and training goes on, so a trial shows everything that the
detector says about a fault until the end. Beside lastgood the ranks keep a truth of their own (:class:`Witness`).
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

import lastgood
from lastgood.demo.model import Batch, CharacterTransformer, loss_of
from lastgood.demo.text import mix, sample
from lastgood.drill.plan import Trial
from lastgood.fault_specs import LAYER_SITES
from lastgood.faults import Injector
from lastgood.monitor import Monitor
from lastgood.rot import rot_

WIDTH: Final = 32
ROWS: Final = 4
LENGTH: Final = 32
DROPOUT: Final = 0.1


def run_trial(trial: Trial, folder: Path, corpus: Tensor) -> dict[str, Any] | None:
    """Train the trial in the process group that is open; return its truth on the first rank."""
    os.environ["LASTGOOD_NODE"], os.environ["LOCAL_RANK"] = f"node-{dist.get_rank() + 1}", "0"
    began = time.monotonic()
    with _threads(1 + dist.get_rank() if trial.sort == "threads" else 1):
        model, optimizer = _model(trial)
        monitor, injector = _watch(trial, folder, model, optimizer)
        witness = Witness(trial, model, optimizer, injector)
        _train(trial, folder, monitor, witness, corpus)
        told = witness.told()
        facts = _reload(trial, folder) if trial.reloads else {"rotten": "", "refused": None}
    return None if told is None else {**told, **facts, "seconds": round(time.monotonic() - began, 3)}


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _model(trial: Trial) -> tuple[CharacterTransformer, Optimizer]:
    torch.manual_seed(trial.seed)
    model = CharacterTransformer(WIDTH, blocks=1, heads=2, dropout=0.0 if trial.sort == "unordered" else DROPOUT)
    if trial.sort == "sharded":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in (*model.blocks, model):
            fully_shard(part, mesh=mesh)
    return model, AdamW(model.parameters(), lr=3e-3)


def _watch(
    trial: Trial, folder: Path, model: CharacterTransformer, optimizer: Optimizer
) -> tuple[Monitor, Injector | None]:
    injector = _injector(trial, model)
    monitor = lastgood.watch(
        model if trial.sort == "sharded" else DistributedDataParallel(model),
        optimizer,
        run_dir=folder / trial.name,
        run=trial.name,
        loss_fn=_unordered if trial.sort == "unordered" else loss_of,
        injector=injector,
        policy="record",
        replica_every=trial.replica_every,
        state_every=trial.state_every,
        replay_every=trial.replay_every,
        at_rest_every=trial.at_rest_every,
        devices="off",
    )
    return monitor, injector


def _injector(trial: Trial, model: CharacterTransformer) -> Injector | None:
    """Return the armed injector of this rank's device; the layers of the model are numbered."""
    rank = dist.get_rank()
    fault = next((f for f in trial.faults if f.rank == rank or f.site == "reduce-all"), None)
    if fault is None:
        return None
    injector = Injector(fault, rank)
    if fault.site in LAYER_SITES:
        block: Any = model.blocks[0]
        injector.wrap((block.attention, block.projection, block.feed)[trial.layer])
    injector.arm()
    return injector


def _unordered(model: nn.Module, batch: Batch) -> Tensor:
    """Compute the loss of the rows in an order that no seed repeats: the sums over rows are rounded otherwise."""
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    order = torch.randperm(len(batch[0]), generator=generator)
    return loss_of(model, (batch[0][order], batch[1][order]))


def _train(trial: Trial, folder: Path, monitor: Monitor, witness: Witness, corpus: Tensor) -> None:
    rank, model, optimizer = dist.get_rank(), witness.model, witness.optimizer
    _save(trial, folder, monitor, model, optimizer, 0)
    for step in range(1, trial.steps + 1):
        batch = sample(corpus, seed=trial.seed, step=step, rank=rank, rows=ROWS, length=LENGTH)
        if trial.audits(step):
            witness.look()
        torch.manual_seed(mix(trial.seed, step, rank))
        loss = monitor.loss(batch)
        loss.backward()
        if trial.audits(step):
            witness.recompute(step, batch)
        witness.backward(step, loss, monitor)
        optimizer.step()
        optimizer.zero_grad()
        witness.updated()
        if trial.saves(step):
            _save(trial, folder, monitor, model, optimizer, step)
    monitor.close()


def _path(trial: Trial, folder: Path, step: int) -> Path:
    return folder / trial.name / "checkpoints" / f"step-{step:06}.pt"


def _save(trial: Trial, folder: Path, monitor: Monitor, model: nn.Module, optimizer: Optimizer, step: int) -> None:
    path = _path(trial, folder, step)
    with monitor.checkpoint(path):
        if dist.get_rank() == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def _reload(trial: Trial, folder: Path) -> dict[str, Any]:
    """Let the last save rot, if this trial does, and resume from it as a restart would."""
    path, rotten = _path(trial, folder, trial.steps), ""
    if dist.get_rank() == 0 and trial.rot is not None:
        rotten = rot_(path, trial.rot)
    dist.barrier()
    model, optimizer = _model(trial)
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    monitor, _ = _watch(trial, folder, model, optimizer)
    refused = False
    try:
        monitor.resume(path)
    except lastgood.IntegrityError:
        refused = True
    with suppress(lastgood.IntegrityError):
        monitor.close()
    return {"rotten": rotten, "refused": refused}


class Witness:
    """Keep one rank's truth by means of its own: digests of bytes, and gradients without the fault."""

    def __init__(self, trial: Trial, model: nn.Module, optimizer: Optimizer, injector: Injector | None) -> None:
        self.trial, self.model, self.optimizer, self._injector = trial, model, optimizer, injector
        self._weights, self._state = [""], [""]
        self._nonfinite: list[int] = []
        self._norms = [0.0]
        self._changed: list[int] = []
        self._seen: dict[str, Tensor] = {}
        self._hooks: list[Any] = []
        self._weights[0], self._state[0] = self._digests()

    def look(self) -> None:
        """Keep the local gradient of the backward that comes; a replay's later one is not the training's."""
        self._seen = {}
        if self.trial.sort == "sharded":  # a hook would be on a shard
            return
        for name, parameter in self.model.named_parameters():

            def keep(gradient: Tensor, name: str = name) -> None:
                if name not in self._seen:
                    self._seen[name] = gradient.detach().clone()

            self._hooks.append(parameter.register_hook(keep))  # type: ignore[no-untyped-call]

    def recompute(self, step: int, batch: Batch) -> None:
        """Compute the gradient of this rank's step again, without the fault, and compare the bytes."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self.trial.sort in ("unordered", "sharded"):  # the one never repeats itself, the other not on its own
            return
        armed = self._injector is not None and self._injector.armed
        if self._injector is not None:
            self._injector.disarm()
        torch.manual_seed(mix(self.trial.seed, step, dist.get_rank()))
        named = list(self.model.named_parameters())
        right = torch.autograd.grad(loss_of(self.model, batch), [p for _, p in named])
        if self._injector is not None and armed:
            self._injector.arm()
        if any(digest([self._seen[name]]) != digest([grad]) for (name, _), grad in zip(named, right, strict=True)):
            self._changed.append(step)

    def backward(self, step: int, loss: Tensor, monitor: Monitor) -> None:
        """Note whether loss and reduced gradient are finite, and the local gradient's norm."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not (bool(loss.isfinite()) and all(bool(g.isfinite().all()) for g in grads)):
            self._nonfinite.append(step)
        norm = monitor.inspector.judge.norms[-1]
        self._norms.append(norm if math.isfinite(norm) else 0.0)

    def updated(self) -> None:
        """Digest weights and optimizer state after an update."""
        weights, state = self._digests()
        self._weights.append(weights)
        self._state.append(state)

    def _digests(self) -> tuple[str, str]:
        states = [self.optimizer.state[p] for p in self.model.parameters() if p in self.optimizer.state]
        tensors = [v for state in states for v in state.values() if isinstance(v, Tensor)]
        return digest(self.model.parameters()), digest(tensors)

    def told(self) -> dict[str, Any] | None:
        """Gather what all ranks saw; return it on the first rank. Collective."""
        own = (self._weights, self._state, self._nonfinite, self._norms, self._changed)
        rows: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(rows, own)
        if dist.get_rank():
            return None
        weights, state, nonfinite, norms, changed = zip(*rows, strict=True)
        audited = [step for step in range(1, self.trial.steps + 1) if self.trial.audits(step)]
        size = len(rows)
        return {
            "weights": [*zip(*weights, strict=True)],
            "state": [*zip(*state, strict=True)],
            "nonfinite": sorted({step for steps in nonfinite for step in steps}),
            "scales": [math.hypot(*step) / size for step in zip(*norms, strict=True)],
            "changed": {step: [rank for rank in range(size) if step in changed[rank]] for step in audited},
        }


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a digest of the bytes of contiguous CPU tensors, or of what this rank holds of them."""
    total = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        whole = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().contiguous()
        total.update(ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()))
    return total.hexdigest()
