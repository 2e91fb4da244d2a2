"""Read the drill's command line. Every mistake is one sentence (:class:`~lastgood.errors.ConfigError`)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from lastgood.drill.own_plan import NAMES
from lastgood.drill.plan import FULL, QUICK, Size, Trial, make_plan
from lastgood.errors import ConfigError

RANK_CHOICES: Final = range(2, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one drill does."""

    seed: int = 0
    ranks: int = 3
    """Nodes of one rank each."""
    full: bool = False
    controls: int = 0
    only: str = ""
    json: Path | None = None
    html: Path | None = None
    run_dir: Path | None = None
    """Where the journals stay; None: they are removed at the end."""
    script: Path | None = None
    arguments: tuple[str, ...] = ()
    """Of the script."""
    time_limit: float | None = None
    """Seconds that one run of the script may take; None: as the first one suggests."""

    def plan(self) -> tuple[Trial, ...]:
        """Return the trials, or raise :class:`ConfigError` when there is none."""
        trials = make_plan(self.seed, self.ranks, self.size, self.only)
        if not any(trial.reference or not self.only or self.only in trial.name for trial in trials):
            raise ConfigError(
                f"--only {self.only}: no trial has that in its name, such as 0014-gradient-scale-transient"
            )
        return trials

    @property
    def size(self) -> Size:
        """Return how much is tried."""
        return replace(FULL if self.full else QUICK, controls=self.controls)


def parse(arguments: Sequence[str]) -> Options:
    """Return the options. Raises :class:`ConfigError`."""
    given = _parser().parse_args(arguments)
    _require(given.seed >= 0, f"--seed {given.seed}: a seed is 0 or more")
    _require(given.controls >= 0, f"--controls {given.controls}: a number of steps is 0 or more")
    for path in (given.json, given.html):
        _require(path is None or path.absolute().parent.is_dir(), f"{path}: its folder does not exist; create it first")
    _require(given.script is None or given.script.is_file(), f"--script {given.script}: there is no such file")
    _require(given.script is not None or not given.arguments, "arguments are for the script of --script: name one")
    _require(given.script is None or given.html is None, "--html is for a drill without --script: use --json")
    _require(given.script is None or any(given.only in name for name in NAMES), f"--only {given.only}: no fault that a "
             f"script is run under has that in its name; there are {', '.join(NAMES)}")  # fmt: skip
    limit = given.time_limit
    _require(limit is None or 0 < limit < math.inf, f"--time-limit {limit}: a limit is a number of seconds above 0")
    _require(limit is None or given.script is not None, "--time-limit is for the runs of --script: name one")
    given.arguments = tuple(given.arguments)
    found = given.run_dir is not None and given.run_dir.exists() and any(given.run_dir.iterdir())
    _require(not found, f"--run-dir {given.run_dir}: it is not empty; give a directory of its own")
    return Options(**{name: getattr(given, name) for name in Options.__dataclass_fields__})


def _require(ok: bool, complaint: str) -> None:
    if not ok:
        raise ConfigError(complaint)


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises its complaint instead of printing usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="lastgood drill",
        description="Break devices in many ways in real training on this machine, and score what is found: inside the "
        "documented reach of a check or not, by which check, how late, who was blamed, which steps and checkpoints. "
        "Exit code 1 when a target is missed.",
    )
    add = parser.add_argument
    add("--seed", type=int, default=0, help="chooses ranks, steps, values and models (default: 0)")
    add("--ranks", type=int, choices=RANK_CHOICES, default=3, help="nodes with one rank each (default: 3). With 2 "
        "there is no third to decide")  # fmt: skip
    add("--full", action="store_true", help="every site with every kind of fault, transient, intermittent and "
        "permanent, several times; up to 45 minutes")  # fmt: skip
    add("--controls", type=int, default=0, metavar="STEPS", help="clean steps beside those of the drill, in jobs of "
        "1,000, and as many with a sharded model")  # fmt: skip
    add("--only", default="", metavar="TEXT", help="only trials with TEXT in their name, and what they are compared to")
    add("--json", type=Path, metavar="FILE", help="write every trial and all sums as JSON")
    add("--html", type=Path, metavar="FILE", help="write one picture, a file of its own that needs nothing else")
    add("--run-dir", type=Path, metavar="DIR", help="keep the journals there; without it they are removed")
    add("--script", type=Path, metavar="FILE", help="drill your own training script, which calls lastgood.watch: would "
        "its settings have caught these faults? It is run once per fault")  # fmt: skip
    add("--time-limit", type=float, metavar="SECONDS", help="how long one run of the script may take before it "
        "is ended (default: 1800 for the first, then ten times what that one took, and at least 60)")  # fmt: skip
    add("arguments", nargs="*", metavar="ARGUMENTS", help="of the script, after --")
    return parser
