"""Read the table "What happened, and when we knew" out of an incident document, for every format that shows it.

Both clocks get their date where it is not that of the incident. What a person or another program said is kept apart
from our words before it: it has a direction of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lastgood import wording
from lastgood_console.export.document import shown_timeline

_QUOTED: Final = frozenset({"alert", "excursion", "note", "action", "closed"})
"""Kinds of entries whose text is our words, a colon, and what others said."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``words`` are ours, ``said`` is what others said after them."""

    happened: str
    known: str
    words: str
    said: str
    who: str


def rows(document: Mapping[str, Any], *, dated: bool = False) -> Iterator[Row]:
    """Yield the rows; with ``dated`` every clock carries its date."""
    day = "" if dated else document["incident"]["opened_at"][:10]
    for entry in shown_timeline(document):
        if entry["in_story"]:
            yield row(entry, day)


def row(entry: Mapping[str, Any], day: str = "") -> Row:
    """Return one entry as a row; clocks of ``day`` go without their date."""
    timed = entry["happened"] == wording.clock_text(entry["at"])
    happened = _clock(entry["at"], day) if timed else entry["happened"]
    words, said = split(entry["kind"], entry["text"])
    return Row(happened, _clock(entry["known_at"], day), words, said, entry["who"])


def split(kind: str, text: str) -> tuple[str, str]:
    """Return our words of an entry, and what others said after them."""
    words, colon, said = text.partition(": ") if kind in _QUOTED else (text, "", "")
    return words + colon, said


def _clock(time: str, day: str) -> str:
    return wording.clock_text(time) if day and time.startswith(day) else wording.date_text(time)
