"""Say what forbids a deployment: what Grafana itself would refuse, or what would be lost. Pure.

A conflict stops everything before anything is sent, and says the way out.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastgood_console.deploy.compare import differences
from lastgood_console.deploy.things import Found, Wanted, is_own_rule, place, place_of


def conflicts(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield what forbids making ``found`` what is ``wanted``, one sentence each."""
    yield from (
        f"dashboard {uid} comes from a file of this Grafana: take it out of the provisioning folder first"
        for uid, there in found.dashboards.items()
        if there.get("meta", {}).get("provisioned")
    )
    ours = {rule["uid"] for group in wanted.groups for rule in group["rules"]}
    places = {place_of(group) for group in wanted.groups}
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
    yield from _contact_point_conflicts(wanted, found)
    if wanted.route is not None and found.policy.get("provenance") == "file":
        yield (
            "the notification policy comes from a file of this Grafana: add the route to that file, and give "
            "--policy keep"
        )


def _contact_point_conflicts(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield what forbids changing our contact point. Not every Grafana keeps the secret of a signature that it hid."""
    there = {point.get("uid"): point for point in found.contact_points}
    for point in wanted.contact_points:
        before = there.get(point["uid"], {})
        if before.get("provenance") == "file":
            yield f"contact point {point['name']} comes from a file of this Grafana: remove it there first"
        unknown = "hmacConfig" in before.get("settings", {}) and "hmacConfig" not in point["settings"]
        if unknown and (wanted.renew_secrets or [*differences(before, point)]):
            yield (
                f"contact point {point['name']} signs with a secret that only Grafana knows, and would lose it: set "
                "LASTGOOD_WEBHOOK_SECRET to the console's"
            )
