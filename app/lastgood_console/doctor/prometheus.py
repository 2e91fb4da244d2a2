"""Judge what a Prometheus answered: is lastgood scraped, are its rules loaded, does its clock agree. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lastgood.serve import DEFAULT_PORT
from lastgood_console.doctor.answer import Answer, short
from lastgood_console.doctor.item import Item, fail, ok, warn
from lastgood_console.doctor.run_directory import skew_item

RULES: Final = "lastgood rules --output lastgood.rules.yml"


def prometheus_items(url: str, clock: Answer, ranks: Answer, runs: Answer, rules: Answer) -> Iterator[Item]:
    """Judge a Prometheus: is lastgood scraped, are its rules loaded, does its clock agree."""
    now = _number(clock)
    if now is None:
        yield fail("prometheus", f"{url} answers, but not as Prometheus does", "give the base address of its HTTP API")
        return
    yield ok("prometheus", url)
    yield skew_item("clock of prometheus", max(0.0, now - clock.ended) + min(0.0, now - clock.began))
    yield _series_item("series of ranks", ranks, "scrape the targets of the run directory's targets.json, or "
                       "the console's /api/sd")  # fmt: skip
    yield _series_item("series of runs", runs, f"scrape the console, or lastgood serve (port {DEFAULT_PORT})")
    yield _rules_item(rules)


def _number(answer: Answer) -> float | None:
    """Return the one finite number of a query's answer: a scalar, or a vector with one element; 0 of an empty one."""
    match answer.data():
        case {"data": {"resultType": "scalar", "result": [_, str(text)]}}:
            return _finite(text)
        case {"data": {"resultType": "vector", "result": [{"value": [_, str(text)]}]}}:
            return _finite(text)
        case {"data": {"resultType": "vector", "result": []}}:
            return 0.0
    return None


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _series_item(name: str, answer: Answer, out: str) -> Item:
    count = _number(answer)
    if count is None:
        return _untold(name, answer)
    return ok(name, f"{count:.0f}") if count else warn(name, "none now", f"if something trains: {out}")


def _untold(name: str, answer: Answer) -> Item:
    """Say that an answer does not tell what was asked: nothing is known, which is not the same as nothing there."""
    status = "" if answer.status == 200 else f"status {answer.status}"
    return warn(name, f"cannot be told: {answer.problem or status or 'the answer is none of Prometheus'}",
                "look at the output of Prometheus")  # fmt: skip


def _rules_item(answer: Answer) -> Item:
    groups = _groups(answer)
    if groups is None:
        return _untold("alert rules", answer)
    ours = [rule for name, rules in groups if _is_of_ours(name, rules) for rule in rules]
    broken = [short(str(rule.get("name"))) for rule in ours if rule.get("health") == "err"]
    if broken:
        return fail("alert rules", f"cannot be evaluated: {', '.join(broken)}", "see the page /rules there")
    if ours:
        return ok("alert rules", f"{len(ours)} of lastgood are loaded")
    return warn("alert rules", "none of lastgood is loaded", f"{RULES}, and name it in rule_files")


def _groups(answer: Answer) -> list[tuple[str, list[Mapping[str, Any]]]] | None:
    """Return the name and the rules of each group; None when it is not what Prometheus answers."""
    match answer.data():
        case {"data": {"groups": [*groups]}} if all(isinstance(group, dict) for group in groups):
            found = [(str(group.get("name")), group.get("rules") or []) for group in groups]
            if all(isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules) for _, rules in found):
                return found
    return None


def _is_of_ours(name: str, rules: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a group is lastgood's: by its name, or by what a rule in it asks for."""
    named = name.startswith("lastgood")
    return bool(rules) and (named or any("lastgood_" in str(rule.get("query")) for rule in rules))
