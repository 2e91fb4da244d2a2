"""Find the runs and the incident that a command line means, and print plain text about them.

RUN is a run directory (it has ``journal/``), a folder of them, or the name of a run in ``$LASTGOOD_RUNS`` or in
``./runs``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lastgood.errors import LastgoodError
from lastgood.ledger import Ledger, default_state_dir
from lastgood.state import Incident, RunState, Unreadable
from lastgood_console.characters import tamed

RUN_HELP: Final = "a run directory, a folder of them, or a run's name; default: $LASTGOOD_RUNS, else ./runs"
_SHOWN: Final = 5


class SelectionError(LastgoodError):
    """The run or incident that was asked for is not there: says the value, the rule and the way out."""


def load_runs(wanted: str | None, environ: Mapping[str, str] = os.environ) -> Mapping[str, RunState]:
    """Return run id -> state of the runs that ``wanted`` means. Raises :class:`SelectionError` when there is none."""
    places = [Path(part) for part in environ.get("LASTGOOD_RUNS", "").split(os.pathsep) if part] or [Path("runs")]
    if wanted and "://" in wanted:
        raise SelectionError(f"{wanted} is an object store; the runs must lie on a mounted POSIX file system")
    if wanted is None or Path(wanted).exists():
        found = _read(places if wanted is None else [Path(wanted)])
    else:
        found = {name: state for name, state in _read(places).items() if name == wanted}
    if not found:
        raise SelectionError(_not_found(wanted, places))
    return found


def _read(paths: Sequence[Path]) -> dict[str, RunState]:
    ledger = Ledger(paths, state_dir=default_state_dir(paths))
    ledger.refresh()
    return dict(ledger.runs())


def _not_found(wanted: str | None, places: Sequence[Path]) -> str:
    there = ", ".join(map(str, places))
    if wanted is None:
        return f"no runs in {there}: give a run directory, set LASTGOOD_RUNS, or start a run with `lastgood demo`"
    if Path(wanted).exists():
        return f"{wanted} holds no run: a run directory has journal/ with at least one event; give it, or its parent"
    return f"{wanted} does not exist and is no run's name in {there}: give a run directory or a folder of them"


def load_run(wanted: str | None) -> RunState:
    """Return the one run that ``wanted`` means. Raises :class:`SelectionError` when it is none or several."""
    runs = load_runs(wanted)
    if len(runs) > 1:
        raise SelectionError(f"{wanted or 'the folder of runs'} holds {len(runs)} runs: name one of {_few(runs)}")
    return next(iter(runs.values()))


def select_incident(state: RunState, wanted: str | None) -> Incident:
    """Return the incident with this id, alias or beginning; without one, the newest open one, else the newest."""
    if not state.incidents:
        raise SelectionError(f"run {state.run} has no incident: there is nothing to export")
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
        print(f"  {where}: {place.reason}", file=sys.stderr)
    if len(unreadable) > _SHOWN:
        print(f"  and {len(unreadable) - _SHOWN} more", file=sys.stderr)
