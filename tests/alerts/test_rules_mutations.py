"""A rule that is broken in any small way turns a case red.

The cases are tried a few at a time, and only on what has survived. ``EQUIVALENT`` names the breakages
that change nothing in any world that can be, each with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import promql_parser
import pytest
from tests.alerts.cases_everywhere import CASES as EVERYWHERE
from tests.alerts.cases_everywhere import OWN
from tests.alerts.equivalent import reason_for
from tests.alerts.mutants_together import unnoticed
from tests.alerts.mutations import Mutant, mutants
from tests.alerts.promtool_cases import Case, recorded, rule_file

from lastgood_alerts.rules import RULES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FIRST: Final = 4
"""Cases of the first stage: firing, silent, boundary and whatever comes next."""
TRIALS: Final = 200
"""Breakages times cases of a later stage: the more have been noticed, the more cases at once."""


def cases_of(rule: str) -> list[Case]:
    """Return the cases of a rule in the order in which they are tried: the small ones first, but for the very first."""
    own = [case for case in OWN if case.rule == rule]
    rest = [case for case in EVERYWHERE if case.rule == rule]
    return [*own[:FIRST], *sorted(own[FIRST:], key=_size), *sorted(rest, key=_size)]


def _size(case: Case) -> int:
    return len(case.world.series) * (1 + len(case.fires))


@cache
def recordings(rule: str) -> set[str]:
    return {entry["record"] for entry in rule_file(rule)["groups"][0]["rules"] if "record" in entry}


def recorded_for_others(rule: str) -> set[str]:
    """Return the recordings that are broken with another rule: once is enough."""
    return {name for name in recordings(rule) if _owner(name) != rule}


@cache
def _owner(recording: str) -> str:
    """Return the first rule that asks a recording, or else says something of it, or else needs it in any way."""
    alerts = {rule.name: rule_file(rule.name)["groups"][0]["rules"][-1] for rule in RULES}
    asking = [name for name, alert in alerts.items() if recording in recorded(alert["expr"])]
    saying = [name for name, alert in alerts.items() if re.search(rf"{recording}(?![\w:])", str(alert))]
    return [*asking, *saying, *(name for name in alerts if recording in recordings(name))][0]


def survivors(broken: Sequence[Mutant], folder: Path) -> list[Mutant]:
    """Return the breakages that no case notices: no case of the rule, and of a recording no rule that uses it."""
    left = _after_cases_of(broken[0].rule, broken, folder)
    for other in RULES:
        if other.name != broken[0].rule:
            shared = [mutant for mutant in left if mutant.name in recordings(other.name)]
            there = [mutant.among(other.name, rule_file(other.name)) for mutant in shared]
            kept = {mutant.what for mutant in _after_cases_of(other.name, there, folder)}
            left = [mutant for mutant in left if mutant not in shared or mutant.what in kept]
    return left


def _after_cases_of(rule: str, left: Sequence[Mutant], folder: Path) -> list[Mutant]:
    cases = cases_of(rule)
    while left and cases:
        many = max(FIRST, TRIALS // len(left))
        left = unnoticed(left, cases[:many], folder)
        cases = cases[many:]
    return [*left]


def is_a_query(mutant: Mutant) -> bool:
    """Tell whether a breakage is still PromQL: what does not parse would be noticed by anything."""
    try:
        for entry in mutant.file["groups"][0]["rules"]:
            promql_parser.parse(entry["expr"])
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_every_breakage_of_the_rule_is_noticed_but_for_those_that_change_nothing(rule: str, tmp_path: Path) -> None:
    file = rule_file(rule)
    whole = Mutant(rule, "expr", "whole", file)
    broken = [mutant for mutant in mutants(rule, file, recorded_for_others(rule)) if is_a_query(mutant)]
    left = {mutant.what for mutant in survivors([*broken, whole], tmp_path)}
    assert whole.what in left, "the whole rule fails a case of its own"
    unnoticed = sorted(what for what in left - {whole.what} if not reason_for(what))
    assert not unnoticed, "\n".join(unnoticed)
