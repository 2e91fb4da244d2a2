"""Drill a user's own script: unwatched, clean, then once per fault; say whether its settings would have caught it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lastgood import __version__
from lastgood.drill import own_plan
from lastgood.drill.own_plan import CLEAN, UNWATCHED, Told, fault_trials, tell
from lastgood.drill.plan import CONTROL, Trial
from lastgood.state import RunState
from lastgood_console.demo.launcher import log_tail
from lastgood_console.demo.reading import Follower
from lastgood_console.drill.job import POLL_SECONDS, DrillError, started, write_plan
from lastgood_console.drill.options import Options

_OURS: Final = ("LASTGOOD_RUN", "LASTGOOD_RUN_DIR", "LASTGOOD_NODE", "LASTGOOD_PUSH_URL", "LASTGOOD_CONSOLE_URL")
"""Settings of the environment that a drill does not pass on: its runs are no real ones."""


def drill_script(options: Options, console: Console, folder: Path) -> int:
    """Run the script again and again, and print the report; return the exit code."""
    _run(UNWATCHED, (UNWATCHED, CLEAN), options, console, folder)
    clean = _state(_run(CLEAN, (UNWATCHED, CLEAN), options, console, folder), CLEAN, folder)
    steps = clean.attempt.last_step if clean.attempt else 0
    if steps < 2:
        raise DrillError(f"{options.script} ended after step {steps}: a drill needs a few steps of optimizer.step()")
    trials = [t for t in fault_trials(options.seed, options.ranks, steps) if options.only in t.name]
    told = [tell(t, _state(_run(t, (UNWATCHED, CLEAN, *trials), options, console, folder), t, folder)) for t in trials]
    about = _about(options, clean, folder)
    if options.json is not None:
        options.json.write_text(json.dumps(own_plan.document(told, about), indent=1) + "\n", encoding="utf-8")
    return _report(told, about, clean, console)


def _run(trial: Trial, plan: Sequence[Trial], options: Options, console: Console, folder: Path) -> Path:
    """Run the script once; return its log. It may end with an error of its own: a policy may stop it."""
    began, log = time.monotonic(), folder / f"{trial.name}.log"
    write_plan(plan, folder)
    worker = ["-m", "lastgood.drill.own_script", str(folder), trial.name, str(options.script), *options.arguments]
    with started(worker, options.ranks, log, _settings(os.environ)) as process:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
    console.print(f"{trial.name}: {time.monotonic() - began:.0f} s", style="dim", highlight=False)
    if trial.row == CONTROL and process.returncode:
        raise DrillError(f"{options.script} failed without any fault; its log ends with:\n{log_tail(log)}")
    return log


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the user's environment has: they are part of what is drilled."""
    return {k: v for k, v in environ.items() if k.startswith("LASTGOOD_") and k not in _OURS}


def _state(log: Path, trial: Trial, folder: Path) -> RunState:
    state = Follower(folder / trial.name, trial.name).poll(1) if (folder / trial.name / "journal").exists() else None
    if state is None:
        raise DrillError(f"no journal was written: does the script call lastgood.watch? Its log ends with:\n"
                         f"{log_tail(log)}")  # fmt: skip
    return state


def _about(options: Options, clean: RunState, folder: Path) -> dict[str, Any]:
    times = {name: json.loads((folder / name / "times.json").read_text("utf-8")) for name in ("unwatched", "clean")}
    return {
        "lastgood": __version__,
        "script": str(options.script),
        "seed": options.seed,
        "ranks": options.ranks,
        "steps": clean.attempt.last_step if clean.attempt else 0,
        "cadence": dict(own_plan.cadences(clean)),
        "not_run": dict(clean.attempt.not_run) if clean.attempt else {},
        "seconds_per_step": own_plan.seconds_per_step(times["clean"]),
        "share_of_step_time": own_plan.share(times["unwatched"], times["clean"]),
        "clean_findings": len(clean.findings),
    }


def _report(told: Sequence[Told], about: Mapping[str, Any], clean: RunState, console: Console) -> int:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("where", "what", "when", "rank", "from step", "found at", "by", "accused", "last good"):
        table.add_column(head, no_wrap=True)
    for one in told:
        told_of = [one.row, one.kind, one.when, str(one.rank), _cell(one.first), _cell(one.found)]
        named = [" ".join(one.checks) or "–", " ".join(map(str, one.accused)) or "–", _cell(one.last_good)]
        table.add_row(*told_of, *named)
    console.print(table)
    cadence = ", ".join(f"{check} {every}" for check, every in about["cadence"].items() if every)
    console.print(f"Steps between two checks: {cadence}. {about['steps']} steps.", highlight=False)
    for check, reason in about["not_run"].items():
        console.print(f"Not run: {check} ({reason}).", highlight=False)
    if about["share_of_step_time"] is not None:
        words = (
            f"{about['seconds_per_step']:.3g} s a step, {100 * about['share_of_step_time']:+.1f} % against no checks"
        )
        console.print(f"Cost here: {words} (one run each; short runs say little).", highlight=False)
    wrong = [*own_plan.complaints(told, clean)]
    for complaint in wrong:
        console.print(Text.assemble(("✗ ", "bold red"), complaint), soft_wrap=True)
    if not wrong:
        console.print(Text.assemble(("✓ ", "blue"), "These settings would have caught every one of them."))
    return 1 if wrong else 0


def _cell(value: int | None) -> str:
    return "–" if value is None else str(value)
