"""``lastgood drill``: plan, run, score, show. Exit codes: 0 every target reached, 1 one missed, 2 cannot."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from lastgood import __version__
from lastgood.drill.score import Outcome
from lastgood.drill.summary import document, targets
from lastgood_console.drill.job import run
from lastgood_console.drill.options import Options, parse
from lastgood_console.drill.own_script import drill_script
from lastgood_console.drill.picture import render
from lastgood_console.drill.screen import followed, say_results
from lastgood_console.ending import Terminated, terminable

TERMINATED = 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run a drill and return its exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    try:
        with terminable():
            return _drill(options, _terminal())
    except Terminated:
        return TERMINATED


def _drill(options: Options, console: Console) -> int:
    if options.script is not None:
        with _folder(options.run_dir) as folder:
            return drill_script(options, console, folder)
    trials, began = options.plan(), time.monotonic()
    with _folder(options.run_dir) as folder, closing(run(trials, options.ranks, folder)) as outcomes_of:
        outcomes = list(followed(outcomes_of, trials, options, console))
    about = _about(options, round(time.monotonic() - began))
    _write(options, outcomes, about)
    say_results(outcomes, about, console)
    return 0 if all(target.reached for target in targets(outcomes)) else 1


@contextmanager
def _folder(run_dir: Path | None) -> Iterator[Path]:
    if run_dir is not None:
        yield run_dir.absolute()
        return
    with TemporaryDirectory(prefix="lastgood-drill-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _about(options: Options, seconds: int) -> dict[str, Any]:
    return {
        "lastgood": __version__,
        "seed": options.seed,
        "ranks": options.ranks,
        "size": "full" if options.full else "default",
        "only": options.only,
        "controls": options.controls,
        "seconds": seconds,
    }


def _write(options: Options, outcomes: Sequence[Outcome], about: dict[str, Any]) -> None:
    told = document(outcomes, about)
    if options.json is not None:
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if options.html is not None:
        options.html.write_text(render(told), encoding="utf-8")


def _terminal() -> Console:
    """Return where to print: a terminal as it is, else plain text without control codes."""
    if sys.stdout.isatty():
        return Console()
    return Console(force_terminal=False, color_system=None, width=160)
