"""Read what Alertmanager (webhook version 4) and Grafana (version 1) send: one parser for both.

Grafana's payload is Alertmanager's with more keys, so keys that are not known are allowed and Grafana's own are
optional. What the two mean differently is sorted out here:

- Grafana resolves an alert also when its series is gone, its rule was paused, changed or deleted, or had no data; it
  says so in the annotation ``grafana_state_reason``. Nobody measured that all is well: such an alert is *lost*.
- A rule of Grafana that cannot be evaluated arrives as an alert ``DatasourceNoData`` or ``DatasourceError`` with the
  rule in ``rulename`` and without the rule's own labels.
- ``truncatedAlerts`` counts alerts of the group that were left out: an entry of its own, since they are not known.

Times are brought to UTC and microseconds, so that the same moment is always the same text. Pure: no files, no clock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from lastgood.admission import Refusal
from lastgood.catalogue import UNKNOWN
from lastgood.events import AlertData, AlertStatus, is_slug, plain
from lastgood.posted import FLEET
from lastgood_alerts.rule import SEVERAL

MAX_ALERTS: Final = 20_000
MOST_LABELS: Final = 64
_MOST_LETTERS: Final = 1024
_LONGEST_NAME: Final = 256
_NOBODY: Final = ("", UNKNOWN, SEVERAL)
_RESUME: Final = re.compile(r"Resume from step ([0-9]{1,16})\b", re.ASCII)
_SOURCES: Final[Mapping[str, Literal["alertmanager", "grafana"]]] = {"4": "alertmanager", "1": "grafana"}
_BROKEN_RULE: Final[Mapping[str, AlertStatus]] = {"DatasourceNoData": "no_data", "DatasourceError": "error"}
_LARGEST: Final = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert of a payload. ``run`` is None when it names no run that could be one of ours."""

    run: str | None
    data: AlertData


@dataclass(frozen=True, slots=True)
class Payload:
    """What a request said. ``sender``: the address the alerting system gives itself. ``rejected``: index and reason."""

    sender: str
    notices: tuple[Notice, ...]
    rejected: tuple[dict[str, Any], ...]


def read_payload(content: Any) -> Payload:
    """Return the alerts of a webhook's body. Raises :class:`Refusal` when it is no payload of either system."""
    if not isinstance(content, dict) or not isinstance(content.get("alerts"), list):
        raise Refusal(400, "not a webhook payload: an object with a list of alerts is expected")
    source = _SOURCES.get(str(content.get("version")))
    if source is None:
        version = str(content.get("version"))[:20]
        raise Refusal(400, f"version {version!r}: Alertmanager's webhook version 4 and Grafana's version 1 are read")
    alerts = content["alerts"]
    if len(alerts) > MAX_ALERTS:
        raise Refusal(413, f"{len(alerts)} alerts are more than the {MAX_ALERTS} one request may have: set max_alerts")
    notices, rejected = _sort_out(alerts, source)
    left_out = _truncated(content, source, notices)
    return Payload(_text(content.get("externalURL"), 200), (*notices, *left_out), tuple(rejected))


def _sort_out(
    alerts: Sequence[Any], source: Literal["alertmanager", "grafana"]
) -> tuple[list[Notice], list[dict[str, Any]]]:
    notices, rejected = [], []
    for index, alert in enumerate(alerts):
        problem = _problem(alert)
        if problem:
            rejected.append({"index": index, "reason": problem})
        else:
            notices.append(_notice(alert, source))
    return notices, rejected


def _problem(alert: Any) -> str:
    if not isinstance(alert, dict) or not isinstance(alert.get("labels"), dict):
        return "not an alert: an object with labels is expected"
    if alert.get("status") not in ("firing", "resolved"):
        return f"status {str(alert.get('status'))[:40]!r} is neither firing nor resolved"
    if utc_time(alert.get("startsAt")) is None:
        return f"startsAt {str(alert.get('startsAt'))[:40]!r} is not a time with its zone"
    return ""


