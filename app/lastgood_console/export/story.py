"""Read the table "What happened, and when we knew" out of an incident document, for every format that shows it.

Both clocks carry their date: a file is read on another day. What a person or another program said is kept apart
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


def rows(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows."""
    for entry in shown_timeline(document):
        if entry["in_story"]:
            yield row(entry)


def row(entry: Mapping[str, Any]) -> Row:
    """Return one entry as a row."""
    words, said = split(entry["kind"], entry["text"])
    return Row(happened(entry), wording.date_text(entry["known_at"]), words, said, entry["who"])


def happened(entry: Mapping[str, Any]) -> str:
    """Return when an entry happened: in steps where those are known, else as date and clock."""
    timed = entry["happened"] == wording.clock_text(entry["at"])
    return wording.date_text(entry["at"]) if timed else str(entry["happened"])


def split(kind: str, text: str) -> tuple[str, str]:
    """Return our words of an entry, and what others said after them."""
    words, colon, said = text.partition(": ") if kind in _QUOTED else (text, "", "")
    return words + colon, said
