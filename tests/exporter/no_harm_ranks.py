"""Train on several gloo ranks while one of them is lost; started by test_no_harm_ranks.py.

``python no_harm_ranks.py WHAT FOLDER PORT`` with RANK and WORLD_SIZE set. Prints JSON lines after an '@'.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from training_job import build, loss_fn, train, watch, weights

GROUP_SECONDS = 5.0
"""How long the job's own collectives wait for a rank."""


def say(**facts: Any) -> None:
    print("@" + json.dumps(facts), flush=True)


class Collectives:
    """Count the collectives that lastgood's own group began after one had failed, and the seconds they took."""

    def __init__(self, world: Any) -> None:
        self.seconds: list[float] = []
        for name in ("sum_", "max_", "gather", "broadcast_json"):
            self._time(world, name)

    def _time(self, world: Any, name: str) -> None:
        original = getattr(world, name)

        def timed(*arguments: Any, **more: Any) -> Any:
            began = time.monotonic()
            try:
                return original(*arguments, **more)
            except Exception:
                self.seconds.append(time.monotonic() - began)
                raise

        setattr(world, name, timed)


def a_rank_that_stops_before_a_save(root: Path) -> None:
    """Rank 1 stops answering before a save, so the first that waits for it is a check."""
    a_rank_that_stops(root, steps=0)


def a_rank_that_stops(root: Path, steps: int = 5) -> None:
    """Rank 1 stops answering before step 6; the others go on until their group gives up, then save and close."""
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, replica_every=2, replay_every=2)
    train(ddp, optimizer, monitor, 5)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    counted = Collectives(monitor.world)
    raised = ""
    try:
        train(ddp, optimizer, monitor, steps, first=6)
    except Exception as error:
        raised = type(error).__name__
    with monitor.checkpoint(root / "late.pt"):
        if dist.get_rank() == 0:
            torch.save(ddp.module.state_dict(), root / "late.pt")
    monitor.close()
    say(raised=raised, failed=counted.seconds, saved=(root / "late.pt").exists())


def a_rank_that_dies_in_a_save(root: Path) -> None:
    """Rank 1 is killed while rank 0 writes."""
    ddp, optimizer = build()
    monitor = watch(ddp, optimizer, root, replica_every=2, replay_every=2)
    train(ddp, optimizer, monitor, 4)
    with monitor.checkpoint(root / "cut.pt"):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.save(ddp.module.state_dict(), root / f"cut-{dist.get_rank()}.pt")
    monitor.close()
    say(weights=weights(ddp))


def plainly(root: Path, second: bool, raising: bool = False) -> dict[str, Any]:
    """Train 8 steps; ``second``: watched twice; ``raising``: ``loss_fn`` raises in every replay."""
    ddp, optimizer = build()

    def sometimes(model: Any, batch: Any) -> Any:
        if model is not ddp:  # a replay goes around the wrapper
            raise ZeroDivisionError("in a replay")
        return loss_fn(model, batch)

    monitor = watch(ddp, optimizer, root, loss_fn=sometimes if raising else loss_fn)
    if second:
        monitor = watch(ddp, optimizer, root)
    train(ddp, optimizer, monitor, 8)
    monitor.close()
    return {"weights": weights(ddp), "step": monitor.step, "passed": sorted(monitor.passed)}


def together(root: Path) -> None:
    """Once as it should be, once watched twice, once with a ``loss_fn`` that raises in a replay."""
    ddp, optimizer = build()
    train(ddp, optimizer, None, 8)
    plain = weights(ddp)
    found = {"plain": plain}
    for name, facts in (("twice", (True, False)), ("raising", (False, True))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found[name] = plainly(root / name, *facts)  # type: ignore[assignment]
        found[f"{name} said"] = [str(w.message) for w in caught if "lastgood" in str(w.message)]  # type: ignore[assignment]
    say(**found)


def main(what: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=GROUP_SECONDS if "stops" in what else 60))
    function: Callable[[Path], None] = globals()[what]
    function(Path(folder))
    sys.stdout.flush()
    os._exit(0)  # without tearing gloo down, which may abort (see docs/troubleshooting.md)


if __name__ == "__main__":
    main(sys.argv[2], sys.argv[1])
