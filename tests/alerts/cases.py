"""The table of all cases."""

from __future__ import annotations

from typing import Final

from tests.alerts import cases_checkpoints, cases_devices, cases_findings, cases_itself, cases_runs
from tests.alerts.promtool_cases import Case

CASES: Final[list[Case]] = [
    *cases_findings.CASES,
    *cases_checkpoints.CASES,
    *cases_runs.CASES,
    *cases_devices.CASES,
    *cases_itself.CASES,
]
