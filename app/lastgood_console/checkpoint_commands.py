"""Show how far checkpoints can be trusted, check the bytes of one, vouch for one: ``lastgood checkpoint ...``.

``list`` and ``accept`` work from the lean install. ``verify`` reads tensors, so it runs
``python -m lastgood.checkpoint_verify`` as a process of its own: the command line itself never imports torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lastgood import wording
from lastgood.journal import is_run_dir
from lastgood.state import Checkpoint, LastGood, RunState
from lastgood_console import actions
from lastgood_console.action_commands import add_name_option, perform
from lastgood_console.characters import one_line
from lastgood_console.run_selection import (
    RUN_HELP,
    SelectionError,
    add_state_option,
    load_runs,
    open_run,
    say,
    table,
    warn_unreadable,
)


def main(arguments: list[str]) -> int:
    """Run ``lastgood checkpoint list RUN``, ``verify PATH`` or ``accept PATH``."""
    options = _parser().parse_args(arguments)
    if options.action == "accept":
        return accept(options)
    return list_checkpoints(options.run, options.state) if options.action == "list" else verify(options.path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lastgood checkpoint", description="Show how far checkpoints can be trusted; check the bytes of one."
    )
    commands = parser.add_subparsers(dest="action", required=True, metavar="list|verify|accept")
    listing = commands.add_parser(
        "list", help="the trust table of a run", description="Print the trust table of a run."
    )
    listing.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)
    add_state_option(listing)
    bytes_of = commands.add_parser(
        "verify",
        help="the bytes of a checkpoint against its stored fingerprint",
        description="Compare every tensor of a checkpoint with the fingerprint stored when it was saved. Needs torch. "
        "The exit code is 1 when one differs or is missing, 2 when it cannot be said.",
    )
    bytes_of.add_argument("path", type=Path, metavar="PATH", help="a checkpoint file or directory")
    _add_accept(commands.add_parser(
        "accept",
        help="your word for a checkpoint that cannot be verified",
        description="Vouch for a checkpoint that nobody can verify, so that what descends from it can be trusted. It "
        "goes into the run's journal with your name and reason. It makes no damaged or suspect bytes good.",
    ))  # fmt: skip
    return parser


def _add_accept(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="PATH|RUN", help="the checkpoint; with --parent-of the run")
    parser.add_argument("--parent-of", type=int, metavar="ATTEMPT", help="whatever this attempt was resumed from")
    parser.add_argument("--run", metavar="RUN", help="the run; default: the run directory that holds PATH")
    add_name_option(parser)
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why it can be trusted")
    add_state_option(parser)


def accept(options: argparse.Namespace) -> int:
    """Journal a person's word for a checkpoint, and say what is trusted by it. Returns 0."""
    if options.parent_of is not None:
        run = open_run(options.run or options.target, options.state)
        deed = actions.accept_parent(run.state, options.by, options.reason, attempt=options.parent_of)
    else:
        run = open_run(options.run or _run_above(Path(options.target)), options.state)
        deed = actions.accept(run.state, options.by, options.reason, path=options.target, run_dir=run.path)
    perform(run, deed)
    before = {_key(save): save.trust for save in run.state.checkpoints}
    say(f"{run.state.run}: accepted {deed.data['path'] or f'the parent of attempt {options.parent_of}'}.")
    for save in run.read_again().checkpoints:
        if (was := before.get(_key(save), save.trust)) != save.trust:
            say(f"  {one_line(save.path)}: {was} before, {save.trust} now")
    return 0


def _run_above(path: Path) -> str | None:
    """Return the run directory that holds a path; None when no folder above it is one."""
    return next((str(folder) for folder in path.absolute().parents if is_run_dir(folder)), None)


def _key(save: Checkpoint) -> tuple[int, int, str]:
    return (save.attempt, save.step, save.path)


def list_checkpoints(wanted: str | None, state_dir: Path | None = None) -> int:
    """Print the trust table of each run. Returns 0."""
    runs = load_runs(wanted, state_dir)
    for number, state in enumerate(runs.values()):
        warn_unreadable(state.unreadable)
        for line in ([""] if number else []) + [*checkpoint_lines(state)]:
            say(line)
    return 0


def checkpoint_lines(state: RunState) -> Iterator[str]:
    """Yield the trust table, newest first, then the last good checkpoint and what trust means."""
    yield f"{state.run} · {len(state.checkpoints)} checkpoints"
    if not state.checkpoints:
        yield _last_good(state.last_good)
        return
    rows = [_row(state, save) for save in reversed(state.checkpoints)]
    yield from table(("step", "attempt", "trust", "path", "why"), rows)
    yield _last_good(state.last_good)
    yield wording.TRUSTED_MEANS


def _last_good(last: LastGood) -> str:
    if not last.exists:
        return f"Last good: nothing. {last.reason}"
    where = f", {last.path}" if last.path else ""
    return f"Last good: {wording.resume_headline(last)}{where}, {last.trust}: {last.reason}"


def _row(state: RunState, save: Checkpoint) -> tuple[str, ...]:
    last = state.last_good
    mark = "Last good. " if (save.attempt, save.step, save.path) == (last.attempt, last.step, last.path) else ""
    trust = f"{wording.TRUST_SYMBOLS[save.trust]} {save.trust}"
    return (wording.step_text(save.step), str(save.attempt), trust, save.path, mark + save.reason)


def verify(path: Path) -> int:
    """Compare a checkpoint with its record in a process that has torch. Returns that process's exit code."""
    if not path.exists():
        raise SelectionError(f"{path} does not exist: give the path of a saved checkpoint (`lastgood checkpoint list`)")
    done = subprocess.run([sys.executable, "-m", "lastgood.checkpoint_verify", str(path)], check=False)
    return done.returncode if done.returncode in {0, 1, 2} else 2
