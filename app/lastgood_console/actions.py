"""Decide what a person may say and do to an incident or a checkpoint: plain values, no files, no clock.

A person can acknowledge an incident, note something, name the cause, close it, reopen it, and accept a checkpoint that
cannot be verified. Each becomes one event of the run's journal with name and time (:mod:`.people_journal` writes it);
what follows from it is for :mod:`lastgood.fold` alone. Refused here: what would have no effect, names that lastgood
uses itself, and text that is too long or does more than stand there. An :class:`ActionError` says value, rule, way out.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from lastgood import wording
from lastgood.errors import LastgoodError
from lastgood.lineage import from_nothing
from lastgood.state import Attempt, Checkpoint, Incident, RunState
from lastgood_console.characters import LINE_ENDS, steers

MOST_LETTERS: Final = 4_000
"""Of a text: several screens; what is longer belongs into a ticket."""
MOST_NAME_LETTERS: Final = 80
RESERVED: Final = frozenset({"cleared", "lastgood", "unknown"})
"""Names that stand for no person where lastgood says who."""

INCIDENT_ACTIONS: Final[Mapping[str, str]] = {
    "acknowledge": "say that somebody has seen it",
    "note": "write down what you found or did",
    "cause": "name what it was",
    "close": "end it: saves in its window stay suspect, unless it was only a suspicion",
    "reopen": "take it up again after it was closed or recovered",
}
"""What a person can do to an incident -> what it means."""


class ActionError(LastgoodError):
    """It cannot be done: says the value, the rule and the way out."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One event to be journaled. ``not_before``: no earlier than what the person has seen, whatever the clocks say."""

    type: str
    attempt: int
    data: Mapping[str, Any]
    not_before: str
    step: int | None = None


def to_incident(state: RunState, incident: Incident, action: str, by: str, text: str = "") -> Deed:
    """Return what a person does to an incident: one of :data:`INCIDENT_ACTIONS`."""
    if why := refusal(incident, action):
        raise ActionError(why)
    said = body(text, needed=action != "acknowledge", what=action)
    data = {"author": name(by), "incident": incident.id}
    if action == "note":
        return Deed("note", incident.attempt, {"text": said} | data, after(state))
    return Deed(
        "action", incident.attempt, {"action": action} | data | ({"reason": said} if said else {}), after(state)
    )


def refusal(incident: Incident, action: str) -> str:
    """Return why an action would have no effect; nothing when it can be done."""
    if action not in INCIDENT_ACTIONS:
        return f"{action!r} is nothing that can be done: use one of {', '.join(INCIDENT_ACTIONS)}"
    stands = f"incident {incident.id} is {wording.state_phrase(incident)}"
    is_open = incident.state in ("open", "reopened")
    if action == "acknowledge" and not is_open:
        return f"{stands}: only an open one waits to be acknowledged; write a note, or reopen it"
    if action == "close" and incident.state == "closed":
        return f"{stands} already: write a note, or name the cause"
    if action == "reopen" and is_open:
        return f"{stands}: only one that is closed or recovered can be reopened; write a note"
    if action == "reopen" and incident.closed_by == "cleared":
        return f"{stands}: it came back elsewhere, so there is nothing to take up; write a note"
    return ""


# names and texts


def name(by: str) -> str:
    """Return a person's name as it is journaled."""
    said = by.strip()
    if not said:
        raise ActionError("who says so? Give a name")
    if len(said) > MOST_NAME_LETTERS:
        raise ActionError(f"the name has {len(said)} letters: at most {MOST_NAME_LETTERS} are kept; give a shorter one")
    if said.casefold() in RESERVED:
        raise ActionError(f"{said!r} is a name that lastgood uses itself: give your own")
    _no_steering(said, "the name", keep="")
    return said


def body(text: str, *, needed: bool, what: str) -> str:
    """Return a text as it is journaled: with plain line ends, without space around it."""
    said = "".join("\n" if c in LINE_ENDS else c for c in text.replace("\r\n", "\n")).strip()
    if needed and not said:
        raise ActionError(f"{what} needs words: say what, in a sentence")
    if len(said) > MOST_LETTERS:
        raise ActionError(
            f"the text has {len(said)} letters: at most {MOST_LETTERS} are kept; put the rest into a ticket"
        )
    _no_steering(said, "the text", keep="\n\t")
    return said


def _no_steering(text: str, what: str, keep: str) -> None:
    found = next((c for c in text if steers(c) and c not in keep), None)
    if found is not None and unicodedata.category(found) == "Cs":  # how Python holds a byte that it cannot decode
        raise ActionError(f"{what} is not UTF-8: give it in UTF-8")
    if found is not None:
        rule = "control characters and marks that turn the writing direction are not kept"
        raise ActionError(f"{what} holds the character U+{ord(found):04X}: {rule}; leave it out")


