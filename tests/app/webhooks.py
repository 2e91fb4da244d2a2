"""Make webhook bodies as Alertmanager (version 4) and Grafana (version 1) send them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

STILL_FIRING = "0001-01-01T00:00:00Z"
STARTS = "2026-11-29T02:03:20.5Z"


def alert(
    name: str = "ReplayMismatch",
    *,
    status: str = "firing",
    starts: str = STARTS,
    ends: str = STILL_FIRING,
    fingerprint: str = "9f86d081884c7d65",
    annotations: Mapping[str, str] | None = None,
    **labels: str,
) -> dict[str, Any]:
    """Return one alert; ``labels`` beside its name and severity."""
    return {
        "status": status,
        "labels": {"alertname": name, "severity": "critical", **labels},
        "annotations": {"summary": f"{name} says so."} if annotations is None else dict(annotations),
        "startsAt": starts,
        "endsAt": ends,
        "generatorURL": "http://prometheus:9090/graph?g0.expr=x",
        "fingerprint": fingerprint,
    }


def alertmanager(*alerts: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a payload of Alertmanager."""
    return {
        "version": "4",
        "groupKey": '{}:{alertname="ReplayMismatch"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "console",
        "groupLabels": {"alertname": "ReplayMismatch"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": list(alerts),
        **changes,
    }


def grafana(*alerts: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a payload of Grafana: more keys, in the payload and in each alert."""
    more = {"silenceURL": "http://grafana/silence", "dashboardURL": "", "panelURL": "", "valueString": "[ var='A' ]",
            "values": {"A": 50, "C": 1}, "ruleUID": "lastgood-replay", "orgId": 1}  # fmt: skip
    own = {"version": "1", "orgId": 1, "title": "[FIRING:1]", "state": "alerting", "message": "",
           "appVersion": "13.2.0", "externalURL": "http://grafana:3000/"}  # fmt: skip
    return alertmanager(*({**more, **one} for one in alerts), **own | changes)


def body(payload: Mapping[str, Any]) -> bytes:
    """Return a payload as the body of a request."""
    return json.dumps(payload).encode()
