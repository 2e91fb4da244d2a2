"""The cases of checkpoint_job.py whose model is sharded (FSDP2, HSDP)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checkpoint_formats import STEPS, load_dcp, save_async, save_dcp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel
from training_job import case, events, failure, train, watch

from lastgood.replica import optimizer_state


class Deep(nn.Module):
    """Layers whose sizes the ranks do not divide evenly, and one that is cut along its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.middle = nn.Linear(32, 33)
        self.last = nn.Linear(33, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.middle(torch.relu(self.first(x)))))
        return out


def sharded(mesh: Any) -> tuple[Any, Any]:
    """Return a model whose state is sharded over the mesh, trained for a step."""
    torch.manual_seed(0)
    model: Any = Deep()
    by_columns = {model.first.weight}
    fully_shard(model.first, mesh=mesh, shard_placement_fn=lambda p: Shard(1) if p in by_columns else None)
    for layer in (model.middle, model):
        fully_shard(layer, mesh=mesh)
    return started_with(model)


def replicated() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return started_with(DistributedDataParallel(Deep()))


def started_with(model: Any) -> tuple[Any, Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train(model, optimizer, None, 1)
    return model, optimizer


def line() -> Any:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def plane() -> Any:
    return init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))


def save_pieces(path: Path, model: Any, optimizer: Any, save: Any) -> None:
    """Write a file per rank with the pieces as plain tensors."""
    path.mkdir(exist_ok=True)
    state: dict[str, Any] = {name: t.to_local() for name, t in model.state_dict().items()}
    for name, tensor in optimizer_state(model, [optimizer]):
        state[name.replace("/", ".")] = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    state["first.weight"] = model.first.weight.full_tensor()  # cut along columns: no file order makes it up
    for key in ("exp_avg", "exp_avg_sq"):
        state[f"first.weight.{key}"] = optimizer.state[model.first.weight][key].full_tensor()
    torch.save(state, path / f"rank-{dist.get_rank()}.pt")


def save_as_it_is(path: Path, model: Any, optimizer: Any, save: Any) -> None:
    """Write a file per rank with what ``state_dict`` gives: pieces that know their places."""
    path.mkdir(exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path / f"rank-{dist.get_rank()}.pt")


SHARDED = {
    "dcp": (line, save_dcp),
    "async": (line, save_async),
    "pieces": (line, save_pieces),
    "hsdp": (plane, save_dcp),
    "placed": (line, save_as_it_is),
    "placed-hsdp": (plane, save_as_it_is),
}


@case
def saving_sharded(root: Path) -> Any:
    out = []
    for name, (mesh, save) in SHARDED.items():
        model, optimizer = sharded(mesh())
        monitor = watch(model, optimizer, root / f"job-{name}")
        train(model, optimizer, monitor, STEPS)
        with monitor.checkpoint(root / name) as handle:
            save(root / name, model, optimizer, handle)
        train(model, optimizer, monitor, 1, first=monitor.step + 1)
        monitor.close()
        out += [[e["type"], e["step"]] for e in events(root / f"job-{name}", "checkpoint.saved", "checkpoint.failed")]
    return out


@case
def resuming_sharded(root: Path) -> Any:
    """Resume from the checkpoints of sharded models: sharded over fewer ranks, and in a model of DDP."""
    out = {}
    builds = {"sharded": lambda: sharded(line()), "ddp": replicated, "replicas": lambda: sharded(plane())}
    for saved in ("dcp", "async", "hsdp"):
        for name, made in builds.items():
            for flipped in (False, True):
                model, optimizer = made()
                load_dcp(path := root.parent / "saving_sharded" / saved, model, optimizer)
                if flipped and dist.get_rank() == 1:
                    flip_one(model)
                monitor = watch(model, optimizer, root / f"{saved}-{name}-{flipped}")
                text = failure(lambda monitor=monitor, path=path: monitor.resume(path))
                out[f"{saved}-{name}-{flipped}"] = [monitor.step, text]
                monitor.close()
    return out


def flip_one(model: Any) -> None:
    weight = next(p for name, p in model.named_parameters() if name.endswith("middle.weight"))
    held = weight.to_local() if isinstance(weight, DTensor) else weight
    held.detach().view(torch.int32)[0, 0] ^= 1
