"""Let visitors of the pages act on incidents and vouch for checkpoints: who may, under which name, written where.

Whoever is signed in may, under the name of the sign-in. Without a sign-in this machine itself may, and anybody who
shows the console's token. No Streamlit here, so that it is tested without a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from lastgood.admission import is_local, lower_names, same
from lastgood.journal import run_id_of
from lastgood.state import Incident
from lastgood_console.actions import INCIDENT_ACTIONS, ActionError, Deed, refusal, to_incident
from lastgood_console.people_journal import PeopleJournal, Written
from lastgood_console.store import Store
from lastgood_console.vouching import Choice

LABELS: Final[Mapping[str, str]] = {
    "acknowledge": "Acknowledge",
    "note": "Add note",
    "cause": "Name the cause",
    "close": "Close",
    "reopen": "Reopen",
}
_ACTIONS: Final = {label: action for action, label in LABELS.items()}
THIS_MACHINE: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page. ``address`` None: this machine. ``name``: of the sign-in, if there is one."""

    headers: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Saying:
    """What a visitor filled in."""

    action: str
    text: str = ""
    by: str = ""
    token: str = ""


class Desk:
    """Take what visitors say and do, for one store. ``token``: the console's, None when it has none."""

    def __init__(self, store: Store, journal: PeopleJournal, token: str | None = None) -> None:
        self._store, self._journal, self._token = store, journal, token

    def needs_token(self, visitor: Visitor) -> bool:
        """Tell whether a visitor has to show the token."""
        return not visitor.name and not self._admits(visitor, "")

    def act(self, run: str, incident: str, said: Saying, visitor: Visitor) -> Written:
        """Journal what a visitor does to an incident, and let the next look at the store show it.

        Raises :class:`lastgood_console.actions.ActionError` when that cannot be done.
        """
        self._admit(visitor, said.token)
        state = self._store.snapshot().states.get(run)
        about = next((i for i in state.incidents if incident in (i.id, *i.aliases)), None) if state else None
        if about is not None and about.origin == "metrics":
            raise ActionError(f"run {run} is told by metrics alone: act where its run directory is")
        if state is None or about is None:
            raise ActionError(f"incident {incident} of run {run} is not known any more: reload the page")
        return self._write(run, to_incident(state, about, said.action, visitor.name or said.by, said.text))

    def vouch(self, run: str, choice: Choice, said: Saying, visitor: Visitor) -> Written:
        """Journal a visitor's word for a checkpoint. Raises as :meth:`act`."""
        self._admit(visitor, said.token)
        state = self._store.snapshot().states.get(run)
        if state is None:
            raise ActionError(f"run {run} is not known any more: reload the page")
        if state.origin == "metrics":
            raise ActionError(f"run {run} is told by metrics alone: act where its run directory is")
        run_dir = self._store.ledger.path_of(run)
        return self._write(run, choice.deed(state, visitor.name or said.by, said.text, run_dir))

    def _write(self, run: str, deed: Deed) -> Written:
        path = self._store.ledger.path_of(run)
        written = self._journal.write((run_id_of(path) if path else None) or run, path, deed)
        with suppress(OSError):  # it is written; the next refresh shows it
            self._store.refresh()
        return written

    def _admit(self, visitor: Visitor, token: str) -> None:
        if not visitor.name and not self._admits(visitor, token):
            raise ActionError(self._refusal(token))

    def _admits(self, visitor: Visitor, token: str) -> bool:
        if token:
            return self._token is not None and same(token, self._token)
        return is_local(lower_names(visitor.headers), visitor.address or THIS_MACHINE)

    def _refusal(self, token: str) -> str:
        if self._token is None:
            return "only this machine may write here: set LASTGOOD_TOKEN where the console runs, and show it"
        return "this is not the token of this console" if token else "show the token of this console (LASTGOOD_TOKEN)"


def action_of(chosen: str) -> str:
    """Return the action that a form means: a browser names one by its label once it is not offered any more."""
    return _ACTIONS.get(chosen, chosen)


def possible(incident: Incident) -> tuple[str, ...]:
    """Return what has an effect on an incident now, the likeliest first; it is acknowledged once."""
    found = (action for action in INCIDENT_ACTIONS if not refusal(incident, action))
    return tuple(action for action in found if action != "acknowledge" or incident.acknowledged is None)