def _notice(alert: Mapping[str, Any], source: Literal["alertmanager", "grafana"]) -> Notice:
    labels, annotations = _texts(alert["labels"]), _texts(alert.get("annotations"))
    status = _status(alert, labels, annotations)
    data: AlertData = {
        "name": labels.get("alertname") or "unnamed",
        "status": status,
        "severity": labels.get("severity", ""),
        "summary": annotations.get("summary", ""),
        "description": annotations.get("description", ""),
        "labels": labels,
        "starts_at": utc_time(alert["startsAt"]) or "",
        "fingerprint": _text(alert.get("fingerprint"), 64) or _digest(*(f"{k}={labels[k]}" for k in sorted(labels))),
        "source": source,
        "generator_url": _text(alert.get("generatorURL"), _MOST_LETTERS),
        "runbook_url": annotations.get("runbook_url", ""),
        "value": _value(alert.get("values")),
        "rule": labels.get("rulename", ""),
        "reason": _reason(annotations),
    }
    if status in ("resolved", "lost") and (ended := utc_time(alert.get("endsAt"))):
        data["ends_at"] = ended
    _add_place(data, labels, annotations)
    return Notice(_run(labels), data)


def _status(alert: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> AlertStatus:
    if alert["status"] == "resolved":
        return "lost" if annotations.get("grafana_state_reason") else "resolved"
    return _BROKEN_RULE.get(labels.get("alertname", ""), "firing")


def _reason(annotations: Mapping[str, str]) -> str:
    return annotations.get("grafana_state_reason") or annotations.get("Error", "")


def _value(values: Any) -> str:
    """Return the value of the rule's first query, which Grafana sends along."""
    first = values.get("A") if isinstance(values, dict) else None
    return "" if first is None else _text(first, 40)


def _add_place(data: AlertData, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    """Add what the labels say about where it is; nothing is added for what they do not know."""
    for name in ("incident", "check", "node", "gpu_uuid"):
        said = labels.get(name, "")
        if said not in _NOBODY and len(said) <= _LONGEST_NAME:
            data[name] = said
    rank, step = _whole(labels.get("rank", "")), _resume_step(annotations.get("summary", ""))
    if rank is not None:
        data["rank"] = rank
    if step is not None:
        data["resume_step"] = step


def _resume_step(summary: str) -> int | None:
    """Return the step that a summary of ours says to resume from; both systems have the same text."""
    found = _RESUME.search(summary)
    return _whole(found[1]) if found else None


def _run(labels: Mapping[str, str]) -> str | None:
    run = labels.get("run", "")
    return run if is_slug(run) and run not in (UNKNOWN, FLEET) else None


def _truncated(
    content: Mapping[str, Any], source: Literal["alertmanager", "grafana"], notices: Sequence[Notice]
) -> list[Notice]:
    """Return the entry that says how many alerts of the group were not sent; none when all were."""
    count = content.get("truncatedAlerts")
    if type(count) is not int or count <= 0 or not notices:
        return []
    labels = _texts(content.get("commonLabels")) | _texts(content.get("groupLabels"))
    data: AlertData = {
        "name": labels.get("alertname") or "unnamed",
        "status": "truncated",
        "severity": labels.get("severity", ""),
        "summary": f"{count} more alerts of its group were not sent",
        "labels": labels,
        "starts_at": max(notice.data["starts_at"] for notice in notices),
        "fingerprint": _digest(_text(content.get("groupKey"), 4096)),
        "source": source,
        "truncated": min(count, _LARGEST),
    }
    _add_place(data, labels, {})
    return [Notice(_run(labels), data)]


def utc_time(text: Any) -> str | None:
    """Return an RFC 3339 time as UTC with microseconds; None when it is no time or Go's zero time."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        if moment is None or moment.tzinfo is None or moment.year < 1970:
            return None
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (ValueError, OverflowError):
        return None


def _texts(values: Any) -> dict[str, str]:
    """Return labels or annotations as text, so many and so long as one alert may have."""
    found = list(values.items())[:MOST_LABELS] if isinstance(values, dict) else []
    return {_text(name, 128): _text(value, _MOST_LETTERS) for name, value in found}


def _text(value: Any, most: int) -> str:
    """Return a value as one line of at most ``most`` letters."""
    if value is None:
        return ""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(plain(value))).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _whole(text: str) -> int | None:
    digits = text if text.isascii() and text.isdecimal() and len(text) <= 16 else ""
    return int(digits) if digits and int(digits) <= _LARGEST else None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
