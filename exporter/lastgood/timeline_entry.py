"""Hold one mark or span of an incident's timeline, and how one is made. Pure: no files, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from lastgood import wording
from lastgood.events import CHECKS, Event

LANES: Final = ("attempts", "steps", *CHECKS, "findings", "saves", "alerts", "restarts", "notes")
"""Top to bottom."""

STORY_KINDS: Final = frozenset(
    {"finding", "verdict", "refused", "failed_save", "started", "ended", "alert", "excursion", "restart", "note",
     "action", "recovered", "closed"}
)  # fmt: skip
"""What a reader of "What happened, and when we knew" wants to know; the rest is background."""

SAID_KINDS: Final = frozenset({"note", "action", "closed"})
"""What people said. It may come days after everything else: a picture has it at its edge, and all lists in full."""

Tone = Literal[
    "neutral", "trusted", "unverified", "suspect", "tainted", "missing", "unreadable", "accused", "candidate",
    "cleared", "confirmed", "critical", "warning", "info", "note",
]  # fmt: skip
"""What a mark means; whoever draws it chooses shape and colour by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One mark or span of an incident's timeline.

    ``at`` and ``until`` are when it happened (equal for a mark), ``known_at`` when it was known, all RFC 3339 in UTC.
    ``happened`` says the first in words: steps where steps are known, else a clock time.
    ``ranks``: of a finding, those that it is about.
    """

    lane: str
    kind: str  # attempt step ran passed failed not_run finding verdict saved refused failed_save started ended alert
    #            excursion restart note action recovered closed other
    tone: Tone
    symbol: str
    happened: str
    step: int | None
    attempt: int | None
    at: str
    until: str
    known_at: str
    text: str
    who: str
    ranks: Sequence[int] = ()

    @property
    def in_story(self) -> bool:
        """Tell whether it belongs into the table "What happened, and when we knew"."""
        return self.kind in STORY_KINDS


def entry_of(
    lane: str, kind: str, tone: Tone, symbol: str, attempt: int | None, step: int | None, at: str, text: str,
    *, until: str | None = None, who: str = "lastgood", timed: bool = False,
) -> TimelineEntry:  # fmt: skip
    """Return an entry. ``until``: when it ended, else it is a mark; ``timed``: it happened at a time, not at a step."""
    happened = wording.clock_text(at) if timed or step is None else f"step {wording.step_text(step)}"
    return TimelineEntry(lane=lane, kind=kind, tone=tone, symbol=symbol, happened=happened, step=step, attempt=attempt,
                         at=at, until=max(until or at, at), known_at=at, text=text, who=who)  # fmt: skip


def timed_entry(
    lane: str, kind: str, tone: Tone, symbol: str, event: Event, text: str, who: str, until: str
) -> TimelineEntry:
    """Return the entry of an event that happened at a time."""
    where = (event.attempt, event.step, event.time)
    return entry_of(lane, kind, tone, symbol, *where, text, until=until, who=who, timed=True)


def first_text(data: Mapping[str, Any], *keys: str) -> str:
    """Return the first of these fields that says something, as text."""
    return next((str(data[key]) for key in keys if data.get(key)), "")
