"""``lastgood demo``: parse, run, write the files, open the console. Exit codes: 0 as it must be, 1 not, 2 cannot."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from lastgood_console.demo.options import Options, UsageError, parse
from lastgood_console.demo.show import TrainingError, show
from lastgood_console.demo.web import stay_open
from lastgood_console.ending import Terminated, terminable

INTERRUPTED, TERMINATED = 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        with terminable():
            return _run(options, _terminal())
    except (UsageError, TrainingError) as error:
        print(f"lastgood demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lastgood demo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Terminated:
        return TERMINATED


def _run(options: Options, console: Console) -> int:
    try:
        options.run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--run-dir {options.run_dir}: {error.strerror}; give a directory that can be written"
        ) from error
    code = show(options, console)
    if options.console and console.is_terminal:
        stay_open(options, console)
    return code


def _terminal() -> Console:
    """Return where to print: a terminal as it is, else plain text without control codes."""
    if sys.stdout.isatty():
        return Console()
    return Console(force_terminal=False, color_system=None, width=120)