def after(state: RunState) -> str:
    """Return the moment behind all that is known of a run: what a person says about it comes later."""
    newest = max((state.last_event_at, *(event.time for event in state.annotations)))
    return (wording.moment(newest) + timedelta(microseconds=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if newest else ""


# a word for a checkpoint


def accept(state: RunState, by: str, reason: str, *, path: str, run_dir: Path | None) -> Deed:
    """Return a person's word for the checkpoint at ``path``, as journaled or as the file system has it."""
    found = [save for save in state.checkpoints if _is_at(save.path, path, run_dir)]
    if not found:
        raise ActionError(_no_checkpoint(state, path))
    save = max(found, key=lambda c: (c.trust != "missing", c.saved_at))
    _refuse_checkpoint(state, save)
    return _word(state, by, reason, (save.attempt, save.step, save.path))


def accept_parent(state: RunState, by: str, reason: str, *, attempt: int) -> Deed:
    """Return a person's word for what an attempt was resumed from, which may be in no journal."""
    known = {a.number: a for a in state.attempts}
    child = known.get(attempt)
    if child is None:
        raise ActionError(
            f"run {state.run} has no attempt {attempt}: give one of {', '.join(map(str, known)) or 'none'}"
        )
    if from_nothing(child):
        raise ActionError(f"attempt {attempt} began at step 0, from nothing: there is no checkpoint to accept")
    if (parent := child.parent) is None:
        return _word(state, by, reason, (attempt, child.from_step, ""))
    save = next(
        (c for c in state.checkpoints if (c.attempt, c.step, c.path) == (parent.attempt, parent.step, parent.path)),
        None,
    )
    if save is not None:
        _refuse_checkpoint(state, save)
    return _word(state, by, reason, (parent.attempt, parent.step, parent.path))


def _word(state: RunState, by: str, reason: str, key: tuple[int, int, str]) -> Deed:
    said = {"author": name(by), "reason": body(reason, needed=True, what="accepting a checkpoint")}
    where = dict(zip(("attempt", "step", "path"), key, strict=True))
    return Deed("action", key[0], {"action": "accept"} | said | where, after(state), key[1])


def _refuse_checkpoint(state: RunState, save: Checkpoint) -> None:
    """Raise when nobody's word can help a checkpoint, or none is needed."""
    if save.trust == "tainted":
        raise ActionError(
            f"{save.path} is tainted: {save.reason} Nobody can vouch for it; resume from {_instead(state)}"
        )
    if save.trust == "suspect":
        raise ActionError(f"{save.path} is suspect: {save.reason} {_way_out(state, save)}")
    if save.trust == "trusted" and not any(_unverified_child(attempt, save) for attempt in state.attempts):
        raise ActionError(f"{save.path} is trusted: {save.reason} It needs nobody's word")


def _way_out(state: RunState, save: Checkpoint) -> str:
    """Say what to do about a suspect checkpoint: a person settles a suspicion, and nobody what a check proved."""
    by = [i for i in state.incidents if i.id in save.covered_by]
    if by and all(i.status == "suspicious" for i in by):
        return f"Close {wording.joined([i.id for i in by])} if that is settled, or resume from {_instead(state)}"
    return f"Nobody can vouch for it, closed or not; resume from {_instead(state)}"


def close_words(incident: Incident) -> str:
    """Say what follows when a person closes an incident."""
    if incident.status == "suspicious":
        return "Closing ends the suspicion: its saves are no longer suspect for it. New evidence reopens it."
    if not incident.covered:
        return "Closing ends it: it waits for nobody any more. New evidence reopens it."
    return "Closing frees no checkpoint: the saves that it covers stay suspect. New evidence reopens it."


def _unverified_child(attempt: Attempt, save: Checkpoint) -> bool:
    parent = attempt.parent
    same = parent is not None and (parent.attempt, parent.step, parent.path) == (save.attempt, save.step, save.path)
    return same and not (attempt.parent_known and attempt.parent_verified)


def _instead(state: RunState) -> str:
    return state.last_good.path if state.last_good.exists else "step 0"


def _no_checkpoint(state: RunState, path: str) -> str:
    waiting = [*_waiting(state)]
    known = f": give one of {', '.join(waiting[-5:])}" if waiting else "; none of its checkpoints waits for a word"
    return (
        f"run {state.run} has no checkpoint {path}{known}, or name the attempt that was resumed from it (--parent-of)"
    )


def _waiting(state: RunState) -> Iterator[str]:
    yield from (save.path for save in state.checkpoints if save.trust == "unverified")


def _is_at(journaled: str, given: str, run_dir: Path | None) -> bool:
    """Tell whether a journaled path means the given one; a path on disk may be written in several ways."""
    if journaled == given:
        return True
    if run_dir is None or "\0" in journaled:
        return False
    return os.path.realpath(run_dir / journaled) == os.path.realpath(given)
