"""Optimizer steps that ``torch.compile`` compiled, on the ranks of one gloo job. Started by test_compiled_step.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.convert_frame import FRAME_COMPILE_COUNTER
from torch.nn.parallel import DistributedDataParallel
from training_job import Net, armed, batch_of, build, case, events, run_cases, state, watch
from ways_job import Job, way

from lastgood.faults import Fault

FAULTS = ("replay_of_a_permanent_fault", "conservation", "one_result", "replica", "finite")


def with_options(**options: Any) -> Callable[[], Job]:
    def make() -> Job:
        torch._dynamo.reset()  # what one job of the process compiled is no other's
        ddp = DistributedDataParallel(Net())
        return Job(ddp, [torch.optim.AdamW(ddp.parameters(), 1e-2, **options)])

    return make


def turn(compile: Callable[[Job], Callable[[], Any]]) -> Callable[[Job, int], None]:
    """Return a turn of the loop whose step ``compile`` makes once per job."""

    def one(job: Job, step: int) -> None:
        if "step" not in job.extra:
            job.extra["step"] = compile(job)
        job.loss(batch_of(step)).backward()
        job.extra["step"]()
        job.optimizers[0].zero_grad()

    return one


def recipe(job: Job) -> Callable[[], Any]:
    """As torch's own tutorial has it."""
    optimizer = job.optimizers[0]
    step: Callable[[], Any] = torch.compile(lambda: optimizer.step())
    return step


def method(job: Job) -> Callable[[], Any]:
    step: Callable[[], Any] = torch.compile(job.optimizers[0].step, backend="eager")
    return step


def scheduled(job: Job) -> Callable[[], Any]:
    optimizer = job.optimizers[0]
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3)

    def both() -> None:
        optimizer.step()
        scheduler.step()

    step: Callable[[], Any] = torch.compile(both, backend="eager")
    return step


way("recipe", build=with_options(), turn=turn(recipe), faults=FAULTS)
way("method_fused", build=with_options(fused=True), turn=turn(method), faults=("replay_of_a_permanent_fault", "finite"))
way(
    "scheduled_foreach",
    build=with_options(foreach=True),
    turn=turn(scheduled),
    faults=("replay_of_a_permanent_fault", "finite"),
)


@case
def skipped(root: Path) -> Any:
    """Step 3 of 6 has a NaN on rank 1 and is skipped: what it left, and what was compiled in the last two steps."""
    torch._dynamo.reset()
    ddp, optimizer = build()
    fault = Fault(site="gradient", kind="nan", rank=1, step=3)
    monitor = watch(ddp, optimizer, root, policy="skip", injector=armed(fault, ddp.module.first))
    step = torch.compile(lambda: optimizer.step())
    states, compiled = [], []
    for number in range(1, 7):
        monitor.loss(batch_of(number)).backward()
        step()
        optimizer.zero_grad()
        states.append(state(ddp, optimizer))
        compiled.append(sum(FRAME_COMPILE_COUNTER.values()))
    monitor.close()
    return {
        "unchanged": [a == b for a, b in zip(states, states[1:], strict=False)],
        "finite": all(bool(p.isfinite().all()) for p in ddp.parameters()),
        "contained": sorted({e["contained"] for e in events(root, "finding") if e["check"] == "finite"}),
        "step": monitor.step,
        "compiled_late": compiled[-1] - compiled[-3],
    }


if __name__ == "__main__":
    run_cases()
