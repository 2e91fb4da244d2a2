"""``lastgood grafana deploy``: parse, read, compare, show, send. What cannot be done raises."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from lastgood.state import RunState
from lastgood_console.deploy.found import check_data_source, read
from lastgood_console.deploy.grafana import Grafana
from lastgood_console.deploy.marks import MOST_PER_RUN, marks_of
from lastgood_console.deploy.options import Options, UsageError, parse
from lastgood_console.deploy.plan import plan
from lastgood_console.deploy.send import send
from lastgood_console.deploy.show import annotations_done, done_lines, plan_lines, summary
from lastgood_console.deploy.things import Change, Json, Plan
from lastgood_console.deploy.wanted import wanted
from lastgood_console.run_selection import load_runs, say, warn_unreadable


def main(arguments: list[str]) -> int:
    """Run ``lastgood grafana deploy``."""
    options = parse(arguments)
    runs = load_runs(options.annotations) if options.annotations is not None else {}
    for state in runs.values():
        warn_unreadable(state.unreadable)
    secrets = [options.console_token, options.console_secret]
    with Grafana(options.url, options.token, options.timeout_seconds, secrets) as grafana:
        return deploy(options, runs, grafana)


def deploy(options: Options, runs: Mapping[str, RunState], grafana: Grafana) -> int:
    """Deploy to ``grafana``, or with ``dry_run`` show what would be done."""
    version = grafana.version()
    say(f"Grafana {version} at {options.url}")
    if options.parts != {"annotations"} and (warning := check_data_source(grafana, options.data_source)):
        print(f"lastgood grafana: warning: {warning}", file=sys.stderr)
    target = wanted(options, [mark for state in runs.values() for mark in _marks(state, options.console_url)])
    found = read(grafana, target, tuple(runs))
    todo = plan(target, found)
    _refuse(todo)
    if options.dry_run:
        for line in plan_lines(todo):
            say(line)
    else:
        send(todo, grafana, found.policy, _say_done)
        for line in annotations_done(todo):
            say(line)
    say(summary(todo, options.dry_run))
    return 0


def _say_done(change: Change) -> None:
    for line in done_lines(change):
        say(line)


def _marks(state: RunState, console_url: str) -> list[Json]:
    found = marks_of(state, console_url)
    if len(found) == MOST_PER_RUN:
        text = f"of run {state.run} the newest {MOST_PER_RUN} findings and saves are annotated"
        print(f"lastgood grafana: {text}", file=sys.stderr)
    return found


def _refuse(todo: Plan) -> None:
    """Raise when something forbids the plan."""
    if todo.conflicts:
        listed = "\n".join(f"  {conflict}" for conflict in todo.conflicts)
        raise UsageError(f"nothing was sent, because\n{listed}")
