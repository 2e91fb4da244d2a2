"""Save in every format on some ranks, resume on others: one rank of such a job. Arguments: folder, what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import training_job
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from training_job import build, events, failure, run_cases, train, watch

from lastgood.replica import optimizer_state

STEPS = 3
_GROUPS: list[Any] = []


def beside() -> Any:
    """Return the group of a save in the background: it must not be the one that carries the gradients."""
    if not _GROUPS:
        _GROUPS.append(dist.new_group(backend="gloo"))
    return _GROUPS[0]


def state_of(ddp: Any, optimizer: Any) -> dict[str, Any]:
    model, state = get_state_dict(ddp, optimizer)
    return {"model": model, "optimizer": state}


def save_torch(path: Path, ddp: Any, optimizer: Any, save: Any) -> None:
    if dist.get_rank() == 0:
        torch.save({"model": ddp.state_dict(), "optimizer": optimizer.state_dict()}, path)


def load_torch(path: Path, ddp: Any, optimizer: Any) -> None:
    state = torch.load(path, weights_only=True)
    ddp.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def save_ranks(path: Path, ddp: Any, optimizer: Any, save: Any) -> None:
    path.mkdir(exist_ok=True)
    torch.save({"model": ddp.state_dict(), "optimizer": optimizer.state_dict()}, path / f"rank-{dist.get_rank()}.pt")


def load_ranks(path: Path, ddp: Any, optimizer: Any) -> None:
    load_torch(path / f"rank-{dist.get_rank()}.pt", ddp, optimizer)


def save_dcp(path: Path, ddp: Any, optimizer: Any, save: Any) -> None:
    dcp.save(state_of(ddp, optimizer), checkpoint_id=path)


def save_async(path: Path, ddp: Any, optimizer: Any, save: Any) -> None:
    save.future = dcp.async_save(state_of(ddp, optimizer), checkpoint_id=path, process_group=beside())


def load_dcp(path: Path, ddp: Any, optimizer: Any) -> None:
    state = state_of(ddp, optimizer)
    dcp.load(state, checkpoint_id=path)
    set_state_dict(ddp, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def save_safetensors(path: Path, ddp: Any, optimizer: Any, save: Any) -> None:
    if dist.get_rank() == 0:
        state = {name.replace("/", "."): t.clone() for name, t in optimizer_state(ddp.module, [optimizer])}
        save_file({**ddp.module.state_dict(), **state}, path)


def load_safetensors(path: Path, ddp: Any, optimizer: Any) -> None:
    found = load_file(path)
    ddp.module.load_state_dict({name: found[name] for name in ddp.module.state_dict()})
    for name, tensor in optimizer_state(ddp.module, [optimizer]):
        tensor.copy_(found[name.replace("/", ".")])


FORMATS: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "torch": (save_torch, load_torch),
    "ranks": (save_ranks, load_ranks),
    "dcp": (save_dcp, load_dcp),
    "async": (save_async, load_dcp),
    "safetensors": (save_safetensors, load_safetensors),
}


def started() -> tuple[Any, Any]:
    """Return a model and an optimizer whose state exists."""
    ddp, optimizer = build()
    train(ddp, optimizer, None, 1)
    return ddp, optimizer


def saving(root: Path) -> Any:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    train(ddp, optimizer, monitor, STEPS)
    for name, (save, _) in FORMATS.items():
        with monitor.checkpoint(root / name) as handle:
            save(root / name, ddp, optimizer, handle)
        train(ddp, optimizer, monitor, 1, first=monitor.step + 1)
    monitor.close()
    keys = ("type", "step", "path", "bytes", "seconds", "blocked_seconds", "fingerprint", "reason")
    return [{k: e.get(k) for k in keys} for e in events(root, "checkpoint.saved", "checkpoint.failed")]


def resuming(root: Path) -> Any:
    """Resume from each format, right and with one bit changed after the load."""
    out = {}
    for name, (_, load) in FORMATS.items():
        path = root.parent / "saving" / name
        for flipped in (False, True):
            ddp, optimizer = started()
            load(path, ddp, optimizer)
            if flipped and dist.get_rank() == 1:
                ddp.module.last.weight.data.view(torch.int32)[0, 0] ^= 1
            monitor = watch(ddp, optimizer, root / f"{name}-{flipped}")
            text = failure(lambda monitor=monitor, path=path: monitor.resume(path))
            out[f"{name}-{flipped}"] = [monitor.step, text]
            monitor.close()
    return out


def late(root: Path) -> Any:
    """Rank 1's own future is complete last, and then one of them fails."""
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    train(ddp, optimizer, monitor, 1)
    pool, rank, seen = ThreadPoolExecutor(1), dist.get_rank(), []
    for name, ends in (("late", None), ("failing", OSError("gone"))):
        with monitor.checkpoint(path := root / name) as save:
            if rank == 0:
                torch.save(ddp.state_dict(), path)
            save.future = pool.submit(work, 1.0 if rank == 1 else 0.0, ends if rank == 1 else None)
        if rank == 0:
            save.future.result()
            time.sleep(0.3)
            seen.append(path.with_name(f"{name}.lastgood.json").exists())
        train(ddp, optimizer, monitor, 1, first=monitor.step + 1)
        time.sleep(1.5)
        if rank == 0:
            seen.append(path.with_name(f"{name}.lastgood.json").exists())
    with monitor.checkpoint(root / "only-rank-0") as save:
        if rank == 0:
            save.future = pool.submit(torch.save, ddp.state_dict(), root / "only-rank-0")
    monitor.close()
    told = events(root, "checkpoint.saved", "checkpoint.failed")
    return {"seen": seen, "told": [[e["type"], e["path"], e.get("reason")] for e in told]}


def work(seconds: float, error: Exception | None) -> None:
    time.sleep(seconds)
    if error is not None:
        raise error


def dying(root: Path) -> Any:
    """A rank's future never ends, and the attempt does by an exception."""
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    began = 0.0
    try:
        with monitor:
            with monitor.checkpoint(path := root / "never") as save:
                if dist.get_rank() == 0:
                    torch.save(ddp.state_dict(), path)
                save.future = Future[None]() if dist.get_rank() == 1 else ThreadPoolExecutor(1).submit(int)
            began = time.monotonic()
            raise ValueError("mine")
    except ValueError:
        took = time.monotonic() - began
    told = events(root, "checkpoint.saved", "checkpoint.failed")
    return {"took": took, "told": [[e["type"], e["reason"]] for e in told]}


if __name__ == "__main__":
    training_job.CASES.update({f.__name__: f for f in (saving, resuming, late, dying)})
    run_cases()
