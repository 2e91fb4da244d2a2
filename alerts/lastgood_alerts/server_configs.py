"""Write the configuration of Prometheus and Alertmanager: for ``lastgood stack``, for docker compose, as an example.

``honor_labels`` keeps our labels where a target has one of the same name. Ranks are found through the console
(``/api/sd``), through the ``targets.json`` of the run directories, or both. A token is read from a file, never written
into the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from lastgood_alerts.prometheus import CONSOLE_URL
from lastgood_alerts.routing import (
    CRITICAL_INTERVAL,
    GROUP_BY,
    GROUP_INTERVAL,
    GROUP_WAIT_SECONDS,
    HEARTBEAT_INTERVAL,
    REPEAT_INTERVAL,
)
from lastgood_alerts.rules_itself import WATCHDOG
from lastgood_alerts.yaml_text import Data, yaml_text

HEAD: Final = "Written by lastgood."
RECEIVER: Final = "lastgood-console"
MAX_ALERTS: Final = 100
"""Alerts in one notification; the console shows how many were left out. A group has at most 8 per incident."""
DISCOVERY_SECONDS: Final = 10


def prometheus_config(
    *,
    console_url: str = CONSOLE_URL,
    alertmanagers: Sequence[str] = ("localhost:9093",),
    rule_files: Sequence[str] = ("lastgood.rules.yml",),
    target_files: Sequence[str] = (),
    http_sd: bool = True,
    token_file: str | None = None,
    scrape_interval_seconds: int = 15,
    evaluation_interval_seconds: int = 15,
) -> str:
    """Return ``prometheus.yml``.

    ``console_url`` is where Prometheus finds the console or ``lastgood serve``; both tell it where the ranks are.
    ``target_files``: the ``targets.json`` of runs, each by name, since Prometheus takes no ``*`` in a folder's name.
    ``alertmanagers``: ``host:port``.
    """
    console = urlsplit(console_url)
    access = _authorization(token_file)
    ledger: Data = {
        "job_name": "lastgood-ledger",
        "honor_labels": True,
        "scheme": console.scheme,
        **access,
        "static_configs": [{"targets": [console.netloc]}],
    }
    ranks: dict[str, Data] = {"job_name": "lastgood-ranks", "honor_labels": True}
    if http_sd:
        url = f"{console_url.rstrip('/')}/api/sd"
        ranks["http_sd_configs"] = [{"url": url, "refresh_interval": f"{DISCOVERY_SECONDS}s", **access}]
    if target_files:
        ranks["file_sd_configs"] = [{"files": list(target_files), "refresh_interval": f"{DISCOVERY_SECONDS}s"}]
    config: dict[str, Data] = {
        "global": {
            "scrape_interval": f"{scrape_interval_seconds}s",
            "scrape_timeout": f"{min(scrape_interval_seconds, 10)}s",
            "evaluation_interval": f"{evaluation_interval_seconds}s",
        },
        "rule_files": list(rule_files),
        "scrape_configs": [ledger, ranks] if len(ranks) > 2 else [ledger],
    }
    if alertmanagers:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]}
    return yaml_text(config, HEAD)


def alertmanager_config(
    *, console_url: str = CONSOLE_URL, token_file: str | None = None, group_wait_seconds: int = GROUP_WAIT_SECONDS
) -> str:
    """Return ``alertmanager.yml``: everything to the console, critical alerts at once, heartbeats often."""
    group_by = list(GROUP_BY)
    webhook: Data = {
        "url": f"{console_url.rstrip('/')}/api/alerts",
        "send_resolved": True,
        "max_alerts": MAX_ALERTS,
        "http_config": {"follow_redirects": False, **_authorization(token_file)},
    }
    critical: Data = {
        "receiver": RECEIVER,
        "matchers": ['severity="critical"'],
        "group_by": group_by,
        "group_wait": "0s",
        "group_interval": CRITICAL_INTERVAL,
    }
    heartbeat: Data = {
        "receiver": RECEIVER,
        "matchers": [f'alertname="{WATCHDOG.name}"'],
        "group_wait": "0s",
        "group_interval": HEARTBEAT_INTERVAL,
        "repeat_interval": HEARTBEAT_INTERVAL,
    }
    config: dict[str, Data] = {
        "route": {
            "receiver": RECEIVER,
            "group_by": group_by,
            "group_wait": f"{group_wait_seconds}s",
            "group_interval": GROUP_INTERVAL,
            "repeat_interval": REPEAT_INTERVAL,
            "routes": [critical, heartbeat],
        },
        "receivers": [{"name": RECEIVER, "webhook_configs": [webhook]}],
    }
    return yaml_text(config, HEAD)


def _authorization(token_file: str | None) -> Mapping[str, Data]:
    return {"authorization": {"type": "Bearer", "credentials_file": token_file}} if token_file else {}
