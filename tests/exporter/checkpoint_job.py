"""Save in every format on some ranks, resume on others: one rank of such a job. Arguments: folder, what to do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import checkpoint_formats as written
import checkpoint_sharded
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint_formats import STEPS
from huggingface_hub import save_torch_state_dict
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from training_job import build, case, events, failure, run_cases, train, watch

MODULES = (checkpoint_sharded,)
"""Imported for their cases, which register themselves."""

FORMATS: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "torch": (written.save_torch, written.load_torch),
    "ranks": (written.save_ranks, written.load_ranks),
    "dcp": (written.save_dcp, written.load_dcp),
    "async": (written.save_async, written.load_dcp),
    "safetensors": (written.save_safetensors, written.load_safetensors),
}


def started() -> tuple[Any, Any]:
    """Return a model and an optimizer whose state exists."""
    ddp, optimizer = build()
    train(ddp, optimizer, None, 1)
    return ddp, optimizer


@case
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


@case
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


@case
def late(root: Path) -> Any:
    """Rank 1's own future is complete last, and then one of them fails. Rank 0 says when."""
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root)
    train(ddp, optimizer, monitor, 1)
    pool, rank, seen = ThreadPoolExecutor(1), dist.get_rank(), []
    for name, ends in (("late", None), ("failing", OSError("gone"))):
        with monitor.checkpoint(path := root / name) as save:
            if rank == 0:
                torch.save(ddp.state_dict(), path)
            save.future = pool.submit(work, root / f"{name}-go", ends) if rank else pool.submit(int)
        train(ddp, optimizer, monitor, 1, first=monitor.step + 1)
        if rank == 0:
            save.future.result()
            time.sleep(0.3)
            record = path.with_name(f"{name}.lastgood.json")
            seen.append(record.exists())
            (root / f"{name}-go").touch()
            waits_until(lambda: monitor.saver._background[-1].settled)
            seen.append(record.exists())
    with monitor.checkpoint(root / "only-rank-0") as save:
        if rank == 0:
            save.future = pool.submit(torch.save, ddp.state_dict(), root / "only-rank-0")
    monitor.close()
    told = events(root, "checkpoint.saved", "checkpoint.failed")
    return {"seen": seen, "told": [[e["type"], e["path"], e.get("reason")] for e in told]}


@case
def late_again(root: Path) -> Any:
    """The same, in a job whose store still holds what the ranks said of the saves of another monitor."""
    return late(root)


@case
def documented(root: Path) -> Any:
    """Run every example of the page as it stands there."""
    page = (Path(__file__).parents[2] / "docs/checkpoints.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    model, optimizer = build()
    monitor = watch(model, optimizer, root)
    names = {
        "torch": torch,
        "dcp": dcp,
        "get_state_dict": get_state_dict,
        "save_file": save_file,
        "rank": dist.get_rank(),
    }
    names |= {"save_torch_state_dict": save_torch_state_dict, "model": model, "optimizer": optimizer}
    saving = [block.replace('"5GB"', "2000") for block in blocks if "monitor.checkpoint" in block]
    for number, block in enumerate(saving):
        train(model, optimizer, monitor, 1, first=monitor.step + 1)
        exec(block, names | {"monitor": monitor, "path": root / f"save-{number}", "saves": written.beside()})
    monitor.close()
    steps = []
    for block in (block for block in blocks if "monitor.resume" in block):
        by_dcp = "dcp.load" in block
        model, optimizer = build() if by_dcp else started()
        again = watch(model, optimizer, root)
        names |= {"model": model, "optimizer": optimizer, "set_state_dict": set_state_dict}
        exec(block, names | {"monitor": again, "path": root / f"save-{2 if by_dcp else 0}"})
        steps.append(again.step)
        again.close()
    return {"blocks": len(saving), "saved": len(events(root, "checkpoint.saved")), "steps": steps}


def work(go: Path, error: Exception | None) -> None:
    waits_until(go.exists)
    if error is not None:
        raise error


def waits_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@case
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
    run_cases()
