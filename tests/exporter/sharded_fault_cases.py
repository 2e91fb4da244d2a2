"""Put faults into single gradients of a model that ``fully_shard`` has sharded, on the ranks of one gloo job."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sharded_ways import sharded
from torch import nn
from torch.distributed.fsdp import fully_shard
from training_job import CASES, armed, events, failure, run_cases, watch
from ways_job import everything, plain, train

from lastgood.faults import Fault

ONCE = Fault("weight-gradient", "scale", rank=1, step=4)
"""In an audited step."""
FAULTS = {
    "once": ("first", ONCE),
    "once_unaudited": ("first", replace(ONCE, step=3)),
    "ever_since": ("first", replace(ONCE, step=2, permanent=True)),
    "now_and_then": ("first", replace(ONCE, step=2, chance=0.9)),
    "in_the_group_of_the_model": ("last", ONCE),
    "never": ("first", replace(ONCE, step=99)),
}
"""Case -> the layer, and the fault in it."""


def with_fault(root: Path, layer: str, fault: Fault) -> dict[str, Any]:
    torch.manual_seed(0)
    job = sharded()
    injector = armed(fault, getattr(job.module, layer))
    job.monitor = watch(job.model, job.optimizers[0], root, injector=injector, policy="record")
    text = failure(lambda: train(job, plain))
    digest = everything(job)
    job.monitor.close()
    return {
        "text": text,
        "digest": digest,
        "injected": [(e["step"], e["rank"], e["tensor"], e["replay"]) for e in events(root, "injection")],
        "findings": [(e["check"], e["step"], e["ranks"]) for e in events(root, "finding")],
        "accused": [[s["rank"] for s in e["suspects"] if s["role"] == "accused"] for e in events(root, "verdict")],
    }


def without_anything(root: Path) -> str:
    torch.manual_seed(0)
    job = sharded()
    train(job, plain)
    return everything(job)


def wrapped_before_it_is_sharded(root: Path) -> int:
    """The injector stands at a parameter that ``fully_shard`` puts another one in the place of."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    injector = armed(replace(ONCE, rank=torch.distributed.get_rank(), step=1), model[0])
    fully_shard(model)
    injector.on_step(1)
    model(torch.randn(3, 4)).sum().backward()
    return len(injector.injections)


CASES |= {name: partial(with_fault, layer=layer, fault=fault) for name, (layer, fault) in FAULTS.items()}
CASES |= {"without_anything": without_anything, "wrapped_before_it_is_sharded": wrapped_before_it_is_sharded}

if __name__ == "__main__":
    run_cases()
