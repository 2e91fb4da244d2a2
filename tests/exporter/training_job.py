"""What every case of real training on several gloo ranks needs: a net, a loop, a journal to read, a fault to arm."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import lastgood
from lastgood.demo.train import leave
from lastgood.faults import Fault, Injector
from lastgood.fingerprint import digest_tensors
from lastgood.journal_read import JournalTail

ROOT = Path(sys.argv[1])
CASES: dict[str, Callable[[Path], Any]] = {}
WATCHED: list[lastgood.Monitor] = []


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
    monitor = lastgood.watch(ddp, optimizer, run_dir=root / "run", **settings)
    WATCHED.append(monitor)
    return monitor


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
    for monitor in WATCHED:  # what happens in the loop is written beside it
        assert monitor.publisher.files.settle(10)
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


def armed(fault: Fault, module: nn.Module | None = None, make: type[Injector] = Injector) -> Injector:
    injector = make(fault, rank=dist.get_rank())
    if module is not None:
        injector.wrap(module)
    injector.arm()
    return injector


def run_cases() -> None:
    """Run the named cases (all of them without names) in one process group and print what each returns."""
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
    leave(0)  # without tearing gloo down, which may abort (see docs/troubleshooting.md)
