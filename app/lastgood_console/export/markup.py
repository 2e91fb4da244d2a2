"""Put foreign words into Markdown so that they stay words: no link, no HTML, no heading, no broken table.

Must hold in CommonMark, GitHub, GitLab and the older Markdown programs. What a renderer would make a link of by itself
(an address, ``@name``, ``#12``) becomes code, where it is left alone; ``<``, ``>`` and ``&`` become entities, since
not every renderer knows a backslash before them; the other marks get a backslash. Right-to-left words are isolated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from lastgood_console.characters import isolated, one_line

_MARKS: Final = re.compile(r"([\\`*\[~$^{}]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LINKED: Final = re.compile(r"://|www\.|@|mailto:|xmpp:|[#!~%&^$][0-9A-Za-z\"]", re.IGNORECASE)
_BLOCK: Final = re.compile(r"([#+=:-]|[0-9]{1,9}(?=[.)]))")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}


def words(text: Any) -> str:
    """Return words for a paragraph, a list item or a cell: one line, with their own direction."""
    plain = one_line(str(text))
    parts = [_span(part) if _LINKED.search(part) else _escaped(part) for part in plain.split(" ")]
    return isolated(plain, _at_start(" ".join(parts)))


def _escaped(part: str) -> str:
    marked = _MARKS.sub(r"\\\1", part)
    return "".join(_ENTITIES.get(c, c) for c in marked)


def _at_start(text: str) -> str:
    """Keep the beginning from being a heading, a list, a rule or a definition."""
    found = _BLOCK.match(text)
    if found is None:
        return text
    return f"\\{text}" if not found[0].isdigit() else f"{found[0]}\\{text[found.end() :]}"


def code(text: Any) -> str:
    """Return a path, command or fingerprint as code, as it is to be copied, with its own direction."""
    plain = one_line(str(text))
    return isolated(plain, _span(plain)) if plain else ""


def _span(plain: str) -> str:
    """Return code. A ``|`` stands between two pieces of it: renderers differ in what else does not end a cell."""
    return _ENTITIES["|"].join(_piece(part) if part else "" for part in plain.split("|"))


def _piece(plain: str) -> str:
    """Return one span of code, with a fence that no run of backticks inside can close."""
    fence = "`" * (max(map(len, re.findall("`+", plain)), default=0) + 1)
    padding = " " if plain.strip() and (plain[0] in "` " or plain[-1] in "` ") else ""
    return f"{fence}{padding}{plain}{padding}{fence}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. The cells are Markdown already."""
    lines = [_row(heads), _row(["---"] * len(heads))]
    return lines + [_row(row) for row in rows]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell or '–' for cell in cells)} |"
