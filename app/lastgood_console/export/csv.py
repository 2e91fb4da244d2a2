"""Write an incident document's timeline as CSV: one row per entry, both clocks as columns.

RFC 4180: a header, commas, CRLF, quotes doubled; UTF-8 without a byte order mark. Times are RFC 3339 in UTC, steps are
plain digits, what is not known is an empty cell. Made from the document alone, so the same document gives the same
bytes.

Spreadsheets take a cell that begins with ``=``, ``+``, ``-`` or ``@`` (also after a tab or a line end, also in its
full-width form) for a formula, which can send data away. So such a *text* begins with an apostrophe here; the JSON
export has it as it was written. Not covered: a program that takes the apostrophe off again.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from lastgood_console.characters import LINE_ENDS, tamed
from lastgood_console.export.plain import plain_steps
from lastgood_console.export.story import happened

COLUMNS: Final = (
    "run", "incident", "happened_at", "happened_until", "known_at", "happened", "attempt", "step", "lane", "kind",
    "tone", "event", "by",
)  # fmt: skip
"""``happened_at`` and ``known_at`` are the two clocks; ``happened`` says the first in steps where known."""

_OF_ENTRY: Final = {"happened_at": "at", "happened_until": "until", "event": "text", "by": "who"}
_FORMULA: Final = frozenset("=+-@\u2212\t\r\n")


def render(document: Mapping[str, Any]) -> str:
    """Return the timeline as CSV text with CRLF line ends."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    named = {"run": document["run"], "incident": document["incident"]["id"]}
    for entry in document["timeline"]:
        values = {name: entry[_OF_ENTRY.get(name, name)] for name in COLUMNS[2:]} | {"happened": happened(entry)}
        writer.writerow([cell(value) for value in (named | values).values()])
    return plain_steps(out.getvalue(), document)


def cell(value: Any) -> Any:
    """Return a value as a cell: a number as it is, nothing for None, a text that no spreadsheet computes."""
    if value is None or isinstance(value, int | float):
        return "" if value is None else value
    text = tamed(_line_feeds(str(value)), keep="\n\t")
    return f"'{text}" if _is_formula(text) else text


def _line_feeds(text: str) -> str:
    return "".join("\n" if c in LINE_ENDS else c for c in text.replace("\r\n", "\n"))


def _is_formula(text: str) -> bool:
    """Tell whether a spreadsheet could compute a text: by its first character, or by the first that is seen."""
    seen = text.lstrip().lstrip("\ufeff\u200b\u200e\u200f\u2060").lstrip()
    return bool(text) and any(part and _plain(part[0]) in _FORMULA for part in (text, seen))


def _plain(character: str) -> str:
    """Return the plain form of a full-width, small or raised character."""
    return unicodedata.normalize("NFKC", character)
