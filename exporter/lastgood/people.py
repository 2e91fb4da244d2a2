"""Read what people said and decided about an incident: its notes and actions. Pure: no torch, no files, no clock.

A person can acknowledge an incident, name its cause, close it and reopen it, and accept a checkpoint. The newest word
counts. A close holds until the incident is reopened, by a person or by evidence; so does an acknowledgement, since
whoever saw the first part has not seen the second. Nobody reopens what was cleared: there is nothing to find again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lastgood.events import Event
from lastgood.records import person as person
from lastgood.state import Word

ACTIONS: Final = ("acknowledge", "cause", "close", "reopen", "accept")
"""What ``action`` events of lastgood are called."""


def decisions(events: Iterable[Event], action: str) -> list[Event]:
    """Return the events of one action, in the order given."""
    return [event for event in events if event.type == "action" and event.data.get("action") == action]


def text_of(event: Event) -> str:
    """Return what a person said with a note or an action."""
    return str(event.data.get("text") or event.data.get("reason") or "")


def closed(events: Iterable[Event], evidence_at: str) -> Event | None:
    """Return the close that holds: the newest, unless there is evidence or a person reopened the incident after it."""
    known = list(events)
    closes = decisions(known, "close")
    if not closes:
        return None
    last = closes[-1]
    undone = max((evidence_at, *(event.time for event in decisions(known, "reopen"))))
    return last if last.time >= undone else None


def reopened_at(events: Iterable[Event], over_at: str | None) -> str | None:
    """Return when a person last reopened an incident that was over; None when nobody did.

    ``over_at``: when an attempt had recovered from it, if one has.
    """
    known = list(events)
    ends = [event.time for event in decisions(known, "close")] + ([over_at] if over_at else [])
    again = [event.time for event in decisions(known, "reopen") if any(end < event.time for end in ends)]
    return again[-1] if again else None


def newest_word(events: Iterable[Event], action: str, since: str = "") -> Word | None:
    """Return the newest word of one action at or after a time; None when there is none."""
    said = [event for event in decisions(events, action) if event.time >= since]
    return Word(person(said[-1]), said[-1].time, text_of(said[-1])) if said else None
