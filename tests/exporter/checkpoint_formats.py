"""How a job writes and loads each format of checkpoint; ``save`` is what ``monitor.checkpoint`` gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

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
