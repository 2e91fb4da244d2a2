"""Evaluate between the steps of a sharded job, which leaves some of its weights gathered: on the ranks of one job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checkpoint_formats import load_dcp, save_async, save_dcp
from sharded_rest import said
from sharded_tensors import both
from sharded_ways import plane, sharded
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy
from training_job import CASES, armed, batch_of, case, events, failure, loss_fn, run_cases, watch
from ways_job import STEPS, Job, everything, plain, train

from lastgood.faults import Fault
from lastgood.fsdp_groups import groups_of

SAVED = 6
"""The step after which is saved: none that is audited."""


def evaluated(job: Job, step: int, context: Any = torch.no_grad) -> None:
    job.model.eval()
    with context():
        loss_fn(job.model, batch_of(step, micro=5, rank=0))
    job.model.train()


def inferred(job: Job, step: int) -> None:
    """Torch makes the gathered parameters in the first forward, which must not be in inference mode."""
    evaluated(job, step, torch.inference_mode if step > 1 else torch.no_grad)


def unsharded(job: Job, step: int) -> None:
    """What a loop does that wants to look at whole weights."""
    for group in groups_of(job.module):
        group.module.unshard()


def untouched(job: Job, step: int) -> None:
    """Nothing between two steps."""


@dataclass(frozen=True)
class Way:
    """``between`` runs before ``watch``, before every step, before the saves and before close."""

    build: Callable[[], Job] = sharded
    between: Callable[[Job, int], None] = evaluated
    shared: bool = False  # two ranks have the same batch


def offloaded() -> Job:
    return sharded(offload_policy=CPUOffloadPolicy(pin_memory=False))


WAYS = {
    "plain": Way(),
    "inferred": Way(between=inferred),
    "kept_gathered": Way(lambda: sharded(reshard_after_forward=False)),
    "kept_in_larger_shards": Way(lambda: sharded(reshard_after_forward=2)),
    "one_group": Way(lambda: sharded(layers=())),
    "unsharded_by_the_loop": Way(between=unsharded),
    "offloaded": Way(offloaded),
    "replicated": Way(lambda: sharded(plane)),
    "replicated_and_kept": Way(lambda: sharded(plane, reshard_after_forward=False)),
    "tensor_parallel": Way(both, shared=True),
}


def held(job: Job) -> list[str]:
    """Return in which state each group of parameters is."""
    return [group.inner._sharded_state.name for group in groups_of(job.module)]


def digest(job: Job) -> str:
    """Digest the shards, whatever is gathered."""
    for group in groups_of(job.module):
        group.module.reshard()
    return everything(job)


def trained(way: Way, root: Path, between: Callable[[Job, int], None], watched: bool, **settings: Any) -> Any:
    """Train with something between the steps, save in the middle, close. Returns the job and what was seen of it."""
    torch.manual_seed(0)
    job = way.build()
    between(job, 0)
    if watched:
        job.monitor = watch(job.model, job.optimizers[0], root, **{"at_rest_every": 3, "state_every": 4, **settings})
    states: list[Any] = []
    rank = dist.get_rank() // 2 if way.shared else None
    for step in range(1, STEPS + 1):
        between(job, step)
        torch.manual_seed(step * 7 + (dist.get_rank() if rank is None else rank))
        job.loss(batch_of(step, rank=rank)).backward()
        job.update()
        if step == SAVED and job.monitor:
            between(job, step)
            states = [held(job)]
            with job.monitor.checkpoint(root / "save") as save:
                states.append(held(job))
                save_dcp(root / "save", job.model, job.optimizers[0], save)
            between(job, step)
            with job.monitor.checkpoint(root / "async") as save:
                save_async(root / "async", job.model, job.optimizers[0], save)
    between(job, STEPS)
    if job.monitor:
        job.monitor.close()
    return job, states


def clean(way: Way, root: Path) -> dict[str, Any]:
    without, _ = trained(way, root, way.between, False)
    job, states = trained(way, root, way.between, True)
    assert job.monitor
    checks = [(e["check"], e["phase"], e["result"], e["reason"]) for e in events(root, "check")]
    result = said(root) | {
        "equal": digest(without) == digest(job),
        "states": states,
        "passed": dict(job.monitor.passed),
        "not_run": events(root, "run.started")[0]["not_run"],
        "failed": sorted({check for check in checks if check[2] != "passed"}),
        "rests": sum(check[0] == "at_rest" for check in checks),
        "saved": [(e["type"], Path(e["path"]).name) for e in events(root, "checkpoint.saved", "checkpoint.failed")],
    }
    trained(way, root / "never", untouched, True)
    return result


def register(name: str, way: Way) -> None:
    CASES[name] = lambda root: clean(way, root)


for _name, _way in WAYS.items():
    register(_name, _way)


@case
def resuming(root: Path) -> Any:
    """Load on other ranks what was saved after an evaluation, evaluate, and resume; once with a bit wrong on rank 1."""
    out = {}
    for name in WAYS:
        for saved in ("save", "async"):
            for flipped in (False, True):
                torch.manual_seed(0)
                job = sharded()
                load_dcp(path := root.parent / name / saved, job.model, job.optimizers[0])
                if flipped and dist.get_rank() == 1:
                    flip(job.module.middle.weight)
                evaluated(job, 0)
                job.monitor = watch(job.model, job.optimizers[0], root / f"{name}-{saved}-{flipped}")
                text = failure(lambda job=job, path=path: job.monitor.resume(path))  # type: ignore[misc]
                out[f"{name}-{saved}-{flipped}"] = [job.monitor.step, text]
                job.monitor.close()
    return out


def flip(weight: Any) -> None:
    """Flip a bit of this rank's shard, as a memory cell would."""
    weight.detach()._local_tensor.data.view(-1)[:1].view(torch.int32).bitwise_xor_(1 << 20)


