"""Drill a user's own script: unwatched, clean, then once per fault; say whether its settings would have caught it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lastgood import __version__
from lastgood.drill import own_plan
from lastgood.drill.own_plan import CLEAN, NOTES, UNWATCHED, Step, Told, fault_trials, steps_file, tell, too_long
from lastgood.drill.own_reach import Noted
from lastgood.drill.plan import Trial
from lastgood.state import RunState
from lastgood_console.demo.launcher import log_tail
from lastgood_console.demo.reading import Follower
from lastgood_console.drill.job import POLL_SECONDS, DrillError, started, write_plan
from lastgood_console.drill.options import Options

_OURS: Final = ("LASTGOOD_RUN", "LASTGOOD_RUN_DIR", "LASTGOOD_NODE", "LASTGOOD_PUSH_URL", "LASTGOOD_CONSOLE_URL")
"""Settings of the environment that a drill does not pass on: its runs are no real ones."""
FIRST_LIMIT: Final = 1800.0
"""Seconds that the first run may take; nobody knows the script yet."""
LIMIT_TIMES: Final = 10
LEAST_LIMIT: Final = 60.0
"""Every other run may take ``LIMIT_TIMES`` the first one, and at least so many seconds."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the script: how long it took; ``over``: it was ended at its limit; ``code``: of its exit."""

    log: Path
    seconds: float
    over: bool
    code: int | None


def drill_script(options: Options, console: Console, folder: Path) -> int:
    """Run the script again and again, and print the report; return the exit code."""
    first = _control(UNWATCHED, options, console, folder, options.time_limit or FIRST_LIMIT)
    limit = options.time_limit or max(LEAST_LIMIT, LIMIT_TIMES * first.seconds)
    ran = _control(CLEAN, options, console, folder, limit)
    clean = _state(ran.log, CLEAN, folder)
    steps = clean.attempt.last_step if clean.attempt else 0
    if steps < 2:
        raise DrillError(f"{options.script} ended after step {steps}: a drill needs a few steps of optimizer.step()")
    trials = [t for t in fault_trials(options.seed, options.ranks, steps) if options.only in t.name]
    told = [_told(trial, trials, options, console, folder, limit) for trial in trials]
    about = _about(options, clean, folder, limit)
    if options.json is not None:
        options.json.write_text(json.dumps(own_plan.document(told, about), indent=1) + "\n", encoding="utf-8")
    return _report(told, about, clean, console)


def _control(trial: Trial, options: Options, console: Console, folder: Path, limit: float) -> Ran:
    """Run the script without a fault. Raises :class:`DrillError` where it cannot be drilled."""
    ran = _run(trial, (UNWATCHED, CLEAN), options, console, folder, limit)
    name, steps = options.script, _steps(folder, trial)
    if ran.over:
        raise DrillError(f"{name}, without any fault: {too_long(limit)}{_ending(ran.log)}")
    if ran.code:
        raise DrillError(f"{name} failed without any fault{_ending(ran.log)}")
    if steps is None:
        raise DrillError(f"{name} ended, and did not call lastgood.watch{_ending(ran.log)}")
    if len(steps) < 2:
        took = "took no step" if not steps else "took one step"
        need = "a drill needs a few calls of optimizer.step()"
        raise DrillError(f"{name} called lastgood.watch, {took} and ended: {need}{_ending(ran.log)}")
    return ran


def _told(
    trial: Trial, trials: Sequence[Trial], options: Options, console: Console, folder: Path, limit: float
) -> Told:
    """Run the script under one fault; return what came of it."""
    ran = _run(trial, (UNWATCHED, CLEAN, *trials), options, console, folder, limit)
    state = _state(ran.log, trial, folder)
    return tell(trial, state, _noted(folder, trial, options.ranks), limit if ran.over else None)


def _run(trial: Trial, plan: Sequence[Trial], options: Options, console: Console, folder: Path, limit: float) -> Ran:
    """Run the script once. It may end with an error of its own: a policy may stop it."""
    began, log = time.monotonic(), folder / f"{trial.name}.log"
    write_plan(plan, folder)
    worker = ["-m", "lastgood.drill.own_script", str(folder), trial.name, str(options.script), *options.arguments]
    with started(worker, options.ranks, log, _settings(os.environ)) as process:
        while process.poll() is None and time.monotonic() - began < limit:
            time.sleep(POLL_SECONDS)
        code, seconds = process.poll(), time.monotonic() - began
    over = ", ended at its time limit" if code is None else ""
    console.print(f"{trial.name}: {seconds:.0f} s{over}", style="dim", highlight=False)
    return Ran(log, seconds, code is None, code)


