"""Runbooks are found by the name of their rule, and by nothing else."""

from __future__ import annotations

import pytest

from lastgood_alerts.rules import RULES
from lastgood_alerts.runbooks import names, runbook


def test_every_rule_has_a_runbook_under_its_name() -> None:
    assert set(names()) == {rule.name for rule in RULES}
    assert all((runbook(name) or "").startswith(f"# {name}\n") for name in names())


@pytest.mark.parametrize(
    "name", ["", "..", "../lastgood_alerts/rules", "Watchdog.md", "watchdog", "Watchdog\0", "/etc/passwd"]
)
def test_what_is_no_name_of_a_runbook_finds_nothing(name: str) -> None:
    assert runbook(name) is None
