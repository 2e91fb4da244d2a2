"""Break a rule in small ways, each of which at least one case must notice.

A mutation changes the text of a query in one place: a label dropped from ``by`` or ``on``, a comparison turned, a
clause of ``and``, ``or`` or ``unless`` taken away, a number or a duration changed, a matcher dropped, our own node
label no longer taken back, ``for`` and ``keep_firing_for`` dropped or doubled.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

TURNED: Final = {">": ("<", ">="), ">=": ("<", ">"), "<": (">", "<="), "<=": (">", "<"), "==": ("!=",)}
_COMPARISON: Final = re.compile(r"(?<= )(>=|<=|==|>|<)(?= )")
_LIST: Final = re.compile(r"\b(by|on) \(([\w, ]+)\)")
_NUMBER: Final = re.compile(r"(?<![\w.\[:$-])(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.\]])")
_DURATION: Final = re.compile(r"(?<=[\[ ])(\d+)([smhd])(?=[\] ):])")
_MATCHERS: Final = re.compile(r"\{([^}]*)\}")
_CLAUSE: Final = re.compile(r" (and|unless|or) ")
_OWN_NODE: Final = ', "node", "$1", "exported_node", "(.+)")'


@dataclass(frozen=True)
class Mutant:
    """A broken rule file, and what was broken: ``name`` is a recording, or ``expr``, ``for``, ``keep_firing_for``."""

    rule: str
    name: str
    how: str
    file: Mapping[str, Any]

    @property
    def what(self) -> str:
        return f"{self.name}: {self.how}"

    def among(self, rule: str, file: Mapping[str, Any]) -> Mutant:
        """Return the same broken recording in the file of another rule that uses it."""
        records = [entry.get("record") for entry in self.file["groups"][0]["rules"]]
        query = self.file["groups"][0]["rules"][records.index(self.name)]["expr"]
        place = [entry.get("record") for entry in file["groups"][0]["rules"]].index(self.name)
        return Mutant(rule, self.name, self.how, _with(file, place, "expr", query))


def mutants(rule: str, file: Mapping[str, Any], skip: Collection[str] = ()) -> Iterator[Mutant]:
    """Yield every broken copy of a file with the recordings of a rule and the rule, but for recordings to ``skip``."""
    for place, entry in enumerate(file["groups"][0]["rules"]):
        name = entry.get("record", "expr")
        if name in skip:
            continue
        for how, query in mutations(entry["expr"]):
            yield Mutant(rule, name, how, _with(file, place, "expr", query))
    last = len(file["groups"][0]["rules"]) - 1
    for field in ("for", "keep_firing_for"):
        text = file["groups"][0]["rules"][last].get(field)
        if text:
            yield Mutant(rule, field, "dropped", _with(file, last, field, "0s"))
            yield Mutant(rule, field, "doubled", _with(file, last, field, f"{2 * int(text[:-1])}s"))


def mutations(query: str) -> Iterator[tuple[str, str]]:
    """Yield what was broken, and the broken query."""
    for match in _LIST.finditer(query):
        labels = match[2].split(", ")
        for label in labels:
            kept = ", ".join(other for other in labels if other != label)
            yield _at(query, match, f"{match[1]} ({kept})")
    for match in _COMPARISON.finditer(query):
        for turned in TURNED[match[1]]:
            yield _at(query, match, turned)
    for match in _NUMBER.finditer(query):
        for number in _other_numbers(float(match[1])):
            yield _at(query, match, f"{number:g}")
    for match in _DURATION.finditer(query):
        yield _at(query, match, f"{4 * int(match[1])}{match[2]}")
    for match in _MATCHERS.finditer(query):
        for matcher in match[1].split(", "):
            kept = ", ".join(other for other in match[1].split(", ") if other != matcher)
            yield _at(query, match, f"{{{kept}}}")
    for match in _CLAUSE.finditer(query):
        end = _end_of_clause(query, match.end(), match[1])
        yield f"{_near(query, match.start())}: without {match[1]}", query[: match.start()] + query[end:]
    for match in re.finditer(re.escape(_OWN_NODE), query):
        yield _at(query, match, ', "node", "$1", "no_such_label", "(.+)")')


def _other_numbers(number: float) -> tuple[float, ...]:
    return (number + 1, number - 1) if number < 3 else (number * 1.5, number * 0.5)


def _at(query: str, match: re.Match[str], text: str) -> tuple[str, str]:
    what = f"{_near(query, match.start())}: {match[0]!r} became {text!r}"
    return what, query[: match.start()] + text + query[match.end() :]


def _near(query: str, place: int) -> str:
    return f"at {place} after {query[max(0, place - 40) : place]!r}"


def _end_of_clause(query: str, start: int, operator: str) -> int:
    """Return where the right side of a set operator ends; ``and`` and ``unless`` bind tighter than ``or``."""
    depth, quoted = 0, False
    for place in range(start, len(query)):
        letter = query[place]
        if letter == '"':
            quoted = not quoted
        if quoted:
            continue
        depth += (letter in "({[") - (letter in ")}]")
        follows = _CLAUSE.match(query, place)
        if depth < 0 or (depth == 0 and letter == ","):
            return place
        if depth == 0 and follows and (operator != "or" or follows[1] == "or"):
            return place
    return len(query)


def _with(file: Mapping[str, Any], place: int, field: str, text: str) -> Mapping[str, Any]:
    broken = copy.deepcopy(dict(file))
    broken["groups"][0]["rules"][place][field] = text
    return broken
