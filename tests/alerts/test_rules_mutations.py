"""A rule that is broken in any small way turns a case red.

The cases are tried in stages, and each stage only on what has survived. ``EQUIVALENT`` names the breakages
that change nothing in any world that can be, each with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import promql_parser
import pytest
from tests.alerts.cases_everywhere import CASES as EVERYWHERE
from tests.alerts.cases_everywhere import OWN
from tests.alerts.equivalent import reason_for
from tests.alerts.mutants_together import unnoticed
from tests.alerts.mutations import Mutant, mutants
from tests.alerts.promtool_cases import Case, rule_file

from lastgood_alerts.rules import RULES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FIRST: Final = 4
"""Cases of the first stage: firing, silent, boundary and whatever comes next."""
AT_ONCE: Final = 6
"""Cases of each later stage, the small ones first: most breakages never get to the large ones."""


def stages(rule: str) -> Iterator[list[Case]]:
    own = [case for case in OWN if case.rule == rule]
    rest = [case for case in EVERYWHERE if case.rule == rule]
    for cases in (own[:FIRST], sorted(own[FIRST:], key=_size), sorted(rest, key=_size)):
        for start in range(0, len(cases), AT_ONCE):
            yield cases[start : start + AT_ONCE]


def _size(case: Case) -> int:
    return len(case.world.series) * (1 + len(case.fires))


def survivors(rule: str, folder: Path) -> list[Mutant]:
    """Return the breakages of a rule that no case notices."""
    broken = mutants(rule, rule_file(rule), skip=recorded_before(rule))
    left = [mutant for mutant in broken if is_a_query(mutant)]
    for number, cases in enumerate(stages(rule)):
        if left and cases:
            place = folder / str(number)
            place.mkdir()
            left = unnoticed(left, cases, place)
    return left


def recorded_before(rule: str) -> set[str]:
    """Return the recordings that are broken with an earlier rule: once is enough."""
    names = [other.name for other in RULES]
    files = [rule_file(name) for name in names[: names.index(rule)]]
    return {entry["record"] for file in files for entry in file["groups"][0]["rules"] if "record" in entry}


def is_a_query(mutant: Mutant) -> bool:
    """Tell whether a breakage is still PromQL: what does not parse would be noticed by anything."""
    try:
        for entry in mutant.file["groups"][0]["rules"]:
            promql_parser.parse(entry["expr"])
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_every_breakage_of_the_rule_is_noticed(rule: str, tmp_path: Path) -> None:
    unnoticed = [mutant.what for mutant in survivors(rule, tmp_path) if not reason_for(mutant.what)]
    assert not unnoticed, "\n".join(unnoticed)
