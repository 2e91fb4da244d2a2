"""Find the runs and the incident that a command line means, and print plain text about them.

RUN is a run directory (it has ``journal/``), a folder of them, or the name of a run in ``$LASTGOOD_RUNS`` or in
``./runs``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lastgood.errors import LastgoodError
from lastgood.journal import is_run_dir, run_id_of
from lastgood.ledger import Ledger, default_state_dir
from lastgood.state import Incident, RunState, Unreadable
from lastgood_console.characters import tamed

RUN_HELP: Final = "a run directory, a folder of them, or a run's name; default: $LASTGOOD_RUNS, else ./runs"
STATE_HELP: Final = "where posted events are kept; default: .lastgood in the folder of the runs"
_SHOWN: Final = 5


class SelectionError(LastgoodError):
    """The run or incident that was asked for is not there: says the value, the rule and the way out."""


def add_state_option(parser: argparse.ArgumentParser) -> None:
    """Let a command name the folder of posted events."""
    parser.add_argument("--state", type=Path, metavar="DIR", help=STATE_HELP)


def load_runs(
    wanted: str | None, state_dir: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Mapping[str, RunState]:
    """Return run id -> state of the runs that ``wanted`` means. Raises :class:`SelectionError` when there is none."""
    return _load(wanted, state_dir, environ)[1]


def _load(wanted: str | None, state_dir: Path | None, environ: Mapping[str, str]) -> tuple[Ledger, dict[str, RunState]]:
    places = [Path(part) for part in environ.get("LASTGOOD_RUNS", "").split(os.pathsep) if part] or [Path("runs")]
    if wanted and "://" in wanted:
        raise SelectionError(f"{wanted} is an object store; the runs must lie on a mounted POSIX file system")
    if wanted is None or Path(wanted).exists():
        ledger = _ledger(places if wanted is None else [Path(wanted)], state_dir)
        found = dict(ledger.runs())
    else:
        ledger = _ledger(places, state_dir)
        found = {name: state for name, state in ledger.runs().items() if name == wanted}
    if not found:
        raise SelectionError(_not_found(wanted, places))
    return ledger, found


def _ledger(paths: Sequence[Path], state_dir: Path | None) -> Ledger:
    ledger = Ledger(paths, state_dir=state_dir or default_state(paths))
    ledger.refresh()
    return ledger


def default_state(paths: Sequence[Path]) -> Path:
    """Return where posted events are kept when nobody says: for one run, where a console of its folder keeps them."""
    own = default_state_dir(paths)
    return paths[0].resolve().parent / ".lastgood" if paths and is_run_dir(paths[0]) and not own.exists() else own


def _not_found(wanted: str | None, places: Sequence[Path]) -> str:
    there = ", ".join(map(str, places))
    if wanted is None:
        return f"no runs in {there}: give a run directory, set LASTGOOD_RUNS, or start a run with `lastgood demo`"
    if Path(wanted).exists():
        return f"{wanted} holds no run: a run directory has journal/ with at least one event; give it, or its parent"
    return f"{wanted} does not exist and is no run's name in {there}: give a run directory or a folder of them"


@dataclass(frozen=True, slots=True)
class OpenRun:
    """One run, to be written to. ``run_id``: of its events; ``state.run`` is what it is called here."""

    state: RunState
    run_id: str
    path: Path | None  # None: known from posted events alone
    state_dir: Path
    ledger: Ledger

    def read_again(self) -> RunState:
        """Return the state as it is now."""
        self.ledger.refresh()
        return self.ledger.runs()[self.state.run]


def open_run(wanted: str | None, state_dir: Path | None = None, environ: Mapping[str, str] = os.environ) -> OpenRun:
    """Return the one run that ``wanted`` means. Raises :class:`SelectionError` when it is none or several."""
    ledger, found = _load(wanted, state_dir, environ)
    if len(found) > 1:
        raise SelectionError(f"{wanted or 'the folder of runs'} holds {len(found)} runs: name one of {_few(found)}")
    ((name, state),) = found.items()
    path = ledger.path_of(name)
    return OpenRun(state, (run_id_of(path) if path else None) or name, path, ledger.state_dir or Path(), ledger)


def load_run(wanted: str | None, state_dir: Path | None = None) -> RunState:
    """Return the state of the one run that ``wanted`` means. Raises as :func:`open_run`."""
    return open_run(wanted, state_dir).state


def select_incident(state: RunState, wanted: str | None) -> Incident:
    """Return the incident with this id, alias or beginning; without one, the newest open one, else the newest."""
    if not state.incidents:
        raise SelectionError(f"run {state.run} has no incident: there is nothing to export or to act upon")
    if wanted is None:
        return next((i for i in state.incidents if i.state in {"open", "reopened"}), state.incidents[0])
    exact = [i for i in state.incidents if wanted in {i.id, *i.aliases}]
    found = exact or [i for i in state.incidents if i.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    known = _few(i.id for i in state.incidents)
    problem = f"{len(found)} incidents begin with {wanted}" if found else f"run {state.run} has no incident {wanted}"
    raise SelectionError(f"{problem}: give one of {known}")


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_SHOWN]) + (f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else "")


def say(text: str = "") -> None:
    """Print a line for people. What others wrote cannot steer the terminal: such characters are replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    print(tamed(text).encode(encoding, "replace").decode(encoding))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns; the last one is not padded."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in (heads, *rows)
    ]


def warn_unreadable(unreadable: Sequence[Unreadable]) -> None:
    """Name the places that could not be read, on standard error."""
    if not unreadable:
        return
    many = f"{len(unreadable)} places" if len(unreadable) > 1 else "1 place"
    print(f"lastgood: {many} could not be read; what follows may be incomplete:", file=sys.stderr)
    for place in unreadable[:_SHOWN]:
        where = f"{place.file}:{place.line}" if place.line else place.file
        print(f"  {tamed(where, keep='')}: {tamed(place.reason, keep='')}", file=sys.stderr)
    if len(unreadable) > _SHOWN:
        print(f"  and {len(unreadable) - _SHOWN} more", file=sys.stderr)
