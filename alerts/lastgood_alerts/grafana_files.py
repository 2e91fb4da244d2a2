"""Render the table as files for Grafana's provisioning: rules, contact point, notification policy.

Grafana drops keys that it does not know in silence, and replaces ``$X`` and ``${X}`` by environment variables in
labels, titles and contact points, not in queries and annotations. So labels hold no ``$`` and only the contact point
uses ``${...}``: the token is never in the file.
"""

from __future__ import annotations

from typing import Final

from lastgood_alerts.grafana import CONTACT_POINT, DATASOURCE_UID, FOLDER, rule_fields
from lastgood_alerts.prometheus import CONSOLE_URL, GENERATED
from lastgood_alerts.routing import (
    CRITICAL_INTERVAL,
    GROUP_BY,
    GROUP_INTERVAL,
    GROUP_WAIT_SECONDS,
    HEARTBEAT_INTERVAL,
    REPEAT_INTERVAL,
)
from lastgood_alerts.rule import Group
from lastgood_alerts.rules import GROUPS
from lastgood_alerts.rules_itself import WATCHDOG
from lastgood_alerts.yaml_text import Data, yaml_text

ORG: Final = 1
SIGNATURE_HEADER: Final = "X-Grafana-Alerting-Signature"
TIMESTAMP_HEADER: Final = "X-Grafana-Alerting-Timestamp"


def rules_file(*, console_url: str = CONSOLE_URL, datasource_uid: str = DATASOURCE_UID, recorded: bool = False) -> str:
    """Return ``rules.yaml``. ``recorded``: the data source evaluates ``prometheus.recordings_yaml``."""
    groups = [_group(group, console_url, datasource_uid, recorded) for group in GROUPS if group.rules]
    return yaml_text({"apiVersion": 1, "groups": groups}, GENERATED)


def contact_points_file(*, webhook_url: str = f"{CONSOLE_URL}/api/alerts") -> str:
    """Return ``contact-points.yaml``.

    Grafana's environment must hold the console's ``LASTGOOD_TOKEN`` and ``LASTGOOD_WEBHOOK_SECRET``.
    """
    receiver: Data = {
        "uid": CONTACT_POINT,
        "type": "webhook",
        "disableResolveMessage": False,
        "settings": webhook_settings(webhook_url, "${LASTGOOD_TOKEN}", "${LASTGOOD_WEBHOOK_SECRET}"),
    }
    point: Data = {"orgId": ORG, "name": CONTACT_POINT, "receivers": [receiver]}
    return yaml_text({"apiVersion": 1, "contactPoints": [point]}, GENERATED)


def policies_file() -> str:
    """Return ``policies.yaml``, which replaces the whole notification policy of the organisation."""
    comment = f"{GENERATED}\nIt replaces the whole notification policy of the organisation: merge it by hand."
    return yaml_text({"apiVersion": 1, "policies": [{"orgId": ORG, **policy_tree()}]}, comment)


def webhook_settings(webhook_url: str, token: str, secret: str) -> dict[str, Data]:
    """Return the settings of the webhook to the console: ``token`` is sent, ``secret`` signs time and body.

    What is empty is left out: a console without a secret refuses what is signed.
    """
    settings: dict[str, Data] = {"url": webhook_url, "httpMethod": "POST", "maxAlerts": 0}
    if token:
        settings |= {"authorization_scheme": "Bearer", "authorization_credentials": token}
    if secret:
        signing: Data = {"secret": secret, "header": SIGNATURE_HEADER, "timestampHeader": TIMESTAMP_HEADER}
        settings["hmacConfig"] = signing
    return settings


def policy_tree() -> dict[str, Data]:
    """Return the notification policy: critical at once, the rest in groups; everything to the console."""
    return {
        "receiver": CONTACT_POINT,
        "group_by": ["grafana_folder", *GROUP_BY],
        "group_wait": f"{GROUP_WAIT_SECONDS}s",
        "group_interval": GROUP_INTERVAL,
        "repeat_interval": REPEAT_INTERVAL,
        "routes": [critical_route(), heartbeat_route()],
    }


def critical_route() -> dict[str, Data]:
    """Return the route of critical alerts: no waiting for others of the group."""
    return {
        "receiver": CONTACT_POINT,
        "object_matchers": [["severity", "=", "critical"]],
        "group_by": ["grafana_folder", *GROUP_BY],
        "group_wait": "0s",
        "group_interval": CRITICAL_INTERVAL,
        "repeat_interval": REPEAT_INTERVAL,
    }


def heartbeat_route() -> dict[str, Data]:
    """Return the route of the Watchdog, which is sent again so often that its silence is noticed."""
    return {
        "receiver": CONTACT_POINT,
        "object_matchers": [["alertname", "=", WATCHDOG.name]],
        "group_by": ["grafana_folder", "alertname"],
        "group_wait": "0s",
        "group_interval": HEARTBEAT_INTERVAL,
        "repeat_interval": HEARTBEAT_INTERVAL,
    }


def _group(group: Group, console_url: str, datasource_uid: str, recorded: bool) -> Data:
    return {
        "orgId": ORG,
        "name": group.name,
        "folder": FOLDER,
        "interval": f"{group.interval_seconds}s",
        "rules": [rule_fields(rule, console_url, datasource_uid, recorded, "keepFiringFor") for rule in group.rules],
    }
