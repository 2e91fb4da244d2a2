"""``lastgood doctor``: parse, look, print. Exit codes: 0 nothing fails, 1 something does."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from lastgood.serve import run_paths
from lastgood_console.doctor import install, network, run_directory, settings
from lastgood_console.doctor.item import Item, document, lines, worst
from lastgood_console.run_selection import say


def main(argv: Sequence[str]) -> int:
    """Look at this machine and print what works, what does not, and the way out."""
    given = _parser().parse_args(list(argv))
    items = list(look(given.runs, given.prometheus, os.environ))
    for line in [json.dumps(document(items), indent=2)] if given.json else lines(items):
        say(line)
    return 1 if worst(items) == "fail" else 0


def look(runs: Sequence[str], prometheus: str | None, environ: Mapping[str, str]) -> Iterator[Item]:
    """Yield everything that was looked at. ``runs``: run directories, or folders of them."""
    yield from install.look(environ)
    yield from settings.look(environ)
    for path in runs or _usual(environ):
        yield from run_directory.look(path)
    yield from network.look(environ, prometheus)


def _usual(environ: Mapping[str, str]) -> list[str]:
    """Return where runs are when nobody says it: where this environment trains, else what the console reads."""
    own = environ.get("LASTGOOD_RUN_DIR")
    return [own] if own else [str(path) for path in run_paths([], environ)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lastgood doctor",
        description="Say what of lastgood works on this machine, what does not, and the way out. Nothing is changed.",
    )
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUNS", help="run directories to try (default: $LASTGOOD_RUN_DIR, else "
        "$LASTGOOD_RUNS, else ./runs)")  # fmt: skip
    add("--prometheus", metavar="URL", help="a Prometheus to try: is lastgood scraped, are its alert rules loaded")
    add("--json", action="store_true", help="print JSON")
    return parser
