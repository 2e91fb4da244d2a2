"""Render the table as payloads of Grafana's provisioning API, for ``lastgood grafana deploy``.

``PUT /api/v1/provisioning/folder/{folder}/rule-groups/{title}`` replaces a group, so a rule that left the table leaves
Grafana too. The API spells some keys otherwise than the files do, and expands no environment variables.
"""

from __future__ import annotations

from typing import Any

from lastgood_alerts.grafana import CONTACT_POINT, DATASOURCE_UID, FOLDER, rule_fields
from lastgood_alerts.grafana_files import ORG, policy_tree, webhook_settings
from lastgood_alerts.prometheus import CONSOLE_URL
from lastgood_alerts.rule import Group
from lastgood_alerts.rules import GROUPS

Payload = dict[str, Any]


def rule_groups(
    *,
    console_url: str = CONSOLE_URL,
    datasource_uid: str = DATASOURCE_UID,
    folder_uid: str = FOLDER,
    recorded: bool = False,
) -> list[Payload]:
    """Return one payload per group; its ``title`` is the group in the path.

    ``recorded``: the data source evaluates ``prometheus.recordings_yaml``, and the rules read what it records.
    """
    return [_group(group, console_url, datasource_uid, folder_uid, recorded) for group in GROUPS if group.rules]


def contact_points(
    *, webhook_url: str = f"{CONSOLE_URL}/api/alerts", token: str = "", secret: str = ""
) -> list[Payload]:
    """Return the contact points. ``token`` is the console's ``LASTGOOD_TOKEN``, ``secret`` its webhook secret."""
    settings = webhook_settings(webhook_url, token, secret)
    point = {"uid": CONTACT_POINT, "name": CONTACT_POINT, "type": "webhook", "settings": settings}
    return [point | {"disableResolveMessage": False}]


def policy() -> Payload:
    """Return the notification policy. It replaces the whole tree of the organisation."""
    return dict(policy_tree())


def _group(group: Group, console_url: str, datasource_uid: str, folder_uid: str, recorded: bool) -> Payload:
    where = {"orgID": ORG, "folderUID": folder_uid, "ruleGroup": group.name}
    rules = [
        where | rule_fields(rule, console_url, datasource_uid, recorded, "keep_firing_for") for rule in group.rules
    ]
    return {"title": group.name, "folderUid": folder_uid, "interval": group.interval_seconds, "rules": rules}
