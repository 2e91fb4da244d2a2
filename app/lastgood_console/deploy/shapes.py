"""Say what of an answer is not as Grafana's API answers: each part that is read has to be what it is read as. Pure.

Checked once, where an answer comes in, so that nothing behind it asks again. What is not read may be anything. A part
may be missing unless its name has a ``!`` behind it: Grafana leaves out what is empty, and versions differ. A text, a
list, true and false may be null too, as Go writes an empty list; a number or an object never is.
Source: https://grafana.com/docs/grafana/latest/developers/http_api/ and Grafana's pkg/services/ngalert/api.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

MOST_DEPTH: Final = 100
"""Of lists and objects in each other. A dashboard has about ten; what has thousands breaks whoever walks it."""

Shape = Any
"""A type; a list with the shape of each item; a map with the shape of each value that is read."""

ANYTHING: Final[Shape] = {}
"""An object of which nothing is read."""
DATA_SOURCE: Final[Shape] = {"type!": str}
FOLDER: Final[Shape] = {"uid!": str}
DASHBOARD: Final[Shape] = {"dashboard!": {"version": int}, "meta": {"folderUid": str, "provisioned": bool}}
RULES: Final[Shape] = [{"uid!": str, "title": str, "folderUID": str, "ruleGroup": str, "provenance": str}]
RULE_GROUP: Final[Shape] = {"interval!": int}
CONTACT_POINTS: Final[Shape] = [{"uid": str, "name!": str, "provenance": str, "settings": {}}]
ROUTES: Final[Shape] = [{"receiver": str, "object_matchers": [[str]]}]
POLICY: Final[Shape] = {"receiver!": str, "provenance": str, "routes": ROUTES}
ANNOTATIONS: Final[Shape] = [{"id!": int, "time!": int, "tags": [str]}]

_MAY_BE_NULL: Final = (str, bool, list)
_NAMES: Final[Mapping[type, str]] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "an object",
    type(None): "nothing",
}  # fmt: skip


def oddness(answer: object, shape: Shape) -> str:
    """Return what is wrong with an answer; empty when it has the shape."""
    return _too_deep(answer) or _odd(answer, shape, "it")


def _too_deep(answer: object) -> str:
    level = [answer]
    for _ in range(MOST_DEPTH):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return ""
    return f"it is deeper than {MOST_DEPTH} levels"


def _parts(whole: object) -> list[object]:
    if isinstance(whole, dict):
        return [*whole.values()]
    return whole if isinstance(whole, list) else []


def _odd(value: Any, shape: Shape, place: str) -> str:
    wanted = shape if isinstance(shape, type) else type(shape)
    if type(value) is not wanted:
        return f"{place} is {_NAMES[type(value)]}, not {_NAMES[wanted]}"
    inside: Any = value
    found: Iterable[str] = ()
    if isinstance(shape, list):
        found = (_odd(item, shape[0], f"{place}[{number}]") for number, item in enumerate(inside))
    elif isinstance(shape, dict):
        found = (_odd_part(inside, name, part, place) for name, part in shape.items())
    return next(filter(None, found), "")


def _odd_part(whole: dict[str, Any], name: str, shape: Shape, place: str) -> str:
    key = name.rstrip("!")
    inside = key if place == "it" else f"{place}.{key}"
    if key not in whole:
        return f"{inside} is missing" if name != key else ""
    wanted = shape if isinstance(shape, type) else type(shape)
    if whole[key] is None and name == key and wanted in _MAY_BE_NULL:
        return ""
    return _odd(whole[key], shape, inside)
