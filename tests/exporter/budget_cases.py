"""Train with a budget on the ranks of one gloo job; started by test_budget_training.py through ranks.py."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch.distributed as dist
from training_job import build, case, events, run_cases, train, watch, weights

from lastgood.fold import derive
from lastgood.journal_read import JournalTail
from lastgood.stopwatch import HostClock

EVERY = {"replica_every": 2, "state_every": 8, "replay_every": 4, "at_rest_every": 3}
STEPS = 60


def trained(root: Path, budget: float | None, clock: Any = None) -> dict[str, Any]:
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, budget=budget, **EVERY)
    if clock is not None:
        monitor.inspector.spending.stopwatch = HostClock(clock)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(ddp, optimizer, monitor, STEPS)
    cadence = monitor.inspector.cadence() | {"state": monitor.inspector.cadences.every("state")}
    share = monitor.inspector.cadences.share()
    told = events(root, "cadence")
    state = derive("run", JournalTail(root / "run").poll()[0])
    monitor.close()
    progress = JournalTail(root / "run")
    progress.poll()
    rounds = [(e["check"], e["step"]) for e in events(root, "check") if e["phase"] != "close"]
    return {
        "cadence": cadence,
        "share": share,
        "rounds": {
            check: [step for name, step in rounds if name == check] for check in ("replica", "replay", "at_rest")
        },
        "told": told,
        "said": [str(w.message) for w in caught if "budget=" in str(w.message)],
        "due": {status.check: (status.interval_steps, status.due_step) for status in state.checks},
        "progress": [dict(event.data) for event in progress.progress.values()],
        "findings": len(events(root, "finding")),
        "weights": weights(ddp),
    }


@case
def tight(root: Path) -> Any:
    return trained(root, 1e-6)


@case
def wide(root: Path) -> Any:
    return trained(root, 0.999)


@case
def without(root: Path) -> Any:
    return trained(root, None)


@case
def dear_on_one_rank(root: Path) -> Any:
    """Rank 1 alone measures a thousand times what its checks take."""
    factor = 1000.0 if dist.get_rank() == 1 else 1.0
    return trained(root, 0.98, lambda: factor * time.perf_counter())


if __name__ == "__main__":
    run_cases()
