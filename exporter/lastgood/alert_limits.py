"""Bound how many alerts are kept of one run: the newest, and how many older ones made room for them.

What a run says of itself ends with the run. Alerts need not: a rule that flaps for weeks, or whoever posts nonsense,
would fill the disk and the memory of whoever reads it. Pure: no files, no clock.
"""

from __future__ import annotations

from typing import Final

from lastgood.events import Event

MOST_ALERTS: Final = 20_000
"""So many alerts stay when there are twice as many: all that one request brings, and the largest job has ranks."""
FORGOTTEN: Final = "older"
"""The ``reason`` of the *truncated* alert that counts alerts which were here and made room for newer ones."""


def is_counted(event: Event) -> bool:
    """Tell whether an event is an alert that may have to make room."""
    return event.type == "alert" and event.data.get("reason") != FORGOTTEN


def older_alerts(last: Event, count: int, run: str) -> Event:
    """Return what stands for so many of a run's alerts that are kept no longer, up to the last one of them."""
    data = {
        "name": "OlderAlerts",
        "status": "truncated",
        "severity": "info",
        "summary": f"{count} older alerts are kept no longer",
        "labels": {},
        "starts_at": last.data["starts_at"],
        "fingerprint": f"older-{last.id}",
        "source": last.data["source"],
        "reason": FORGOTTEN,
        "truncated": count,
    }
    return Event(f"older-{last.id}", f"/lastgood/{run}/alerts", "alert", last.time, run, last.attempt, data)