def _ending(log: Path) -> str:
    """Return the end of a log as the end of a sentence; nothing of an empty one."""
    said = log_tail(log).strip()
    return f"; its log ends with:\n{said}" if said else ""


def _steps(folder: Path, trial: Trial, rank: int = 0) -> list[Step] | None:
    """Return what a rank noted of its steps; None where the script has not called ``lastgood.watch``."""
    path = folder / trial.name / steps_file(rank)
    if not path.exists():
        return None
    finished = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [Step(*json.loads(line)) for line in finished.splitlines()]


def _noted(folder: Path, trial: Trial, ranks: int) -> Noted:
    path = folder / trial.name / NOTES
    notes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"alone": [], "scaled": False}
    return own_plan.noted([_steps(folder, trial, rank) or [] for rank in range(ranks)], **notes)


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the user's environment has: they are part of what is drilled."""
    return {k: v for k, v in environ.items() if k.startswith("LASTGOOD_") and k not in _OURS}


def _state(log: Path, trial: Trial, folder: Path) -> RunState:
    state = Follower(folder / trial.name, trial.name).poll(1) if (folder / trial.name / "journal").exists() else None
    if state is None:
        raise DrillError(f"{trial.name}: no journal was written{_ending(log)}")
    return state


def _about(options: Options, clean: RunState, folder: Path, limit: float) -> dict[str, Any]:
    plain, watched = ([step.ended for step in _steps(folder, trial) or []] for trial in (UNWATCHED, CLEAN))
    return {
        "lastgood": __version__,
        "script": str(options.script),
        "seed": options.seed,
        "ranks": options.ranks,
        "steps": clean.attempt.last_step if clean.attempt else 0,
        "cadence": dict(own_plan.cadences(clean)),
        "not_run": dict(clean.attempt.not_run) if clean.attempt else {},
        "seconds_per_step": own_plan.seconds_per_step(watched),
        "share_of_step_time": own_plan.share(plain, watched),
        "time_limit": round(limit),
        "clean_findings": len(clean.findings),
    }


def _report(told: Sequence[Told], about: Mapping[str, Any], clean: RunState, console: Console) -> int:
    console.print(_table(told))
    cadence = ", ".join(f"{check} {every}" for check, every in about["cadence"].items() if every)
    console.print(f"Steps between two checks: {cadence}. {about['steps']} steps.", highlight=False)
    for check, reason in about["not_run"].items():
        console.print(Text(f"Not run: {check} ({reason})."), soft_wrap=True)
    if about["share_of_step_time"] is not None:
        words = (
            f"{about['seconds_per_step']:.3g} s a step, {100 * about['share_of_step_time']:+.1f} % against no checks"
        )
        console.print(f"Cost here: {words} (one run each; short runs say little).", highlight=False)
    return _say_misses(told, clean, console)


def _table(told: Sequence[Told]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("where", "what", "when", "rank", "from step", "found at", "by", "accused", "last good"):
        table.add_column(head, no_wrap=True)
    for one in told:
        found = "outside" if one.result == "outside" else _cell(one.found)
        told_of = [one.row, one.kind, one.when, str(one.rank), _cell(one.first), found]
        named = [" ".join(one.checks) or "–", " ".join(map(str, one.accused)) or "–", _cell(one.last_good)]
        table.add_row(*told_of, *named)
    return table


def _say_misses(told: Sequence[Told], clean: RunState, console: Console) -> int:
    """Say what was not found and why, then the answer; return the exit code."""
    outside = [one for one in told if one.result == "outside"]
    for one in outside:
        console.print(Text(f"○ {one.trial}: outside reach, {one.why_not}"), soft_wrap=True)
    wrong = [*own_plan.complaints(told, clean)]
    for complaint in wrong:
        console.print(Text.assemble(("✗ ", "bold red"), complaint), soft_wrap=True)
    if not wrong:
        mark = "○ " if len(outside) == len(told) else "✓ "
        console.print(Text.assemble((mark, "blue"), own_plan.answer(told)), soft_wrap=True)
    return 1 if wrong else 0


def _cell(value: int | None) -> str:
    return "–" if value is None else str(value)
