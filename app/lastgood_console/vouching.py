"""Decide for which checkpoints of a run a person's word is wanted, the most useful first. Plain values, no files.

What descends from a checkpoint that nobody can verify stays unverified until somebody vouches for that parent: so the
parents that attempts were resumed from come first, then the unverified saves themselves, newest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lastgood.lineage import from_nothing
from lastgood.people import decisions, person
from lastgood.state import Attempt, Checkpoint, RunState
from lastgood.wording import step_text
from lastgood_console.actions import ActionError, Deed, accept, accept_parent

Key = tuple[object, object, str]
"""What an accepted checkpoint is named by: attempt, step and path."""
MOST_SAVES: Final = 20
"""So many unverified saves are offered; the command line takes every one."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something to vouch for: what ``attempt`` was resumed from, or else the save at ``path``; with neither: nothing.

    ``accepted_by``: who has vouched for it, "" while nobody has.
    """

    words: str
    attempt: int | None = None
    path: str = ""
    accepted_by: str = ""

    def deed(self, state: RunState, by: str, reason: str, run_dir: Path | None) -> Deed:
        """Return the word as an event to be journaled. Raises ``ActionError`` when it would help nothing."""
        now = meant(state, self.words)
        if now.accepted_by:
            raise ActionError(f"{self.words}, is accepted by {now.accepted_by} already: choose another one")
        if (now.attempt, now.path) == (None, ""):
            raise ActionError(f"{self.words}, is not known any more: choose another one, or reload the page")
        if self.attempt is not None:
            return accept_parent(state, by, reason, attempt=self.attempt)
        return accept(state, by, reason, path=self.path, run_dir=run_dir)


def choices(state: RunState) -> tuple[Choice, ...]:
    """Return what waits for a person's word."""
    said = _accepted(state)
    parents = [_parent(attempt, said) for attempt in reversed(state.attempts) if _waits(attempt)]
    saves = [_save(c, said) for c in reversed(state.checkpoints) if c.trust == "unverified"]
    open_saves = [choice for choice in saves if not choice.accepted_by]
    return (*(choice for choice in parents if not choice.accepted_by), *open_saves[:MOST_SAVES])


def meant(state: RunState, chosen: Choice | str) -> Choice:
    """Return what a form means. What is not offered any more is named by its words alone, as a browser sends it."""
    if isinstance(chosen, Choice):
        return chosen
    said = _accepted(state)
    parents = (_parent(attempt, said) for attempt in state.attempts)
    saves = (_save(checkpoint, said) for checkpoint in state.checkpoints)
    return next((c for c in (*parents, *saves) if c.words == chosen), Choice(chosen))


def _accepted(state: RunState) -> Mapping[Key, str]:
    """Return what people have vouched for, and who did."""
    return {
        (e.data.get("attempt"), e.data.get("step"), str(e.data.get("path", ""))): person(e)
        for e in decisions(state.annotations, "accept")
    }


def _waits(attempt: Attempt) -> bool:
    return not (from_nothing(attempt) or (attempt.parent_known and attempt.parent_verified))


def _save(c: Checkpoint, said: Mapping[Key, str]) -> Choice:
    words = f"step {step_text(c.step)} of attempt {c.attempt}, {c.path}"
    return Choice(words, path=c.path, accepted_by=said.get((c.attempt, c.step, c.path), ""))


def _names(attempt: Attempt) -> Iterator[tuple[int, int, str]]:
    """Yield how a word for the parent of an attempt is journaled; an unknown one is named by its child."""
    if (parent := attempt.parent) is not None:
        yield parent.attempt, parent.step, parent.path
    else:
        yield attempt.number, attempt.from_step, ""


def _parent(attempt: Attempt, said: Mapping[Key, str]) -> Choice:
    what = f"what attempt {attempt.number} was resumed from, step {step_text(attempt.from_step)}"
    where = f", {attempt.parent.path}" if attempt.parent is not None else ", which lastgood does not know"
    by = next((said[key] for key in _names(attempt) if key in said), "")
    return Choice(what + where, attempt=attempt.number, accepted_by=by)
