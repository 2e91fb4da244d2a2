"""Hold events to the JSON Schemas that ship in ``lastgood/schemas``.

The journal is read by the training job's own ranks and by a lean ``lastgood serve``, where no validator is installed.
So the schemas keep to the few keywords below, and each is compiled once into nested functions. The tests hold the
same events to the same files with the ``jsonschema`` package, so the two readings cannot drift apart.

Two things are read more strictly than JSON Schema does: 1.0 is not an integer, and a pattern matches the whole text.
Not covered: ``$ref`` to other files, ``format``, ``oneOf``, conditionals. A schema that uses them fails to compile.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

Test = Callable[[Any], str | None]
"""Return None when the value passes, else what is wrong, beginning with the place: ``.ranks[2]: ...``."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_NUMBERS = frozenset({int, float})
_SILENT = {"$schema", "$id", "$defs", "title", "description"}


def problem(name: str, value: Any) -> str | None:
    """Return what is wrong with ``value`` under the schema ``name``, or None.

    ``name`` is an event type without its prefix (then ``value`` is the data), or "event": the whole CloudEvents object.
    """
    found = _compiled(name)(value)
    return found and f"{'event' if name == 'event' else 'data'}{found}"


def load(name: str) -> dict[str, Any]:
    """Return the JSON Schema ``name`` as it ships."""
    text = (resources.files("lastgood") / "schemas" / f"{name}.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _compiled(name: str) -> Test:
    schema = load(name)
    return compile_schema(schema, schema.get("$defs", {}))


def compile_schema(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    """Return the test for ``schema``. Raises ``ValueError`` for a keyword that is not read here."""
    if "$ref" in schema:
        return compile_schema(defs[schema["$ref"].removeprefix("#/$defs/")], defs)
    tests = [_MAKERS[word](schema[word], schema, defs) for word in _known(schema)]
    return tests[0] if len(tests) == 1 else _quick(schema, _every(tests))


def _quick(schema: Mapping[str, Any], test: Test) -> Test:
    """Let what passes pass in one look, for the two kinds of value that events are full of; ``test`` says the rest."""
    words = schema.keys() - _SILENT
    if words == {"type", "pattern"} and schema["type"] == "string":
        match = _compile_pattern(schema["pattern"])
        return lambda value: None if type(value) is str and match(value) else test(value)
    if {"type", "minimum"} <= words <= {"type", "minimum", "maximum"} and schema["type"] == "integer":
        low, high = schema["minimum"], schema.get("maximum", math.inf)
        return lambda value: None if type(value) is int and low <= value <= high else test(value)
    return test


def _every(tests: list[Test]) -> Test:
    def test_all(value: Any) -> str | None:
        for test in tests:
            if found := test(value):
                return found
        return None

    return test_all


def _known(schema: Mapping[str, Any]) -> list[str]:
    words = [word for word in schema if word not in _SILENT]
    if unknown := [word for word in words if word not in _MAKERS]:
        raise ValueError(f"keyword {unknown[0]!r} is not read here; use one of {', '.join(_MAKERS)}")
    return sorted(words, key=list(_MAKERS).index)  # the type first: the others take it for granted


def _type(names: str | list[str], schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    wanted = [names] if isinstance(names, str) else names
    classes = tuple({kind for name in wanted for kind in _TYPES[name]})
    bools = bool in classes

    plain = frozenset(classes)  # a journal holds nothing but these themselves, and looking that up is quicker

    def test(value: Any) -> str | None:
        if type(value) in plain or (isinstance(value, classes) and (bools or not isinstance(value, bool))):
            return None
        return f": {_shown(value)} is not of type {' or '.join(wanted)}"

    return test


def _enum(values: list[Any], schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return lambda value: None if value in values else f": {_shown(value)} is not one of {', '.join(map(str, values))}"


def _minimum(bound: float, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return lambda value: f": {value} is below {bound}" if type(value) in _NUMBERS and value < bound else None


def _maximum(bound: float, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return lambda value: f": {value} is above {bound}" if type(value) in _NUMBERS and value > bound else None


def _max_length(bound: int, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return lambda value: f": longer than {bound}" if isinstance(value, str) and len(value) > bound else None


def _pattern(pattern: str, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    match = _compile_pattern(pattern)
    text = f"does not match {pattern}"
    return lambda value: f": {_shown(value)} {text}" if isinstance(value, str) and not match(value) else None


def _compile_pattern(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern.removeprefix("^").removesuffix("$"), re.ASCII).fullmatch


def _required(names: list[str], schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    wanted = frozenset(names)

    def test(value: Any) -> str | None:
        if not isinstance(value, dict):
            return None
        if wanted <= value.keys():
            return None
        return next(f".{name}: missing" for name in names if name not in value)

    return test


def _properties(properties: Mapping[str, Any], schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    tests = {name: compile_schema(inner, defs) for name, inner in properties.items()}
    rest = schema.get("additionalProperties")
    other = _not_known if rest is False else compile_schema(rest, defs) if rest else None
    find = tests.get

    def test(value: Any) -> str | None:
        if not isinstance(value, dict):
            return None
        for name, inner in value.items():
            one = find(name, other)
            if one and (found := one(inner)):
                return f".{name}{found}"
        return None

    return test


def _not_known(value: Any) -> str:
    return ": not known here"


def _additional(rest: Mapping[str, Any] | bool, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return (lambda value: None) if "properties" in schema else _properties({}, schema, defs)


def _const(wanted: Any, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return lambda value: None if value == wanted else f": {_shown(value)} is not {_shown(wanted)}"


def _min_items(bound: int, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return lambda value: f": fewer than {bound} items" if isinstance(value, list) and len(value) < bound else None


def _max_items(bound: int, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    return lambda value: f": more than {bound} items" if isinstance(value, list) and len(value) > bound else None


def _items(inner: Mapping[str, Any], schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    test_one = compile_schema(inner, defs)

    def test(value: Any) -> str | None:
        for i, item in enumerate(value if isinstance(value, list) else ()):
            if found := test_one(item):
                return f"[{i}]{found}"
        return None

    return test


def _any_of(choices: list[Mapping[str, Any]], schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Test:
    tests = [compile_schema(choice, defs) for choice in choices]

    def test(value: Any) -> str | None:
        problems = [one(value) for one in tests]
        return None if None in problems else problems[-1]

    return test


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_MAKERS: dict[str, Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Test]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _minimum,
    "maximum": _maximum,
    "maxLength": _max_length,
    "pattern": _pattern,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "minItems": _min_items,
    "maxItems": _max_items,
    "items": _items,
    "anyOf": _any_of,
}
