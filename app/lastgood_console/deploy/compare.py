"""Say how two JSON values differ, in lines for people.

Grafana gives back more than it was sent: ids, versions, times, defaults. So ``before`` (Grafana's) may have keys that
``after`` (ours) does not have, unless the place is one of ``exact``: a map whose every key was put there by somebody,
such as labels. Durations are compared as durations, since ``60s`` comes back as ``1m``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

EXACT: Final = frozenset({"labels", "annotations"})
DURATIONS: Final = frozenset({"for", "keep_firing_for", "group_wait", "group_interval", "repeat_interval"})
SECRETS: Final = frozenset({"authorization_credentials", "password", "secret", "token"})
"""Keys whose values are never shown."""
REDACTED: Final = "[REDACTED]"
"""What Grafana shows in place of a secret."""
MOST_TEXT: Final = 100

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield one line for every place where ``after`` is not what ``before`` is."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _maps(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, path)
    elif not _same(before, after, path.rpartition(".")[2]):
        yield f"{path or 'all of it'}: {_shown(path, before)} -> {_shown(path, after)}"


def _maps(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[str]:
    for key, value in after.items():
        place = f"{path}.{key}" if path else key
        if key in before:
            yield from differences(before[key], value, place)
        elif not _empty(value):
            yield f"{place}: nothing -> {_shown(place, value)}"
    if path.rpartition(".")[2] in EXACT:
        yield from (f"{path}.{key}: {short(before[key])} -> nothing" for key in before if key not in after)


def _lists(before: list[Any], after: list[Any], path: str) -> Iterator[str]:
    for number, (old, new) in enumerate(zip(before, after, strict=False)):
        yield from differences(old, new, f"{path}[{_name(new, number)}]")
    for number, value in enumerate(before[len(after) :], len(after)):
        yield f"{path}[{_name(value, number)}]: {short(value)} -> nothing"
    for number, value in enumerate(after[len(before) :], len(before)):
        yield f"{path}[{_name(value, number)}]: nothing -> {short(value)}"


def _name(item: Any, number: int) -> str:
    """Name an item of a list by what people know it by."""
    found = [item[key] for key in ("title", "refId", "name") if isinstance(item, dict) and item.get(key)]
    return str(found[0]) if found else str(number)


def _same(before: Any, after: Any, key: str) -> bool:
    if before == REDACTED:  # what it is cannot be known; see the plan for when it is sent again
        return True
    if key in DURATIONS and (a := seconds(before)) is not None and (b := seconds(after)) is not None:
        return a == b
    return bool(before == after) or (_empty(before) and _empty(after))


def _empty(value: Any) -> bool:
    """Tell whether a value says as little as no value."""
    return value is None or value is False or value in ("", 0, [], {})


def seconds(text: Any) -> float | None:
    """Return a Prometheus duration (``1h30m``) in seconds; None when it is none."""
    if text in ("", "0", 0, None):
        return 0.0
    if not isinstance(text, str) or not re.fullmatch(r"(\d+(ms|[smhdwy]))+", text):
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))


def _shown(path: str, value: Any) -> str:
    return "a secret" if path.rpartition(".")[2] in SECRETS and value else short(value)


def short(value: Any) -> str:
    """Return a value in one short piece of text."""
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def first_lines(lines: Sequence[str], most: int = 20) -> tuple[str, ...]:
    """Return the first lines, and how many more there are."""
    more = (f"and {len(lines) - most} more",) if len(lines) > most else ()
    return (*lines[:most], *more)
