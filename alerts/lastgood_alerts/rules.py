"""The one table of alert rules; every file and page about them is made from it.

Findings are alerted on by the ledger's gauges, never by a counter of a rank, which dies unscraped with the rank. What
the rules cannot see: a run that neither Prometheus scrapes nor a ledger reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.recordings import RECORDINGS
from lastgood_alerts.rule import Group, Rule
from lastgood_alerts.rules_checkpoints import CHECKPOINT_RULES
from lastgood_alerts.rules_devices import DEVICE_RULES
from lastgood_alerts.rules_findings import FINDING_RULES
from lastgood_alerts.rules_itself import OWN_RULES
from lastgood_alerts.rules_runs import RUN_RULES

GROUPS: Final = (
    Group(name="lastgood-recordings", interval_seconds=t.INTERVAL_SECONDS, recordings=RECORDINGS),
    Group(name="lastgood-findings", interval_seconds=t.FINDINGS_INTERVAL_SECONDS, rules=FINDING_RULES),
    Group(name="lastgood-checkpoints", interval_seconds=t.INTERVAL_SECONDS, rules=CHECKPOINT_RULES),
    Group(name="lastgood-runs", interval_seconds=t.INTERVAL_SECONDS, rules=RUN_RULES),
    Group(name="lastgood-devices", interval_seconds=t.INTERVAL_SECONDS, rules=DEVICE_RULES),
    Group(name="lastgood-itself", interval_seconds=t.INTERVAL_SECONDS, rules=OWN_RULES),
)
RULES: Final[tuple[Rule, ...]] = tuple(rule for group in GROUPS for rule in group.rules)
BY_NAME: Final[Mapping[str, Rule]] = {rule.name: rule for rule in RULES}
RECORDED: Final[Mapping[str, str]] = {recording.name: recording.written or recording.query for recording in RECORDINGS}
"""What is written out where nothing is recorded."""

__all__ = ["BY_NAME", "GROUPS", "RECORDED", "RECORDINGS", "RULES"]
