"""What the files and the API of Grafana have in common: what a rule says.

Query A is the condition and gives one sample per instance; expression C is the threshold on it, which Grafana calls
the rule's condition; B, D, E ... are the side values of the texts. Recordings are written out, so Grafana needs no
recording rule in the data source; with ``recorded`` they are read by name, which a large fleet needs: Grafana asks for
all side values at every evaluation. A rule without data is fine (``noDataState: OK``): RunVanished and LedgerStale are
about silence, and have a value then.
"""

from __future__ import annotations

import re
from typing import Final

from lastgood_alerts.prometheus import COMPONENT
from lastgood_alerts.queries import written_out
from lastgood_alerts.rule import Rule
from lastgood_alerts.rules import RECORDED
from lastgood_alerts.text import GrafanaDialect, annotations_of, side_query, side_ref
from lastgood_alerts.yaml_text import Data

DATASOURCE_UID: Final = "lastgood-prometheus"
FOLDER: Final = "lastgood"
"""Title and uid of the folder that holds the rules."""
CONTACT_POINT: Final = "lastgood-console"
EVALUATORS: Final = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
LOOK_BACK_SECONDS: Final = 600  # of an instant query only the end counts, but Grafana wants a range


def rule_fields(
    rule: Rule, console_url: str, datasource_uid: str, recorded: bool, keep_firing_key: str
) -> dict[str, Data]:
    """Return a rule as the files and the API have it; they call how long it keeps firing differently."""
    keep: dict[str, Data] = {keep_firing_key: f"{rule.keep_firing_seconds}s"} if rule.keep_firing_seconds else {}
    return {
        "uid": rule_uid(rule),
        "title": rule.name,
        "condition": "C",
        "data": query_data(rule, datasource_uid, recorded),
        "noDataState": "OK",
        "execErrState": "Error",
        "for": f"{rule.for_seconds}s",
        **keep,
        "isPaused": False,
        "annotations": annotations_of(rule, GrafanaDialect(), console_url),
        "labels": {"severity": rule.severity, "component": COMPONENT},
    }


def rule_uid(rule: Rule) -> str:
    """Return the uid of a rule: stable, at most 40 characters."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", rule.name).lower()
    return f"lastgood-{words}"


def query_data(rule: Rule, datasource_uid: str, recorded: bool = False) -> list[Data]:
    """Return the queries and the threshold of a rule. ``recorded``: the data source evaluates the recordings."""
    unknown = {} if recorded else RECORDED
    sides = [_query(side_ref(rule, side), side_query(rule, side, unknown), datasource_uid) for side in rule.sides]
    condition = _query("A", _without_name(written_out(rule.condition, unknown), rule), datasource_uid)
    return [condition, _threshold(rule), *sides]


def _without_name(condition: str, rule: Rule) -> str:
    """Return a condition without the name of a recording, which Prometheus drops from an alert's labels itself."""
    return f"max by ({', '.join(rule.labels)}) ({condition})" if "lastgood:" in condition else condition


def _query(ref: str, expr: str, datasource_uid: str) -> Data:
    return {
        "refId": ref,
        "datasourceUid": datasource_uid,
        "relativeTimeRange": {"from": LOOK_BACK_SECONDS, "to": 0},
        "model": {
            "refId": ref,
            "datasource": {"type": "prometheus", "uid": datasource_uid},
            "expr": expr,
            "instant": True,
            "range": False,
            "intervalMs": 1000,
            "maxDataPoints": 43200,
        },
    }


def _threshold(rule: Rule) -> Data:
    evaluator: Data = {"type": EVALUATORS[rule.operator], "params": [rule.threshold]}
    return {
        "refId": "C",
        "datasourceUid": "__expr__",
        "relativeTimeRange": {"from": 0, "to": 0},
        "model": {
            "refId": "C",
            "type": "threshold",
            "expression": "A",
            "datasource": {"type": "__expr__", "uid": "__expr__"},
            "conditions": [{"type": "query", "evaluator": evaluator}],
        },
    }
