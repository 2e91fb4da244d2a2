"""Run the demo: attempt after attempt, shown while it runs, then what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from lastgood.events import slug
from lastgood.state import RunState
from lastgood.wording import TRUSTED_MEANS
from lastgood_console.demo.files import inventory, write_exports
from lastgood_console.demo.launcher import Agents, Launch, log_tail
from lastgood_console.demo.options import Options
from lastgood_console.demo.outcome import complaints
from lastgood_console.demo.pushed import pushed_line
from lastgood_console.demo.reading import Follower
from lastgood_console.demo.relaunch import Relaunch, Rest, Roster, next_attempt, spent
from lastgood_console.demo.screen import STARTING, LiveScreen, PlainScreen, Screen, View, introduction, trust_table
from lastgood_console.demo.story import moments, passed_steps, seats
from lastgood_console.incident_commands import healthy_text, incident_lines

POLL_SECONDS = 0.4


class TrainingError(Exception):
    """The training ended in a way that is not the demo's: the message holds the end of a log."""


def show(options: Options, console: Console) -> int:
    """Train, tell and judge; return the exit code. The console is the caller's business."""
    for sentence in introduction(options):
        console.print(sentence, highlight=False, soft_wrap=True)
    screen: Screen = LiveScreen(console) if console.is_terminal else PlainScreen(console)
    follower = Follower(options.run_dir, _run_id(options.run_dir))
    with screen:
        rest = _attempts(options, follower, screen)
    state = follower.state
    if state is None:
        raise TrainingError("the training wrote no journal")
    return _ending(state, options, rest, console)


def _run_id(run_dir: Path) -> str:
    """Return the run's id: the directory's name, or "demo" when nothing of it can be used."""
    try:
        return slug(run_dir.resolve().name)
    except ValueError:
        return "demo"


def _attempts(options: Options, follower: Follower, screen: Screen) -> str:
    """Run attempts until none follows; return why."""
    roster = Roster(options.node_names, (options.spare,))
    launch = Launch(1, roster.nodes)
    while True:
        _attempt(options, launch, roster, follower, screen)
        assert follower.state is not None
        attempt = follower.state.attempt
        if attempt is not None and attempt.end_reason == "completed":
            return ""
        following = next_attempt(follower.state, roster)
        if isinstance(following, Rest):
            return following.reason
        roster = following.roster
        launch = _next_launch(launch, following, follower.state, options)


def _next_launch(launch: Launch, following: Relaunch, state: RunState, options: Options) -> Launch:
    path = str(_found(options.run_dir, following.path))
    return Launch(launch.number + 1, following.roster.nodes, resume=path, armed=not spent(state))


def _found(run_dir: Path, path: str) -> Path:
    """Return a journaled checkpoint path as a path of this process."""
    return Path(path) if Path(path).is_absolute() else run_dir / path


def _attempt(options: Options, launch: Launch, roster: Roster, follower: Follower, screen: Screen) -> None:
    """Run one attempt to its end, and show it meanwhile. Raises :class:`TrainingError` when it ends without a word."""
    with Agents(options, launch, follower.run) as agents:
        running, began = True, time.monotonic()
        while running:
            running = agents.running()
            follower.poll(launch.number)
            screen.show(_view(options, launch, roster, follower, int(time.monotonic() - began)))
            if running:
                time.sleep(POLL_SECONDS)
    state = follower.state
    spoke = state is not None and state.attempt is not None and state.attempt.number == launch.number
    reason = state.attempt.end_reason if spoke and state and state.attempt else None
    if reason not in ("completed", "integrity"):
        node = next(iter(agents.failed()), launch.nodes[0])
        raise TrainingError(f"attempt {launch.number} failed on {node}; {agents.logs[node]} ends with:\n"
                            f"{log_tail(agents.logs[node])}")  # fmt: skip


def _view(options: Options, launch: Launch, roster: Roster, follower: Follower, seconds: int) -> View:
    state = follower.state
    here = state if state is not None and state.attempt and state.attempt.number == launch.number else None
    last = follower.last_line(launch.number)
    return View(
        options=options,
        attempt=launch.number,
        doing=_doing(launch, here),
        seconds=seconds,
        seats=seats(here, roster.nodes, options.ranks_per_node, roster.spares),
        lines=follower.lines.get(launch.number, []),
        passed=passed_steps(here, last.passed if last else {}),
        saves=state.checkpoints if state else (),
        moments=moments(state, follower.events) if state else (),
    )


def _doing(launch: Launch, here: RunState | None) -> str:
    if here is None or here.attempt is None:
        return STARTING
    if here.attempt.ended_at is None:
        return "training"
    return "completed" if here.attempt.end_reason == "completed" else "stopped"


def _ending(state: RunState, options: Options, rest: str, console: Console) -> int:
    """Tell the verdict, the checkpoints and the files; return the exit code."""
    console.print()
    for line in _verdict_lines(state, rest):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if options.push:
        ranks = sum(attempt.world_size for attempt in state.attempts)
        console.print(pushed_line(options.run_dir, options.push, ranks), highlight=False, soft_wrap=True, markup=False)
    good = state.last_good
    console.print()
    console.print(trust_table(state.checkpoints, (good.attempt, good.step, good.path) if good.exists else None))
    console.print(TRUSTED_MEANS, style="dim")
    console.print()
    for kind, where in inventory(options.run_dir, write_exports(state, options.run_dir)):
        console.print(f"  {kind:<12} {where}", highlight=False, soft_wrap=True, markup=False)
    wrong = complaints(state, options)
    for sentence in wrong:
        console.print(f"NOT AS IT MUST BE: {sentence}", style="bold red", highlight=False, soft_wrap=True)
    return 1 if wrong else 0


def _verdict_lines(state: RunState, rest: str) -> Iterator[str]:
    """Yield the incidents, oldest first, as ``lastgood incidents`` tells them, and why no further attempt followed."""
    for incident in reversed(state.incidents):
        yield from incident_lines(incident)
    if not state.incidents:
        yield healthy_text(state)
    if rest:
        yield rest
