"""Train on one rank: what torchrun starts on every node of the demo.

The fault belongs to a device. Every rank is told its node and slot, and only the rank that sits there arms the
injector, in whatever attempt: an attempt without that device has no fault (``reduce-all`` has no device: all arm it).

Everything is a function of (seed, step, rank): the batches, and the dropout. So an attempt that resumes from a
checkpoint follows the trajectory that the first one would have followed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lastgood
from lastgood.demo.model import CONTEXT, CharacterTransformer, loss_of
from lastgood.demo.orphan import end_with_parent
from lastgood.demo.status import StatusFile, status_path, write_pushed
from lastgood.demo.text import mix, read_corpus, sample
from lastgood.faults import Fault, Injector, fault_named
from lastgood.monitor import Monitor

COMPLETED: Final = 0
STOPPED: Final = 1
"""Exit code of a rank that raised ``IntegrityError``, as the journal's ``run.ended`` has it."""

DEVICE_SECONDS: Final = 0.5
"""A demo is over in a minute, so its fake GPUs are looked at more often than a real one would be."""

ROWS = 8
"""Passages in a batch of one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One attempt."""

    run_dir: Path
    run: str
    steps: int = 150
    seed: int = 0
    save_every: int = 25
    audit_every: int = 50
    save_probe: bool = False
    replay: bool = True
    resume: Path | None = None
    fault: Fault | None = None
    """The fault of this rank's device; None when the device is healthy."""
    devices: str = "auto"
    """The setting ``devices`` of this rank: with a fake GPU its mode, where it has one of its own."""


def run_attempt(settings: Settings) -> None:
    """Train a new model in the process group that is open, from the start or a checkpoint to the last step.

    Raises :class:`lastgood.IntegrityError` on every rank when a check stops the training.
    """
    torch.manual_seed(settings.seed)
    model = CharacterTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = 1 if settings.resume is None else 1 + _load(settings.resume, model, optimizer)
    monitor = lastgood.watch(
        # Without the option DDP lays its buckets out anew after the first step of an attempt, and gloo adds up in an
        # order that depends on a value's place: a resumed attempt would differ from the first one in the last bits.
        DistributedDataParallel(model, find_unused_parameters=True),
        optimizer,
        run_dir=settings.run_dir,
        run=settings.run,
        loss_fn=loss_of,
        replica_every=settings.audit_every,
        replay_every=settings.audit_every if settings.replay else 0,
        save_probe=settings.save_probe and settings.replay,
        injector=_injector(settings.fault, model),
        devices=settings.devices,
        device_seconds=DEVICE_SECONDS,
    )
    try:
        _train(settings, monitor, model, optimizer, first)
    except lastgood.IntegrityError:
        # The agent ends the node's other ranks when the first is gone; they are leaving by themselves.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    finally:
        try:
            monitor.close()
        finally:
            pusher = monitor.session.pusher
            write_pushed(settings.run_dir, monitor.attempt, dist.get_rank(), pusher.sent, pusher.lost)


def _injector(fault: Fault | None, model: CharacterTransformer) -> Injector | None:
    """Return an armed injector for this rank's fault; the site "gradient" is behind the first block."""
    if fault is None:
        return None
    injector = Injector(fault, rank=dist.get_rank())
    injector.wrap(model.blocks[0])
    injector.arm()
    return injector


def _train(
    settings: Settings, monitor: Monitor, model: torch.nn.Module, optimizer: torch.optim.Optimizer, first: int
) -> None:
    rank = dist.get_rank()
    corpus = read_corpus()
    if settings.resume is None:
        _save(settings, monitor, model, optimizer, 0)
    else:
        monitor.resume(settings.resume)
    with StatusFile(status_path(settings.run_dir, monitor.attempt) if rank == 0 else None) as status:
        for step in range(first, settings.steps + 1):
            torch.manual_seed(mix(settings.seed, step, rank))
            loss = monitor.loss(sample(corpus, seed=settings.seed, step=step, rank=rank, rows=ROWS, length=CONTEXT))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            status.write(step, float(loss.detach()), monitor.passed)
            if step % settings.save_every == 0 or step == settings.steps:
                _save(settings, monitor, model, optimizer, step)


def _save(
    settings: Settings, monitor: Monitor, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> None:
    """Save on the first rank; every rank takes part in the checks before it."""
    path = settings.run_dir / "checkpoints" / f"a{monitor.attempt}-step-{step:06}"
    with monitor.checkpoint(path):
        if dist.get_rank() == 0:
            path.parent.mkdir(exist_ok=True)
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def _load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load a checkpoint into model and optimizer; return its step."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as one rank of torchrun; return the exit code."""
    end_with_parent()
    settings = _settings(arguments)
    dist.init_process_group("gloo")
    try:
        run_attempt(settings)
    except lastgood.IntegrityError as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(f"IntegrityError: {error}", file=sys.stderr)
        return STOPPED
    return COMPLETED


def _settings(arguments: Sequence[str] | None) -> Settings:
    given = _parser().parse_args(arguments)
    return Settings(
        run_dir=given.run_dir,
        run=given.run_id,
        steps=given.steps,
        seed=given.seed,
        save_every=given.save_every,
        audit_every=given.audit_every,
        save_probe=given.save_probe,
        replay=given.replay == "on",
        resume=given.resume,
        fault=fault_here(given.fault, given.fault_step, given.fault_node, given.fault_slot, given.seed),
        devices=devices_here(given.fake_gpu, given.fake_node, given.fake_slot),
    )


def fault_here(name: str | None, step: int, node: str, slot: int, seed: int = 0) -> Fault | None:
    """Return the fault if this rank sits on its device, or if it has none of its own."""
    if name is None:
        return None
    here = (os.environ["LASTGOOD_NODE"], int(os.environ["LOCAL_RANK"]))
    if name != "reduce-all" and here != (node, slot):
        return None
    return fault_named(name, rank=int(os.environ["RANK"]), step=step, seed=seed)


def devices_here(mode: str | None, node: str, slot: int) -> str:
    """Return the setting ``devices`` of this rank: the mode is for the fake GPU on one node and slot, if it is here."""
    if mode is None:
        return "auto"
    here = (os.environ["LASTGOOD_NODE"], int(os.environ["LOCAL_RANK"]))
    return f"fake:{mode}" if here == (node, slot) else "fake"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lastgood.demo.train", description=__doc__)
    add = parser.add_argument
    add("--run-dir", type=Path, required=True)
    add("--run-id", required=True)
    add("--steps", type=int, default=150)
    add("--seed", type=int, default=0)
    add("--save-every", type=int, default=25)
    add("--audit-every", type=int, default=50)
    add("--save-probe", action="store_true")
    add("--replay", choices=("on", "off"), default="on")
    add("--resume", type=Path)
    add("--fault")
    add("--fault-step", type=int, default=1)
    add("--fault-node", default="")
    add("--fault-slot", type=int, default=0)
    add("--fake-gpu")
    add("--fake-node", default="")
    add("--fake-slot", type=int, default=0)
    return parser


def leave(code: int) -> NoReturn:
    """End the process at once, its output written.

    Right after the last collective gloo's threads may still hold what Python is about to tear down: about one in ten
    ``destroy_process_group`` calls there hung or aborted (torch 2.13, with and without a communication hook).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
