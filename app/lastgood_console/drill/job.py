"""Run all trials of a drill in one multi-process job on this machine, and read each as soon as it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from lastgood.drill.plan import Trial, plan_data
from lastgood.drill.score import Outcome, score
from lastgood.drill.truth import Truth, read_truth
from lastgood.errors import ConfigError, LastgoodError
from lastgood_console.demo.launcher import GRACE_SECONDS, environment, free_port, log_tail
from lastgood_console.demo.reading import Follower
from lastgood_console.ending import end_process

POLL_SECONDS = 0.2


class DrillError(LastgoodError):
    """The job ended in a way that is not the drill's: the message holds the end of its log."""


def run(trials: Sequence[Trial], ranks: int, folder: Path) -> Generator[Outcome, None, None]:
    """Yield what came of each trial, in the plan's order. Raises :class:`DrillError`."""
    write_plan(trials, folder)
    with started(["-m", "lastgood.drill.worker", str(folder)], ranks, folder / "drill.log") as process:
        yield from _outcomes(trials, folder, process)


def write_plan(trials: Sequence[Trial], folder: Path) -> None:
    """Write the plan where the ranks read it. Raises ConfigError where nobody could train."""
    if find_spec("torch") is None:
        raise ConfigError("the drill trains for real and needs torch: pip install 'lastgood[torch]'")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan_data(trials)), encoding="utf-8")


@contextmanager
def started(
    worker: Sequence[str], ranks: int, log: Path, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start torchrun's agent with ``ranks`` workers; leaving the block ends what still runs."""
    agent = [sys.executable, "-m", "lastgood.demo.agent", str(os.getpid()), "--nproc-per-node", str(ranks)]
    meeting = ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--local-addr", "127.0.0.1"]
    command = [*agent, *meeting, "--monitor-interval", "0.5", *worker]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=environment("", os.environ) | dict(environ or {}),
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            end_process(process, GRACE_SECONDS)


def _outcomes(trials: Sequence[Trial], folder: Path, process: subprocess.Popen[bytes]) -> Iterator[Outcome]:
    truths: dict[str, Truth] = {}
    for trial in trials:
        truths[trial.name] = _wait(trial, folder, process)
        follower = Follower(folder / trial.name, trial.name)
        state = follower.poll(1)
        if state is None or state.unreadable:
            raise DrillError(f"the journal of {trial.name} cannot be read")
        yield score(trial, state, truths[trial.name], truths.get(trial.reference))
        if trial.reference or not any(t.reference == trial.name for t in trials):
            del truths[trial.name]


def _wait(trial: Trial, folder: Path, process: subprocess.Popen[bytes]) -> Truth:
    path = folder / trial.name / "truth.json"
    while True:
        ended = process.poll() is not None  # asked first: what it wrote before it ended is read below
        if path.exists():
            return read_truth(json.loads(path.read_text(encoding="utf-8")))
        if ended:
            raise DrillError(f"the job ended in the trial {trial.name}:\n{log_tail(folder / 'drill.log')}")
        time.sleep(POLL_SECONDS)
