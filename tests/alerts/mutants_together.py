"""Let many breakages of a rule watch the same world, so that promtool builds each world once.

Every breakage is a group of rules with names of its own: the alert ``m7``, and a copy ``<name>:m7`` of each recording
that it breaks or that asks a broken one. The recordings that are whole are evaluated once, for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.alerts.mutations import Mutant
from tests.alerts.promtool_cases import Case, by_interval, promtool, rule_file, test_group, yaml_text

AT_ONCE: Final = 60
"""Breakages that one promtool judges, so that none runs for minutes."""
_FAILED: Final = re.compile(r"^ +alertname: m(\d+), time: ", re.MULTILINE)
_NO_ANSWER: Final = re.compile(r"^ +rule: (?:[\w:]+:)?m(\d+), time: .*, err: ", re.MULTILINE)


def unnoticed(mutants: Sequence[Mutant], cases: Sequence[Case], folder: Path) -> list[Mutant]:
    """Return the breakages of a rule that none of its cases notices. ``folder`` takes promtool's files."""
    kept: list[Mutant] = []
    for start in range(0, len(mutants), AT_ONCE):
        left = dict(enumerate(mutants[start : start + AT_ONCE]))
        while left:
            failed, without_answer = _judged(left, cases, folder)
            left = {number: mutant for number, mutant in left.items() if number not in failed | without_answer}
            if not without_answer:  # promtool ends a case at the first query without an answer
                break
        kept += left.values()
    return kept


def _judged(mutants: Mapping[int, Mutant], cases: Sequence[Case], folder: Path) -> tuple[set[int], set[int]]:
    """Return the numbers of those that failed a case, and of those that made promtool end it early."""
    rules = rules_together(mutants)
    order = [group["name"] for group in rules["groups"]]  # else promtool takes any order
    (folder / "rules.yml").write_text(yaml_text(rules), encoding="utf-8")
    paths = []
    for interval, together in by_interval(cases).items():
        paths.append(folder / f"test-{interval}.yml")
        tests = [_group(case, mutants) for case in together]
        head = {"rule_files": ["rules.yml"], "evaluation_interval": f"{interval}s", "group_eval_order": order}
        paths[-1].write_text(yaml_text({**head, "tests": tests}), encoding="utf-8")
    said = promtool(paths)
    texts = [said[str(path)] for path in paths]
    for text in texts:
        assert text.strip() == "SUCCESS" or _FAILED.search(text) or _NO_ANSWER.search(text), text
    return _numbers(_FAILED, texts), _numbers(_NO_ANSWER, texts)


def _numbers(pattern: re.Pattern[str], texts: Sequence[str]) -> set[int]:
    return {int(number) for text in texts for number in pattern.findall(text)}


def rules_together(mutants: Mapping[int, Mutant]) -> dict[str, Any]:
    """Return one file with the whole recordings, and a group for each numbered breakage of the same rule."""
    whole = rule_file(next(iter(mutants.values())).rule)["groups"][0]["rules"]
    groups = [{"name": "whole", "rules": whole[:-1]}] if whole[:-1] else []
    for number, mutant in mutants.items():
        broken = mutant.file["groups"][0]["rules"]
        groups.append({"name": f"m{number}", "rules": [*_renamed(whole, broken, f"m{number}")]})
    return {"groups": groups}


def _renamed(
    whole: Sequence[dict[str, Any]], broken: Sequence[dict[str, Any]], suffix: str
) -> Iterator[dict[str, Any]]:
    """Yield the alert, and before it the recordings that differ from the whole ones, under other names."""
    names: dict[str, str] = {}
    for before, entry in zip(whole, broken, strict=True):
        renamed = _with_names(entry, names)
        if "alert" in entry:
            yield {**renamed, "alert": suffix}
        elif renamed != before:
            names[entry["record"]] = f"{entry['record']}:{suffix}"
            yield {**renamed, "record": names[entry["record"]]}


def _with_names(entry: Any, names: Mapping[str, str]) -> Any:
    if isinstance(entry, dict):
        return {key: _with_names(value, names) for key, value in entry.items()}
    for name, other in names.items():
        entry = re.sub(rf"{re.escape(name)}(?![\w:])", other, entry)
    return entry


def _group(case: Case, mutants: Mapping[int, Mutant]) -> dict[str, Any]:
    group = test_group(case)
    (test,) = group["alert_rule_test"]
    return {**group, "alert_rule_test": [{**test, "alertname": f"m{number}"} for number in mutants]}
