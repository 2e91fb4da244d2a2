"""Resume by torch's own recipe (``get_state_dict``, ``dcp.load``, ``set_state_dict``) in a job that is fresh.

Started by test_resume.py, on the ranks of one gloo job.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from checkpoint_formats import load_dcp, save_dcp
from checkpoint_sharded import Deep, line
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from training_job import case, events, failure, run_cases, train, watch


def replicated(make: Callable[..., torch.optim.Optimizer]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = DistributedDataParallel(Deep())
    return model, make(model.parameters())


def sharded(make: Callable[..., torch.optim.Optimizer]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = Deep()
    for layer in (model.first, model.middle, model):
        fully_shard(layer, mesh=line())
    return model, make(model.parameters())


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def plain(parameters: Any) -> torch.optim.Optimizer:
    """Without state, so that ``get_state_dict`` steps it at every save."""
    return torch.optim.SGD(parameters, lr=1e-2)


BUILDS = {"replicated": replicated, "sharded": sharded}


def resumed(root: Path, build: Any, make: Any, order: str) -> list[Any]:
    path = root / "checkpoint"
    model, optimizer = build(make)
    monitor = watch(model, optimizer, root)
    train(model, optimizer, monitor, 3)
    with monitor.checkpoint(path) as save:
        save_dcp(path, model, optimizer, save)
    train(model, optimizer, monitor, 1, first=4)
    monitor.close()
    before, (model, optimizer) = monitor.step, build(make)
    if order == "load_first":
        load_dcp(path, model, optimizer)
    again = watch(model, optimizer, root)
    if order == "watch_first":
        load_dcp(path, model, optimizer)
    again.resume(path)
    train(model, optimizer, again, 2, first=again.step + 1)
    again.close()
    return [before, again.step]


@case
def orders(root: Path) -> Any:
    out = {}
    for name, build in BUILDS.items():
        for make in (adam, plain):
            for order in ("load_first", "watch_first"):
                folder = root / f"{name}-{make.__name__}-{order}"
                folder.mkdir(exist_ok=True)
                steps: list[Any] = []
                text = failure(lambda f=folder, b=build, m=make, o=order, s=steps: s.extend(resumed(f, b, m, o)))
                types = [e["type"] for e in events(folder, "checkpoint.loaded", "finding", "run.started")]
                out[folder.name] = [steps, text, types]
    return out


if __name__ == "__main__":
    run_cases()
