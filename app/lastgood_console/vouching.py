"""Decide for which checkpoints of a run a person's word is wanted, the most useful first. Plain values, no files.

What descends from a checkpoint that nobody can verify stays unverified until somebody vouches for that parent: so the
parents that attempts were resumed from come first, then the unverified saves themselves, newest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lastgood.lineage import from_nothing
from lastgood.people import decisions
from lastgood.state import Attempt, RunState
from lastgood.wording import step_text
from lastgood_console.actions import Deed, accept, accept_parent

MOST_SAVES: Final = 20
"""So many unverified saves are offered; the command line takes every one."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something to vouch for: what ``attempt`` was resumed from, or else the save at ``path``."""

    words: str
    attempt: int | None = None
    path: str = ""

    def deed(self, state: RunState, by: str, reason: str, run_dir: Path | None) -> Deed:
        """Return the word as an event to be journaled. Raises ``ActionError`` when it would help nothing."""
        if self.attempt is not None:
            return accept_parent(state, by, reason, attempt=self.attempt)
        return accept(state, by, reason, path=self.path, run_dir=run_dir)


def choices(state: RunState) -> tuple[Choice, ...]:
    """Return what waits for a person's word."""
    said = {
        (e.data.get("attempt"), e.data.get("step"), str(e.data.get("path", "")))
        for e in decisions(state.annotations, "accept")
    }
    parents = [_parent(attempt) for attempt in reversed(state.attempts) if _waits(attempt, said)]
    waiting = [c for c in reversed(state.checkpoints) if c.trust == "unverified"]
    saves = [
        Choice(f"step {step_text(c.step)} of attempt {c.attempt}, {c.path}", path=c.path)
        for c in waiting if (c.attempt, c.step, c.path) not in said
    ]  # fmt: skip
    return (*parents, *saves[:MOST_SAVES])


def _waits(attempt: Attempt, said: set[tuple[object, object, str]]) -> bool:
    if from_nothing(attempt) or (attempt.parent_known and attempt.parent_verified):
        return False
    return not any(key in said for key in _names(attempt))


def _names(attempt: Attempt) -> Iterator[tuple[int, int, str]]:
    """Yield how a word for the parent of an attempt is journaled; an unknown one is named by its child."""
    if (parent := attempt.parent) is not None:
        yield parent.attempt, parent.step, parent.path
    else:
        yield attempt.number, attempt.from_step, ""


def _parent(attempt: Attempt) -> Choice:
    what = f"what attempt {attempt.number} was resumed from, step {step_text(attempt.from_step)}"
    where = f", {attempt.parent.path}" if attempt.parent is not None else ", which lastgood does not know"
    return Choice(what + where, attempt=attempt.number)
