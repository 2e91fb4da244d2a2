"""Decide which run and incident a page is about, from its address; say clearly what an address does not match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lastgood.gone import Gone
from lastgood.state import Incident, RunState
from lastgood_console.components.decision import is_open
from lastgood_console.hearing import gone_run

MOST_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class Selection:
    """What is shown. ``problem``: why nothing can be shown for this address (then the rest is None)."""

    state: RunState | None = None
    incident: Incident | None = None
    problem: str = ""


def select(
    states: Mapping[str, RunState], run: str | None, incident: str | None, gone: Gone | None = None
) -> Selection:
    """Return what the address means. Without a run: the newest open incident, else the newest, else the newest run.

    ``gone``: the runs that were there and are not any more.
    """
    if run and run not in states:
        said = (f"No run is called {run!r}.", gone_run(gone or Gone(), run), _known("Runs", states))
        return Selection(problem=" ".join(filter(None, said)))
    about = [states[run]] if run else list(states.values())
    if incident:
        return _by_id(about, incident, run)
    found = [(state, i) for state in about for i in state.incidents]
    if found:
        state, newest = max(found, key=lambda pair: (is_open(pair[1]), pair[1].opened_at))
        return Selection(state, newest)
    return Selection(max(about, key=lambda s: s.last_event_at)) if about else Selection()


def _by_id(about: list[RunState], incident: str, run: str | None) -> Selection:
    for state in about:
        for found in state.incidents:
            if incident == found.id or incident in found.aliases:
                return Selection(state, found)
    where = f"Run {run!r}" if run else "No run here"
    verb = "has no" if run else "has an"
    ids = [i.id for state in about for i in state.incidents]
    return Selection(problem=f"{where} {verb} incident {incident!r}. {_known('Incidents', ids)}")


def _known(what: str, names: Iterable[str]) -> str:
    known = list(names)
    if not known:
        return f"There are no {what.lower()}."
    more = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
    return f"{what}: {', '.join(known[:MOST_NAMES])}{more}."
