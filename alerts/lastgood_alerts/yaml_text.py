"""Write plain data as YAML, so that the lean install needs no YAML library.

Maps, lists, strings, numbers, booleans and None: nothing else. A string that could be read as something else is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

Data = Mapping[str, "Data"] | Sequence["Data"] | str | int | float | bool | None

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_EXPONENT: Final = re.compile(r"^(-?\d+)e")
"""The beginning of a number such as 5e-324, which YAML 1.1 takes for a text without a dot."""
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def yaml_text(data: Data, comment: str = "") -> str:
    """Return ``data`` as block YAML, with ``comment`` (one or more lines) above it."""
    head = [f"# {line}".rstrip() for line in comment.splitlines()]
    return "\n".join([*head, *_block(data)]) + "\n"


def _block(data: Data) -> Iterator[str]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _entry(f"{_scalar(key)}:", value)
    elif isinstance(data, Sequence) and not isinstance(data, str) and data:
        for value in data:
            yield from _item(value)
    else:
        yield _scalar(data)


def _entry(key: str, value: Data) -> Iterator[str]:
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield f"{key} {_scalar(value)}"
        return
    indent = "  " if isinstance(value, Mapping) else ""
    yield key
    yield from (indent + line for line in _block(value))


def _item(value: Data) -> Iterator[str]:
    lines = list(_block(value))
    yield f"- {lines[0]}"
    yield from (f"  {line}" for line in lines[1:])


def _scalar(value: Data) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    return _EXPONENT.sub(r"\1.0e", json.dumps(value))


def _string(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() and letter not in '"\\' else f"\\U{ord(letter):08X}"
