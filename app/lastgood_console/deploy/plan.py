"""Compare what should be in a Grafana with what is there: create, change, remove or leave each thing. Pure.

Only what lastgood put there is ever changed or removed: rules of the folder that came through the API under one of
our uids, the contact point with our uid, the route to it, annotations with our tag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lastgood_console.deploy.compare import REDACTED, differences, first_lines
from lastgood_console.deploy.conflicts import conflicts
from lastgood_console.deploy.marks import id_of
from lastgood_console.deploy.things import Change, Found, Json, Kind, Plan, Wanted, is_own_rule, place, place_of

RULE_KEYS: Final = (
    "title", "ruleGroup", "folderUID", "condition", "data", "noDataState", "execErrState", "for", "keep_firing_for",
    "labels", "annotations", "isPaused", "notification_settings", "record",
)  # fmt: skip
"""What a rule consists of. Anything else in an answer was added by the server."""
SECRET_SETTINGS: Final = ("authorization_scheme", "authorization_credentials")
"""What a contact point shows the console. Without a token given, it stays as it is."""


def plan(wanted: Wanted, found: Found) -> Plan:
    """Return what has to be done so that ``found`` becomes ``wanted``.

    The order is one in which nothing refers to a thing that is not there yet: a rule fires only once its folder, its
    dashboards and its route exist.
    """
    changes = (
        *_folder(wanted, found),
        *_dashboards(wanted, found),
        *_contact_points(wanted, found),
        *_policy(wanted, found),
        *_groups(wanted, found),
        *_removed_rules(wanted, found),
        *_annotations(wanted, found),
    )
    return Plan(changes, tuple(conflicts(wanted, found, changes)))


# each kind of thing


def _folder(wanted: Wanted, found: Found) -> Iterator[Change]:
    if wanted.dashboards or wanted.groups:
        kind: Kind = "unchanged" if found.folder else "create"
        yield Change(kind, "folder", wanted.folder["title"], payload=wanted.folder)


def _dashboards(wanted: Wanted, found: Found) -> Iterator[Change]:
    for dashboard in wanted.dashboards:
        uid = dashboard["uid"]
        there = found.dashboards.get(uid)
        version = there["dashboard"].get("version", 0) if there else 0
        # Not overwriting means that an edit since we looked is a 412, not lost work.
        payload = {
            "dashboard": {**dashboard, "id": None, "version": version},
            "folderUid": wanted.folder["uid"],
            "overwrite": False,
            "message": wanted.message,
        }
        if there is None:
            yield Change("create", "dashboard", uid, payload=payload)
            continue
        ours = {key: value for key, value in dashboard.items() if key not in ("id", "version", "iteration")}
        lines = [*differences(there["dashboard"], ours)]
        lines += differences(there.get("meta", {}).get("folderUid", ""), wanted.folder["uid"], "folder")
        yield _changed("dashboard", uid, lines, payload)


def _contact_points(wanted: Wanted, found: Found) -> Iterator[Change]:
    there = {point.get("uid"): point for point in found.contact_points}
    for point in wanted.contact_points:
        if point["uid"] not in there:
            yield Change("create", "contact point", point["name"], payload=point)
            continue
        before = _told(there[point["uid"]])
        lines = [*differences(before, point)]
        if wanted.renew_secrets:
            lines.append("secrets are sent again")
        yield _changed("contact point", point["name"], lines, _keeping_secrets(before, point))


def _told(point: Json) -> Json:
    """Return a contact point with its hidden secrets in their places.

    The secret of a signature is a level deeper than the others. Versions of Grafana differ: some blot it out there,
    some under a name with a dot, some leave it out.
    """
    settings = {key: value for key, value in point.get("settings", {}).items() if "." not in key}
    if isinstance(settings.get("hmacConfig"), dict):
        settings["hmacConfig"] = {"secret": REDACTED, **settings["hmacConfig"]}
    return {**point, "settings": settings}


def _keeping_secrets(before: Json, point: Json) -> Json:
    """Return the contact point with the secrets that only Grafana knows: sent blotted out, they stay as they are."""
    kept = {key: value for key, value in before["settings"].items() if key in SECRET_SETTINGS}
    return {**point, "settings": {**kept, **point["settings"]}}


def _policy(wanted: Wanted, found: Found) -> Iterator[Change]:
    if wanted.route is None:
        return
    tree = with_route(found.policy, wanted.route)
    mine = [route for route in found.policy.get("routes") or [] if is_ours(route, wanted.route)]
    lines = [*differences(mine, [wanted.route], "routes")] if mine else [f"route to {wanted.route['receiver']} added"]
    yield _changed("notification policy", "route", lines, tree)


def with_route(tree: Json, route: Json) -> Json:
    """Return the policy tree with our route in it once: where it stands already, else first. Nothing else changes."""
    others = [*(tree.get("routes") or [])]
    place = next((number for number, other in enumerate(others) if is_ours(other, route)), 0)
    kept = [other for other in others if not is_ours(other, route)]
    return {**tree, "routes": [*kept[:place], route, *kept[place:]]}


def is_ours(other: Json, route: Json) -> bool:
    """Tell whether a route of the tree is the one that we put there: the same receiver for the same alerts."""
    key = "object_matchers"
    return bool(other.get("receiver") == route["receiver"] and (other.get(key) or []) == route[key])


def _groups(wanted: Wanted, found: Found) -> Iterator[Change]:
    there = {rule.get("uid"): rule for rule in found.rules}
    kept = {rule["uid"] for group in wanted.groups for rule in group["rules"]}
    for group in wanted.groups:
        lines = [*_group_lines(group, there, found)]
        inside = [rule for rule in found.rules if place(rule) == place_of(group)]
        leaving = tuple(str(rule.get("title")) for rule in inside if rule.get("uid") not in kept)
        change = _changed("rule group", group["title"], lines, group)
        yield replace(change, kind=change.kind if inside else "create", leaving=leaving)


def _group_lines(group: Json, there: Mapping[Any, Json], found: Found) -> Iterator[str]:
    kept = {rule["uid"] for rule in group["rules"]}
    gone = [rule for rule in found.rules if place(rule) == place_of(group) and rule.get("uid") not in kept]
    yield from (f"- rule {rule.get('title')}" for rule in gone)
    interval = found.intervals.get(group["title"])
    if interval is not None:
        yield from differences(interval, group["interval"], "interval")
    for rule in group["rules"]:
        before = there.get(rule["uid"])
        if before is None:
            yield f"+ rule {rule['title']}"
            continue
        yield from (f"rule {rule['title']}: {line}" for line in rule_differences(before, rule, group))


def rule_differences(before: Json, rule: Json, group: Json) -> Iterator[str]:
    """Yield how a rule in Grafana differs from ours, in what a rule consists of."""
    ours = {"ruleGroup": group["title"], "folderUID": group["folderUid"], **rule}
    after = {key: ours.get(key) for key in RULE_KEYS}
    yield from differences({key: before.get(key) for key in RULE_KEYS}, after)


def _removed_rules(wanted: Wanted, found: Found) -> Iterator[Change]:
    """Yield our rules in groups that there are no more. Those of the groups that stay go with their group."""
    if not wanted.groups:  # alerts are not asked for: nothing is known of what there should be
        return
    places = {place_of(group) for group in wanted.groups}
    kept = {rule["uid"] for group in wanted.groups for rule in group["rules"]}
    for rule in found.rules:
        folder, group = place(rule)
        gone = folder == wanted.folder["uid"] and (folder, group) not in places and rule.get("uid") not in kept
        if gone and is_own_rule(rule):
            yield Change("remove", "rule", str(rule.get("title")), (f"of group {group}",), {"uid": rule["uid"]})


def _annotations(wanted: Wanted, found: Found) -> Iterator[Change]:
    there = {id_of(annotation): annotation for annotation in found.annotations}
    for annotation in wanted.annotations:
        before = there.get(id_of(annotation))
        if before is None:
            yield Change("create", "annotation", annotation["text"], payload=annotation)
            continue
        shown = {**before, "tags": sorted(before.get("tags") or [])}
        lines = [*differences(shown, {**annotation, "tags": sorted(annotation["tags"])})]
        change = _changed("annotation", annotation["text"], lines, annotation)
        yield replace(change, number=int(before.get("id", 0)))


def _changed(what: str, name: str, lines: Sequence[str], payload: Json) -> Change:
    return Change("change" if lines else "unchanged", what, name, first_lines(lines), payload)
