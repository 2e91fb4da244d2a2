"""Run the trials of a drill in a few process groups on this machine, and read each trial as soon as it ends.

The ranks of a group wait for each other much of the time, so two groups side by side fill cores that one leaves idle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from lastgood.drill.plan import Trial, plan_data
from lastgood.drill.score import Outcome, score
from lastgood.drill.truth import Truth, read_truth
from lastgood.errors import ConfigError, LastgoodError
from lastgood_console.demo.launcher import GRACE_SECONDS, environment, free_port, log_tail
from lastgood_console.demo.reading import Follower
from lastgood_console.ending import end_process

POLL_SECONDS: Final = 0.2
TRIALS_PER_GROUP: Final = 8
"""A group takes seconds to start, as long as a few trials."""
MOST_GROUPS: Final = 8


class DrillError(LastgoodError):
    """The job ended in a way that is not the drill's: the message holds the end of its log."""


def run(trials: Sequence[Trial], ranks: int, folder: Path) -> Generator[Outcome, None, None]:
    """Yield what came of each trial, in the plan's order. Raises :class:`DrillError`."""
    write_plan(trials, folder)
    count = groups_for(len(trials), ranks, os.cpu_count() or 1)
    with ExitStack() as stack:
        groups = []
        for number in range(count):
            log = folder / f"drill-{number + 1}.log"
            worker = ["-m", "lastgood.drill.worker", str(folder), str(number), str(count)]
            groups.append(Group(stack.enter_context(started(worker, ranks, log)), log))
        yield from _outcomes(trials, folder, groups)


class Group(NamedTuple):
    """A process group that runs the trials whose turn it is."""

    process: subprocess.Popen[bytes]
    log: Path


def groups_for(trials: int, ranks: int, cores: int) -> int:
    """Return how many groups share so many trials: two, more where cores are left over, one for a handful of trials."""
    return max(1, min(trials // TRIALS_PER_GROUP, max(2, cores // ranks), MOST_GROUPS))


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


def _outcomes(trials: Sequence[Trial], folder: Path, groups: Sequence[Group]) -> Iterator[Outcome]:
    truths: dict[str, Truth] = {}
    for number, trial in enumerate(trials):
        truths[trial.name] = _wait(trial, folder, groups[number % len(groups)])
        follower = Follower(folder / trial.name, trial.name)
        state = follower.poll(1)
        if state is None or state.unreadable:
            raise DrillError(f"the journal of {trial.name} cannot be read")
        yield score(trial, state, truths[trial.name], truths.get(trial.reference))
        if trial.reference or not any(t.reference == trial.name for t in trials):
            del truths[trial.name]


def _wait(trial: Trial, folder: Path, group: Group) -> Truth:
    path = folder / trial.name / "truth.json"
    while True:
        ended = group.process.poll() is not None  # asked first: what it wrote before it ended is read below
        if path.exists():
            return read_truth(json.loads(path.read_text(encoding="utf-8")))
        if ended:
            raise DrillError(f"the job ended in the trial {trial.name}:\n{log_tail(group.log)}")
        time.sleep(POLL_SECONDS)
