"""The table of all cases."""

from __future__ import annotations

from typing import Final

from tests.alerts import cases_everywhere
from tests.alerts.promtool_cases import Case

CASES: Final[list[Case]] = [
    *cases_everywhere.OWN,
    *cases_everywhere.CASES,
]
