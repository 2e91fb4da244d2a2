"""Run a user's own training script under a fault: ``torchrun -m lastgood.drill.own_script FOLDER TRIAL SCRIPT ...``.

The script is run as it is. Only ``lastgood.watch`` is another one meanwhile: it gives the run a directory of its own,
hands the injector over and puts the fault into a layer. Loop, model, data, settings and policy stay the user's. In a
*plain* trial nothing is watched at all, so that what the checks cost can be told.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import random
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import lastgood
from lastgood.demo.orphan import end_with_parent
from lastgood.demo.train import leave
from lastgood.drill.own_plan import NOTES, Step, steps_file
from lastgood.drill.plan import Trial, read_plan
from lastgood.fault_specs import LAYER_SITES
from lastgood.faults import Injector


class Unwatched:
    """What ``lastgood.watch`` returns in a plain trial: the same calls, and nothing is checked."""

    def __init__(self, model: nn.Module, loss_fn: Callable[[nn.Module, Any], Any] | None) -> None:
        self._model, self._loss_fn = model, loss_fn
        self.step = 0

    def loss(self, batch: Any) -> Any:
        """Return ``loss_fn(model, batch)``."""
        if self._loss_fn is None:
            raise lastgood.ConfigError("monitor.loss needs loss_fn: pass loss_fn=... to lastgood.watch")
        return self._loss_fn(self._model, batch)

    def checkpoint(self, path: Any) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def resume(self, path: Any, *, step: int | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Watch:
    """Stands for ``lastgood.watch`` while the script runs."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self.trial, self.folder, self.rank = trial, folder / trial.name, int(os.environ["RANK"])
        self._steps: IO[str] | None = None
        self._monitor: Any = None
        self._watch = lastgood.watch

    def __call__(self, model: nn.Module, optimizer: Any, **settings: Any) -> Any:
        """Watch the script's model in this trial's directory, with this trial's fault."""
        first = optimizer if isinstance(optimizer, Optimizer) else next(iter(optimizer))
        if self._steps is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._steps = (self.folder / steps_file(self.rank)).open("w", encoding="utf-8", buffering=1)
        first.register_step_post_hook(self._stepped)
        if self.trial.sort == "plain":
            return Unwatched(model, settings.get("loss_fn"))
        injector = self._injector(model)
        own = {"run_dir": self.folder, "run": self.trial.name}
        given = {**settings, **own, **({"injector": injector} if injector else {})}
        self._monitor = self._watch(model, optimizer, **given)
        if self.rank == 0:
            notes = {"alone": without_replica(self._monitor), "scaled": scales(settings.get("scaler"))}
            (self.folder / NOTES).write_text(json.dumps(notes), encoding="utf-8")
        return self._monitor

    def _injector(self, model: nn.Module) -> Injector | None:
        fault = next((f for f in self.trial.faults if f.rank == self.rank or f.site == "reduce-all"), None)
        if fault is None:
            return None
        injector = Injector(fault, self.rank)
        if fault.site in LAYER_SITES:
            injector.wrap(layer_of(model, self.trial.layer))
        injector.arm()
        return injector

    def _stepped(self, *_: Any) -> None:
        """Write at once that a step ended: the script may be ended at any time, and in any way."""
        assert self._steps is not None
        step = Step(time.monotonic())
        if self._monitor is not None:
            inspector = self._monitor.inspector
            norm = inspector.judge.norms[-1] if inspector.judge.norms else math.nan
            limit = inspector.tolerance.value if inspector.tolerance else math.nan
            step = Step(step.ended, *(value if math.isfinite(value) else None for value in (norm, limit)))
        self._steps.write(f"{json.dumps(step)}\n")


def without_replica(monitor: Any) -> list[str]:
    """Return the parameters of which no other rank holds the same: those of a sharded model without replicas."""
    shards = monitor._shards
    return [] if shards is None else sorted(shards.alone)


def scales(scaler: Any) -> bool:
    """Tell whether a loss scaler is in use, which skips steps that are not finite."""
    return scaler is not None and bool(scaler.is_enabled())


def layer_of(model: nn.Module, seed: int) -> nn.Module:
    """Return a seeded layer of the model: a module without children that has parameters to train."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    layers = [m for m in inner.modules() if not [*m.children()] and any(p.requires_grad for p in m.parameters())]
    return random.Random(f"layer {seed}").choice(layers)


def main(arguments: Sequence[str]) -> None:
    """Run the script under the named trial of ``FOLDER/plan.json``. Its exceptions and exit code are its own."""
    end_with_parent()
    folder, name, script = Path(arguments[0]), arguments[1], arguments[2]
    trials = read_plan(json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    watch = Watch(next(trial for trial in trials if trial.name == name), folder)
    os.environ["LASTGOOD_NODE"] = f"node-{watch.rank + 1}"
    vars(lastgood)["watch"] = watch
    sys.argv = [script, *arguments[3:]]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


if __name__ == "__main__":
    main(sys.argv[1:])
    # A script that leaves its process group to the interpreter may abort in gloo's teardown (lastgood.demo.train).
    atexit._run_exitfuncs()
    leave(0)