def with_a_wrong_shard(root: Path, at: int, between: Callable[[Job, int], None], **options: Any) -> Any:
    """Flip a bit of the last layer, which belongs to the root, on rank 1 where an evaluation comes at that step."""
    held: list[Any] = []

    def flipping(job: Job, step: int) -> None:
        if not held:
            held.append(job.module.last.weight)
        if step == at and dist.get_rank() == 1:
            flip(held[0])
        between(job, step)

    way = Way(lambda: sharded(plane, **options))
    text = failure(lambda: trained(way, root, flipping, True, at_rest_every=0))
    return said(root) | {"text": text}


@case
def wrong_shards(root: Path) -> Any:
    """Before an audited step, a save and close; each with an evaluation and without."""
    out = {}
    for at, name in ((4, "loop"), (SAVED, "save"), (STEPS, "close")):
        for how, options in (("resharded", {}), ("kept", {"reshard_after_forward": False})):
            for between in (untouched, evaluated):
                place = root / f"{name}-{how}-{between.__name__}"
                out[place.name] = with_a_wrong_shard(place, at, between, **options)
    return out


@case
def wrong_bits_at_rest(root: Path) -> Any:
    """The injector flips a bit of a shard in a sampled step that follows an evaluation."""
    torch.manual_seed(0)
    job = sharded(layers=())
    injector = armed(Fault(site="at-rest", kind="bit", rank=1, step=6, seed=10))
    job.monitor = watch(job.model, job.optimizers[0], root, injector=injector, at_rest_every=3)

    def turn(job: Job, step: int) -> None:
        evaluated(job, step)
        plain(job, step)

    text = failure(lambda: train(job, turn))
    job.monitor.close()
    return said(root) | {"text": text}


def with_replays_that_fail(way: Way, root: Path, watched: bool) -> dict[str, Any]:
    """In every replay the loss function raises on rank 1 after its forward; the others gather on."""
    torch.manual_seed(0)
    job = way.build()
    trained = [0]

    def failing(model: nn.Module, batch: Tensor) -> Tensor:
        out = loss_fn(model, batch)
        if job.monitor and job.model.training:
            replayed, trained[0] = trained[0] == job.monitor.step + 1, job.monitor.step + 1
            if replayed and dist.get_rank() == 1:
                raise RuntimeError("out of luck")
        return out

    job.loss_fn = failing
    if watched:
        job.monitor = watch(job.model, job.optimizers[0], root, loss_fn=failing)

    def turn(job: Job, step: int) -> None:
        plain(job, step)
        if step % 2:
            way.between(job, step)

    text = failure(lambda: train(job, turn))
    if job.monitor is None:
        return {"digest": digest(job)}
    job.monitor.close()
    rounds = sorted({(e["phase"], e["result"], e["reason"]) for e in events(root, "check") if e["check"] == "replay"})
    return said(root) | {"text": text, "digest": digest(job), "rounds": rounds}


@case
def replays_that_fail(root: Path) -> Any:
    names = ("plain", "kept_gathered", "kept_in_larger_shards")
    return {n: [with_replays_that_fail(WAYS[n], root / n, watched) for watched in (False, True)] for n in names}


if __name__ == "__main__":
    run_cases()
