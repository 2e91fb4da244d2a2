"""A trained model, its record, and every format to save it in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_state_dict

from lastgood import checkpoints
from lastgood.checkpoint_files import tensor_files
from lastgood.fingerprint import digest_tensors
from lastgood.replica import optimizer_state, weights


def trained(seed: int = 0, steps: int = 2) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def recorded(path: Path, model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    """Write the record as a save does."""
    facts = {"run": "demo", "attempt": 1, "step": 50, "path": str(path), "world_size": 6, "parent": None}
    state = digest_tensors([*weights(model), *optimizer_state(model, optimizers)], lanes=2)
    count = sum(1 for _ in model.parameters())
    facts |= {"files": tensor_files(path)}
    record = checkpoints.make_record(facts, state, digest_tensors(checkpoints.named_buffers(model), lanes=2), count)
    checkpoints.write_record(path, record)


def save_torch(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return path


def save_ranks(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    path.mkdir()
    for rank in range(3):
        save_torch(path / f"rank-{rank}.pt", model, optimizer)
    return path / "rank-1.pt"


def save_dcp(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    weights_of, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights_of, "optimizer": state, "step": 50}, checkpoint_id=path, no_dist=True)
    return next(path.glob("*.distcp"))


def save_numbered_dcp(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    dcp.save(state, checkpoint_id=path, no_dist=True)
    return next(path.glob("*.distcp"))


def flat(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return everything by name, as safetensors can hold it."""
    state = {name.replace("/", "."): t.clone() for name, t in optimizer_state(model, [optimizer])}
    return {**{name: t.contiguous() for name, t in model.state_dict().items()}, **state}


def save_safetensors(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    save_file(flat(model, optimizer), path)
    return path


def save_shards(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    """Write shards and an index as Hugging Face does."""
    path.mkdir()
    tensors = flat(model, optimizer)
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    where = {name: files[name.startswith("2.")] for name in tensors}
    for file in files:
        save_file({name: t for name, t in tensors.items() if where[name] == file}, path / file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return path / files[1]


Save = Callable[[Path, torch.nn.Module, torch.optim.Optimizer], Path]
FORMATS: Final[Mapping[str, Save]] = {
    "torch": save_torch,
    "torch, a file per rank": save_ranks,
    "dcp": save_dcp,
    "dcp, numbered optimizer": save_numbered_dcp,
    "safetensors": save_safetensors,
    "safetensors, sharded": save_shards,
}
"""Name -> saves into a path and returns the file that holds tensor "2.weight"."""


def flip(file: Path, tensor: Tensor, bit: int = 3) -> None:
    """Flip one bit of a tensor's bytes, wherever they lie in a file."""
    data = bytearray(file.read_bytes())
    raw: Any = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
    assert data.count(raw) == 1, "the tensor's bytes must be found once"
    data[data.index(raw) + len(raw) // 2] ^= 1 << bit
    file.write_bytes(data)
