"""Every rule in every case, judged by promtool: silence and firing, full labels and the exact text."""

from __future__ import annotations

import pytest
from tests.alerts.cases import CASES
from tests.alerts.promtool_cases import Case, judge, rule_file

from lastgood_alerts.rules import RULES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what failed over all cases, from one promtool process."""
    jobs = [(rule_file(rule.name), [case for case in CASES if case.rule == rule.name]) for rule in RULES]
    found = judge(tmp_path_factory.mktemp("promtool"), jobs)
    return {name: said for one in found for name, said in one.items()}


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_the_rule_does_what_the_case_says(case: Case, failures: dict[str, str]) -> None:
    assert case.id not in failures, failures[case.id]
