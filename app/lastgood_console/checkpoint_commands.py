"""Show how far checkpoints can be trusted, and check the bytes of one: ``lastgood checkpoint list`` and ``verify``.

``list`` works from the lean install. ``verify`` reads tensors, so it runs ``python -m lastgood.checkpoint_verify`` as a
process of its own: the command line itself never imports torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lastgood import wording
from lastgood.state import Checkpoint, RunState
from lastgood_console.run_selection import RUN_HELP, SelectionError, load_runs, say, table, warn_unreadable


def main(arguments: list[str]) -> int:
    """Run ``lastgood checkpoint list RUN`` or ``lastgood checkpoint verify PATH``."""
    options = _parser().parse_args(arguments)
    return list_checkpoints(options.run) if options.action == "list" else verify(options.path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lastgood checkpoint", description="Show how far checkpoints can be trusted; check the bytes of one."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|verify")
    listing = actions.add_parser("list", help="the trust table of a run", description="Print the trust table of a run.")
    listing.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)
    bytes_of = actions.add_parser(
        "verify",
        help="the bytes of a checkpoint against its stored fingerprint",
        description="Compare every tensor of a checkpoint with the fingerprint stored when it was saved. Needs torch. "
        "The exit code is 1 when one differs or is missing, 2 when it cannot be said.",
    )
    bytes_of.add_argument("path", type=Path, metavar="PATH", help="a checkpoint file or directory")
    return parser


def list_checkpoints(wanted: str | None) -> int:
    """Print the trust table of each run. Returns 0."""
    runs = load_runs(wanted)
    for number, state in enumerate(runs.values()):
        warn_unreadable(state.unreadable)
        for line in ([""] if number else []) + [*checkpoint_lines(state)]:
            say(line)
    return 0


def checkpoint_lines(state: RunState) -> Iterator[str]:
    """Yield the trust table, newest first, then the last good checkpoint and what trust means."""
    yield f"{state.run} · {len(state.checkpoints)} checkpoints"
    if not state.checkpoints:
        yield "Nothing saved yet. Resume is possible from step 0 only."
        return
    rows = [_row(state, save) for save in reversed(state.checkpoints)]
    yield from table(("step", "attempt", "trust", "path", "why"), rows)
    last = state.last_good
    if last.exists:
        yield f"Last good: {wording.resume_headline(last)}, {last.path}, {last.trust}: {last.reason}"
    else:
        yield f"Last good: nothing. {last.reason}"
    yield wording.TRUSTED_MEANS


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
