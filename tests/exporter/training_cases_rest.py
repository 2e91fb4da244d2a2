"""at_rest on real ranks: bits that change between two updates, code that writes there on purpose, and who is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training_job import batch_of, case, events, loss_fn, state, train, watch

from lastgood.state import Incident

Write = Callable[[nn.Module, torch.optim.Optimizer], None]


def flip(tensor: Tensor) -> None:
    """Flip the lowest bit of the first value past autograd's version counter, as a bad memory cell does."""
    tensor.data.view(-1)[:1].view(torch.int32).bitwise_xor_(1)


def run(
    root: Path, write: Write | None = None, *, ranks: tuple[int, ...] = (1,), step: int = 6, **settings: Any
) -> Any:
    """Train 8 steps with a look at every second one; ``write`` happens within the forward of a step on some ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    seen = {"step": 0}

    def loss(net: nn.Module, batch: Tensor) -> Tensor:
        out = loss_fn(net, batch)
        if net is ddp and write and seen["step"] == step and dist.get_rank() in ranks:
            write(model, optimizer)
        return out

    settings = {"at_rest_every": 2, "replica_every": 0, "replay_every": 0, "policy": "record"} | settings
    monitor = watch(ddp, optimizer, root, loss_fn=loss, **settings)
    for number in range(1, 9):
        seen["step"] = number
        train(ddp, optimizer, monitor, 1, first=number)
    monitor.close()
    rounds = [(e["phase"], e["state_step"], e["result"], e["exceptions"]) for e in events(root, "check")
              if e["check"] == "at_rest"]  # fmt: skip
    found = [(e["check"], e["step"], e["state_step"], e["ranks"], e["tensor"]) for e in events(root, "finding")
             if e["check"] == "at_rest"]  # fmt: skip
    # the replicas are compared at the end, too, and may have a verdict of their own
    verdicts = [(e["status"], [s["rank"] for s in e["suspects"]], e["action"]) for e in events(root, "verdict")][
        : len(found)
    ]
    return {"rounds": rounds, "findings": found, "verdicts": verdicts, "incident": incident(root)}


def incident(root: Path) -> Any:
    """Return what a reader makes of it: the window of what at_rest found, and the headline."""
    from lastgood.ledger import Ledger
    from lastgood.wording import headline

    dist.barrier()
    ledger = Ledger([root / "run"])
    ledger.refresh()
    found: tuple[Incident, ...] = next(iter(ledger.runs().values())).incidents
    windows = {i.id: next((f.window for f in i.findings if f.check == "at_rest"), i.window) for i in found}
    return [((w.start, w.end) if (w := windows[i.id]) else None, headline(i)) for i in found]


@case
def at_rest_clean(root: Path) -> Any:
    return run(root)


@case
def at_rest_weight(root: Path) -> Any:
    return run(root, lambda model, optimizer: flip(model[0].weight))


@case
def at_rest_moment(root: Path) -> Any:
    return run(root, lambda model, optimizer: flip(next(iter(optimizer.state.values()))["exp_avg_sq"]))


@case
def at_rest_stops(root: Path) -> Any:
    try:
        run(root, lambda model, optimizer: flip(model[0].weight), policy="stop")
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


@case
def at_rest_everywhere(root: Path) -> Any:
    return run(root, lambda model, optimizer: flip(model[0].weight), ranks=(0, 1, 2))


@case
def at_rest_written_on_purpose(root: Path) -> Any:
    """A layer that writes its weight in its forward, as max_norm of an embedding does, on one rank or on all."""

    def write(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            model[2].bias.add_(1e-6)  # after it was used: autograd keeps no version of it

    return run(root, write)


@case
def at_rest_off(root: Path) -> Any:
    return run(root, lambda model, optimizer: flip(model[0].weight), at_rest_every=0)


@case
def at_rest_changes_nothing(root: Path) -> Any:
    out = []
    for every in (0, 1):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 4)))
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
        monitor = watch(ddp, optimizer, root / str(every), at_rest_every=every, accumulation=2)
        train(ddp, optimizer, monitor, 6, accumulation=2)
        out.append(state(ddp, optimizer))
        monitor.close()
    return {"equal": out[0] == out[1], "batch": batch_of(1).shape[0]}


def moment_off(root: Path, **settings: Any) -> Any:
    """Flip a low bit of one rank's second moment after step 3, too little to move a weight, and train on to step 7."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    monitor = watch(ddp, optimizer, root, at_rest_every=0, replay_every=0, replica_every=1, policy="record", **settings)
    train(ddp, optimizer, monitor, 3)
    if dist.get_rank() == 1:
        flip(next(iter(optimizer.state.values()))["exp_avg_sq"])
    train(ddp, optimizer, monitor, 4, first=4)
    found = [(e["phase"], e["step"], e["ranks"], e["tensor"]) for e in events(root, "finding")]
    window = incident(root)[0][0] if found else None
    return {"findings": found[:1], "window": window, "rounds": [e["phase"] for e in events(root, "check")]}


@case
def a_moment_that_weights_do_not_show(root: Path) -> Any:
    return [moment_off(root / str(every), state_every=every) for every in (0, 4)]
