"""Say what forbids a deployment: what Grafana itself would refuse, or what would be lost. Pure.

A conflict stops everything before anything is sent, and says the way out. What a file of Grafana provisions cannot be
changed from outside; where it is as it should be, there is nothing to change and no conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lastgood_console.deploy.things import Change, Found, Wanted, is_own_rule, place, place_of

Touched = set[tuple[str, str]]
"""What is to be changed: (what, name)."""


def conflicts(wanted: Wanted, found: Found, changes: Iterable[Change]) -> Iterator[str]:
    """Yield what forbids these changes, one sentence each."""
    touched = {(change.what, change.name) for change in changes if change.kind != "unchanged"}
    yield from (
        f"dashboard {uid} comes from a file of this Grafana: take it out of the provisioning folder first"
        for uid, there in found.dashboards.items()
        if there.get("meta", {}).get("provisioned") and ("dashboard", uid) in touched
    )
    yield from _rule_conflicts(wanted, found, touched)
    yield from _contact_point_conflicts(wanted, found, touched)
    if ("notification policy", "route") in touched and found.policy.get("provenance") == "file":
        yield (
            "the notification policy comes from a file of this Grafana: add the route to that file, and give "
            "--policy keep"
        )


def _rule_conflicts(wanted: Wanted, found: Found, touched: Touched) -> Iterator[str]:
    groups = [group for group in wanted.groups if ("rule group", group["title"]) in touched]
    ours = {rule["uid"] for group in groups for rule in group["rules"]}
    places = {place_of(group) for group in groups}
    for rule in found.rules:
        if rule.get("uid") in ours and rule.get("provenance") == "file":
            yield (
                f"rule {rule.get('title')} comes from a file of this Grafana: one rule cannot be managed in both ways; "
                "remove the file and list the rule under deleteRules for one start"
            )
        elif rule.get("uid") not in ours and place(rule) in places and not is_own_rule(rule):
            yield (
                f"rule {rule.get('title')} in group {rule.get('ruleGroup')} is not from lastgood and would be lost: "
                "move it to another group"
            )


def _contact_point_conflicts(wanted: Wanted, found: Found, touched: Touched) -> Iterator[str]:
    """Yield what forbids changing our contact point. Not every Grafana keeps the secret of a signature that it hid."""
    there = {point.get("uid"): point for point in found.contact_points}
    for point in wanted.contact_points:
        before = there.get(point["uid"])
        if before is None or ("contact point", point["name"]) not in touched:
            continue
        if before.get("provenance") == "file":
            yield f"contact point {point['name']} comes from a file of this Grafana: remove it there first"
        if "hmacConfig" in before.get("settings", {}) and "hmacConfig" not in point["settings"]:
            yield (
                f"contact point {point['name']} signs with a secret that only Grafana knows, and would lose it: set "
                "LASTGOOD_WEBHOOK_SECRET to the console's"
            )
