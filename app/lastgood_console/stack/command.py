"""``lastgood stack``: start everything, say where it is, tell which alerts arrive, end everything.

Exit codes: 0 when a person ended it, 2 when it cannot start or a part of it has ended by itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from lastgood.errors import ConfigError
from lastgood.journal import is_run_dir
from lastgood.ledger import default_state_dir
from lastgood.serve import DEFAULT_PORT, run_paths
from lastgood_console.demo.options import FAULTS
from lastgood_console.ending import Terminated, terminable
from lastgood_console.stack.arrivals import Arrivals
from lastgood_console.stack.layout import Layout, alone_in, choose_ports, demo_part, missing_folders
from lastgood_console.stack.parts import PartError, Parts
from lastgood_console.stack.programs import find_programs

POLL_SECONDS: Final = 0.5
DEFAULT_FAULT: Final = "gradient"
SCRAPE_SECONDS: Final = range(1, 61)


def main(argv: Sequence[str]) -> int:
    """Run ``lastgood stack`` until Ctrl-C or SIGTERM. Returns 0, or 2 when a part cannot run."""
    options = _options(argv)
    try:
        with terminable():
            return _run(options)
    except (KeyboardInterrupt, Terminated):
        say("All of it has ended.")
        return 0
    except PartError as problem:
        print(f"lastgood stack: {problem}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    runs = run_paths(options.runs)
    if remote := next((path for path in options.runs if "://" in path), None):
        raise ConfigError(f"{remote} is an object store; the runs must lie on a mounted POSIX file system")
    missing = missing_folders(runs)
    demo_dir = _demo_dir(runs[0], datetime.now(UTC)) if options.demo else None
    layout = _layout(options, runs)
    programs = find_programs()  # last: what is wrong with the request is said on every machine
    for path in missing:
        if not options.demo or path != runs[0]:
            say(f"{path} does not exist yet; runs that appear there will be found")
    with alone_in(layout.folder), Parts() as parts:
        layout.write_configs()
        say("Starting the console, Alertmanager and Prometheus.")
        for part in layout.parts(programs):
            parts.start(part)
        for name in ("console", "alertmanager", "prometheus"):
            parts.wait_until_ready(name)
        arrivals = Arrivals(list(runs), layout.state)
        say(introduction(layout))
        if demo_dir:
            say(f"demo          {demo_dir}, fault {options.fault}")
            parts.start(demo_part(layout.folder, demo_dir, options.fault), lambda line: say(f"demo | {line}"))
        _watch(parts, arrivals, demo=demo_dir is not None)


def _watch(parts: Parts, arrivals: Arrivals, demo: bool) -> NoReturn:
    """Tell what arrives, until a person ends it or a part ends by itself (:class:`PartError`)."""
    while True:
        if demo and (code := parts.code_of("demo")) is not None:
            say(f"The demo has ended with code {code}; the rest goes on until Ctrl-C.")
            demo = False
        parts.check()
        for line in arrivals.poll():
            say(line)
        time.sleep(POLL_SECONDS)


def introduction(layout: Layout) -> str:
    """Return where everything is."""
    url = layout.ports.url
    return "\n".join((
        f"console       {url('console')}",
        f"prometheus    {url('prometheus')}  (scrapes every {layout.scrape_seconds} s)",
        f"alertmanager  {url('alertmanager')}",
        f"push to       {url('prometheus')}/api/v1/write",
        f"runs          {', '.join(map(str, layout.runs))}",
        f"data, logs    {layout.folder}",
        "Ctrl-C ends all of it.",
    ))  # fmt: skip


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def _token(environ: Mapping[str, str]) -> str | None:
    """Return what the servers show the console. Raises :class:`ConfigError` when it would refuse Alertmanager."""
    token = environ.get("LASTGOOD_TOKEN") or None
    if environ.get("LASTGOOD_WEBHOOK_SECRET") and token is None:
        raise ConfigError("LASTGOOD_WEBHOOK_SECRET is set, but Alertmanager cannot sign: set LASTGOOD_TOKEN too")
    return token


def _layout(options: argparse.Namespace, runs: Sequence[Path]) -> Layout:
    kept = default_state_dir(runs).absolute()
    folder, state = kept / "stack", kept
    if options.data:
        folder, state = options.data.absolute(), options.data.absolute() / "console"
    try:
        ports = choose_ports(options.port)
    except OSError as problem:
        raise ConfigError(f"no free port ({problem}); give another --port") from problem
    return Layout(
        runs=runs,
        folder=folder,
        state=state,
        ports=ports,
        scrape_seconds=options.scrape_interval,
        token=_token(os.environ),
    )


def _demo_dir(folder: Path, now: datetime) -> Path:
    """Return the demo's run directory: a new one in the folder of runs that the console reads."""
    if is_run_dir(folder):
        raise ConfigError(f"--demo: {folder} is a run; give the folder that runs lie in")
    return folder / f"demo-{now:%Y%m%dt%H%M%Sz}"


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.fault and not options.demo:
        parser.error("--fault is for the demo: give --demo too")
    options.fault = options.fault or DEFAULT_FAULT
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lastgood stack",
        description="Run Prometheus, Alertmanager and the console of this machine together, without Docker: alert "
        "rules loaded, ranks found, alerts sent to the console. Everything listens on 127.0.0.1, on the usual port or "
        "the next free one.",
    )
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUNS", help="run directories or folders of them; default: $LASTGOOD_RUNS, else "
        "./runs")  # fmt: skip
    add("--demo", action="store_true", help="start the demo too, in the first of RUNS")
    add("--fault", choices=FAULTS, metavar="FAULT", help=f"what the demo breaks; default: {DEFAULT_FAULT}")
    add("--scrape-interval", type=_seconds, default=5, metavar="SECONDS", help="between two scrapes, and between two "
        "evaluations of the rules: 1 to 60; default: 5")  # fmt: skip
    add("--port", type=_port, default=DEFAULT_PORT, help=f"of the console; default: {DEFAULT_PORT}")
    add("--data", type=Path, metavar="DIR", help="where all of it keeps data, configurations, logs and alerts; "
        "default: .lastgood in the first of RUNS")  # fmt: skip
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give 1 to 65535")
    return int(text)


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) not in SCRAPE_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 1 to 60")
    return int(text)
