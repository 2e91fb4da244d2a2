"""Run lastgood from a terminal: ``lastgood COMMAND``.

A command is imported when it is called, so the lean install runs everything that needs no extra, and a command that
does need one says which. Exit codes: 0 fine; 1 the answer is no (an open incident, a difference); 2 cannot, or usage.
Bad input is one sentence on standard error, never a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Final

from lastgood import __version__
from lastgood.errors import LastgoodError
from lastgood_console.characters import tamed

FINE: Final = 0
NO: Final = 1
CANNOT: Final = 2

EXTRA_MODULES: Final = frozenset({"altair", "pandas", "rich", "starlette", "streamlit", "uvicorn"})
"""What the extra ``console`` installs, as its modules are called."""
GRAFANA_MODULES: Final = frozenset({"grafana_client", "niquests"})
"""What the extra ``grafana`` installs."""
INSTALL_GRAFANA: Final = "URLLIB3_NO_OVERRIDE=1 pip install --no-binary urllib3-future 'lastgood[grafana]'"
"""Without the two precautions it would replace the package ``urllib3`` of the environment."""

MOST_NAME: Final = 200
"""Characters of a file's name that a message shows."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what it shows; ``module:function``; the module of an extra without which it does not begin."""

    shows: str
    place: str
    needs: str = ""


COMMANDS: Final = {
    "demo": Command(
        "a real training run with a rank that lies, the verdict, the recovery, the files",
        "lastgood_console.demo:main", "rich",
    ),
    "drill": Command(
        "break devices in many ways in real training, and score what is found", "lastgood_console.drill:main", "rich",
    ),
    "console": Command(
        "the console in the browser, with its HTTP API", "lastgood_console.server:main", "streamlit"
    ),
    "serve": Command("the run metrics and the event intake alone, from the lean install", "lastgood.serve:main"),
    "incidents": Command(
        "the incidents of a run: which rank lied, and from where to resume",
        "lastgood_console.incident_commands:list_incidents",
    ),
    "incident": Command(
        "acknowledge, note, name the cause, close or reopen an incident", "lastgood_console.action_commands:incident"
    ),
    "export": Command("one incident as JSON, CSV, Markdown or HTML", "lastgood_console.incident_commands:export"),
    "checkpoint": Command(
        "the trust of a run's checkpoints; the bytes of one; your word for one",
        "lastgood_console.checkpoint_commands:main",
    ),
    "rules": Command("the alert rules for Prometheus, Kubernetes or Grafana", "lastgood_console.rules_command:main"),
    "grafana": Command(
        "dashboards, alert rules and annotations, deployed to a Grafana", "lastgood_console.deploy.command:main"
    ),
    "doctor": Command("what works on this machine, what does not, and the way out", "lastgood_console.doctor:main"),
    "stack": Command(
        "Prometheus, Alertmanager and the console of this machine together, without Docker",
        "lastgood_console.stack.command:main", "streamlit",
    ),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] not in COMMANDS:
        return _front(arguments)
    name, rest = arguments[0], arguments[1:]
    if any("\0" in argument for argument in rest):
        return cannot(name, "an argument holds a NUL character, which no path and no address may")
    try:
        code = _command(name)(rest)
        sys.stdout.flush()
        return code
    except ModuleNotFoundError as missing:
        return _missing(name, missing)
    except LastgoodError as problem:
        return cannot(name, str(problem))
    except BrokenPipeError:
        return _closed_pipe()
    except OSError as problem:
        if problem.filename is None:  # nothing that a person named: let it be seen
            raise
        return cannot(name, _about_file(problem))
    except KeyboardInterrupt:
        return cannot(name, "interrupted")


def cannot(name: str, text: str) -> int:
    """Say in one sentence why a command cannot be done, and return its exit code."""
    print(f"lastgood {name}: {tamed(text)}", file=sys.stderr)
    return CANNOT


def _about_file(problem: OSError) -> str:
    """Say what is wrong with a file or folder: its name too long, no permission, a file where a folder is meant."""
    named = os.fsdecode(problem.filename) if isinstance(problem.filename, (str, bytes)) else str(problem.filename)
    shown = named if len(named) <= MOST_NAME else f"{named[:MOST_NAME]}…"
    return f"{shown}: {problem.strerror or problem}; give a path that can be used here"


def _front(arguments: Sequence[str]) -> int:
    """Handle what stands before a command: ``--help``, ``--version``, nothing, a word that is no command."""
    parser = _parser()
    try:
        parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    parser.print_help(sys.stderr)
    return CANNOT


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<12} {command.shows}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="lastgood",
        description="Which rank lied, and which checkpoint is the last good one?",
        usage="lastgood [--help] [--version] COMMAND ...",
        epilog=f"commands:\n{listed}\n\n`lastgood COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lastgood {__version__}")
    parser.add_argument("command", nargs="?", choices=[*COMMANDS], metavar="COMMAND", help="see below")
    return parser


def _command(name: str) -> Callable[[list[str]], int]:
    """Import a command when it is called. Each takes its own arguments and returns an exit code."""
    command = COMMANDS[name]
    if command.needs:
        _require(command.needs)
    return _exiting(resolve_name(command.place))


def _require(module: str) -> None:
    """Fail before anything is said or started when a module of the extra is missing."""
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def _exiting(command: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Turn argparse's way of leaving (``--help``, a wrong option) into an exit code."""

    def run(arguments: list[str]) -> int:
        try:
            return command(arguments)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else CANNOT if stop.code else FINE

    return run


def _missing(name: str, missing: ModuleNotFoundError) -> int:
    """Say which extra a command needs. Anything else that is missing is a broken install: let it be seen."""
    module = (missing.name or "").partition(".")[0]
    if module in GRAFANA_MODULES:
        return cannot(name, f"needs the grafana extra: {INSTALL_GRAFANA}")
    if module not in EXTRA_MODULES:
        raise missing
    return cannot(name, "needs the console extra: pip install 'lastgood[console]'")


def _closed_pipe() -> int:
    """Leave quietly when the reader (``head``, a pager) has gone; nothing may be flushed to it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FINE


if __name__ == "__main__":
    raise SystemExit(main())
