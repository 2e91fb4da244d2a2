"""Train sharded models with numbers that are read a step late, as on a GPU. Started by test_sharded_late.py."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import sharded_tensors
import sharded_ways
import torch
import torch.distributed as dist
from late_cases import WrongAverage, nan_at, said
from sharded_ways import plane, sharded
from syncs import counted
from training_job import armed, batch_of, case, events, failure, run_cases, watch
from ways_job import FAULTS, Job, everything, plain

from lastgood import monitor
from lastgood.cadences import REVIEW_EVERY
from lastgood.readback import LateOnHost

MODULES = (sharded_ways, sharded_tensors)
"""Imported for their cases, which register themselves."""

SAMPLED = 5
"""The step that ``at_rest`` looks at in the ways (test_sharded_late.py)."""
OPTIMIZERS = {  # torch has no fused SGD of DTensors
    "fused AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, fused=True),
    "fused Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2, fused=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
}

AUDITS = {"replica_every": 6, "replay_every": 6, "at_rest_every": 0}


def built(name: str, mesh: Any = sharded_ways.line) -> Job:
    torch.manual_seed(0)
    job = sharded(mesh)
    job.optimizers = [OPTIMIZERS[name](job.model.parameters())]
    return job


def watched(job: Job, root: Path, **settings: Any) -> Job:
    job.monitor = watch(job.model, job.optimizers[0], root, **{**AUDITS, **settings})
    return job


def steps(job: Job, first: int, last: int) -> None:
    for step in range(first, last + 1):
        torch.manual_seed(step * 7 + dist.get_rank())
        plain(job, step)


@case
def a_nan_is_kept_out(root: Path) -> Any:
    """Per optimizer, on parameters that are DTensors: the state around the wrong step, and what was known when."""
    out = {}
    for name in OPTIMIZERS:
        job, folder = built(name), root / name.replace(" ", "-")
        watched(job, folder, policy="skip", injector=armed(nan_at(3), job.module.first))
        assert job.monitor
        steps(job, 1, 2)
        before = everything(job)
        steps(job, 3, 3)
        after, known = everything(job), said(folder)
        steps(job, 4, 4)
        moved, told = everything(job) != after, said(folder)
        steps(job, 5, 7)
        job.monitor.close()
        verdicts = [(e["status"], e["action"]) for e in events(folder, "verdict")]
        out[name] = {"kept": before == after, "known_at_once": known, "moved": moved, "told": told,
                     "verdicts": verdicts, "step": job.monitor.step}  # fmt: skip
    return out


@case
def a_wrong_part_stops_a_step_later(root: Path) -> Any:
    out = {}
    for name, mesh in (("fsdp", sharded_ways.line), ("hsdp", plane)):
        if name == "hsdp" and dist.get_world_size() % 2:
            continue
        job = watched(built("fused AdamW", mesh), root / name, injector=WrongAverage(3))
        assert job.monitor
        steps(job, 1, 2)
        before = everything(job)
        steps(job, 3, 3)
        kept, known = everything(job) == before, said(root / name)
        text = failure(lambda job=job: steps(job, 4, 5))  # type: ignore[misc]
        job.monitor.close()
        out[name] = {"kept": kept, "known_at_once": known, "text": text, "told": said(root / name),
                     "untouched": everything(job) == before}  # fmt: skip
    return out


@case
def the_last_step_is_judged_before_a_save_and_at_close(root: Path) -> Any:
    """With the replay of it, outside of a backward."""
    out = {}
    for name in ("save", "close"):
        job, folder = built("fused AdamW"), root / name
        watched(job, folder, injector=armed(nan_at(4), job.module.first))
        monitor = job.monitor
        assert monitor
        steps(job, 1, 4)
        known = said(folder)

        def save(monitor: Any = monitor, folder: Path = folder) -> None:
            with monitor.checkpoint(folder / "step-4"):
                raise AssertionError("a save of a step that is refused was entered")

        text = failure(save if name == "save" else monitor.close)
        monitor.close()
        rounds = [(e["check"], e["result"]) for e in events(folder, "check") if e["phase"] == "immediate"]
        out[name] = {"known_at_once": known, "text": text, "told": said(folder), "rounds": rounds}
    return out


@case
def under_a_loss_scaler(root: Path) -> Any:
    """The scaler hands its own flag to a fused optimizer; a wrong part stays out all the same."""
    job, scaler, states = built("fused AdamW"), torch.amp.GradScaler("cpu", init_scale=4.0), []
    watched(job, root, scaler=scaler, policy="skip", injector=WrongAverage(3))
    for step in range(1, 6):
        torch.manual_seed(step)
        scaler.scale(job.loss(batch_of(step))).backward()
        scaler.step(job.optimizers[0])
        scaler.update()
        job.optimizers[0].zero_grad()
        states.append(everything(job))
    assert job.monitor
    job.monitor.close()
    return {"kept": states[1] == states[2], "moved": states[2] != states[3], "told": said(root)}


@case
def a_replay_of_the_step_before_in_a_step_that_is_compared(root: Path) -> Any:
    """The wrong step 5 is replayed at the end of step 6, whose gathers are compared: by those of the training alone."""
    job = built("fused AdamW")
    watched(job, root, policy="skip", injector=armed(nan_at(5), job.module.first))
    assert job.monitor
    assert job.monitor._shards
    gathers: Any = job.monitor._shards.gathers
    counts, compare = [], gathers.compare
    gathers.compare = lambda *given: (counts.append(len(gathers._found)), compare(*given))[1]
    steps(job, 1, 8)
    job.monitor.close()
    checks = [(e["check"], e["phase"], e["step"], e["result"]) for e in events(root, "check")]
    return {"told": said(root), "checks": checks, "counts": counts}


@case
def nothing_waits_for_the_device(root: Path) -> Any:
    """Calls that would make the host wait for a device, in clean steps between two audits; and with a budget."""
    out = {}
    for name in OPTIMIZERS:
        job = watched(built(name), root / name.replace(" ", "-"))
        steps(job, 1, 8)
        with counted() as seen:
            steps(job, 9, 11)
        assert job.monitor
        job.monitor.close()
        out[name] = seen
    return out


@case
def nothing_waits_where_only_tensors_are_sharded(root: Path) -> Any:
    """No reduce is seen there: the gradients are read as they are made."""
    job = watched(sharded_tensors.tensor_parallel(sharded_ways.line()), root)
    assert job.monitor
    for step in range(1, 9):
        sharded_tensors.alike(job, step)
    with counted() as seen:
        sharded_tensors.alike(job, 9)
    job.monitor.close()
    return seen


@case
def nothing_waits_with_a_budget(root: Path) -> Any:
    """The look at the costs begins and ends in these steps."""
    job = watched(built("fused AdamW"), root, budget=0.5, replica_every=0, replay_every=0)
    assert job.monitor
    steps(job, 1, REVIEW_EVERY - 1)
    before = job.monitor.inspector.cadences.share()
    time.sleep(0.05 * dist.get_rank())  # the ranks are not at the same place when it begins
    with counted() as seen:
        steps(job, REVIEW_EVERY, REVIEW_EVERY + 3)
    share = job.monitor.inspector.cadences.share()
    job.monitor.close()
    return {"seen": seen, "before": before, "share": share}


if __name__ == "__main__":
    monitor.readback_for = lambda device: LateOnHost()
    FAULTS["at_rest"] = replace(FAULTS["at_rest"], step=SAMPLED)
    run_cases()
