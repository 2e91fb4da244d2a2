"""Compare what should be in a Grafana with what is there: create, change, remove or leave each thing. Pure.

Only what lastgood put there is ever changed or removed: rules of the folder that came through the API under one of
our uids, the contact point with our uid, the route to it, annotations with our tag. What a file provisions is Grafana's
own business and cannot be changed from outside; that, and a rule of somebody else in one of our groups, is a
*conflict*: it stops everything before anything is sent, and says the way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from lastgood_console.deploy.compare import REDACTED, differences, first_lines
from lastgood_console.deploy.marks import id_of

Json = dict[str, Any]
Kind = Literal["create", "change", "remove", "unchanged"]

RULE_KEYS: Final = (
    "title", "ruleGroup", "folderUID", "condition", "data", "noDataState", "execErrState", "for", "keep_firing_for",
    "labels", "annotations", "isPaused", "notification_settings", "record",
)  # fmt: skip
"""What a rule consists of. Anything else in an answer was added by the server."""
SECRET_SETTINGS: Final = ("authorization_scheme", "authorization_credentials", "hmacConfig")
"""What a contact point shows the console and signs with. Without a token given, it stays as it is."""
OWN_UID: Final = "lastgood-"
"""What the uid of everything we put there begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What should be there. ``route`` is None when the notification policy is to be left alone."""

    folder: Json
    dashboards: tuple[Json, ...] = ()
    groups: tuple[Json, ...] = ()
    contact_points: tuple[Json, ...] = ()
    route: Json | None = None
    annotations: tuple[Json, ...] = ()
    renew_secrets: bool = False
    """Send contact points again, since Grafana does not show whether a secret has changed."""
    message: str = ""
    """What the version history of a dashboard says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is there, as Grafana answers it. ``dashboards``: uid -> dashboard with its ``meta``."""

    version: str = "unknown"
    folder: Json | None = None
    dashboards: Mapping[str, Json] = field(default_factory=dict)
    rules: tuple[Json, ...] = ()
    intervals: Mapping[str, int] = field(default_factory=dict)  # group -> seconds
    contact_points: tuple[Json, ...] = ()
    policy: Json = field(default_factory=dict)
    annotations: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done with one thing. ``payload`` is what is sent; ``number`` is Grafana's id of an annotation."""

    kind: Kind
    what: str
    name: str
    lines: tuple[str, ...] = ()
    payload: Json = field(default_factory=dict, hash=False)
    number: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in this order, and what forbids it."""

    changes: tuple[Change, ...]
    conflicts: tuple[str, ...] = ()

    @property
    def to_do(self) -> tuple[Change, ...]:
        """Return the changes that send something."""
        return tuple(change for change in self.changes if change.kind != "unchanged")


def plan(wanted: Wanted, found: Found) -> Plan:
    """Return what has to be done so that ``found`` becomes ``wanted``.

    The order is one in which nothing refers to a thing that is not there yet: a rule fires only once its folder, its
    dashboards and its route exist.
    """
    changes = (
        _folder(wanted, found),
        *_dashboards(wanted, found),
        *_contact_points(wanted, found),
        *_policy(wanted, found),
        *_groups(wanted, found),
        *_removed_rules(wanted, found),
        *_annotations(wanted, found),
    )
    return Plan(changes, tuple(_conflicts(wanted, found)))


# each kind of thing


def _folder(wanted: Wanted, found: Found) -> Change:
    kind: Kind = "unchanged" if found.folder else "create"
    return Change(kind, "folder", wanted.folder["title"], payload=wanted.folder)


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
    for group in wanted.groups:
        lines = [*_group_lines(group, there, found)]
        new = not any(_place(rule) == _place_of(group) for rule in found.rules)
        if new:
            yield Change("create", "rule group", group["title"], first_lines(lines), group)
        else:
            yield _changed("rule group", group["title"], lines, group)


def _group_lines(group: Json, there: Mapping[Any, Json], found: Found) -> Iterator[str]:
    interval = found.intervals.get(group["title"])
    if interval is not None:
        yield from differences(interval, group["interval"], "interval")
    for rule in group["rules"]:
        before = there.get(rule["uid"])
        if before is None:
            yield f"+ rule {rule['title']}"
            continue
        yield from (f"rule {rule['title']}: {line}" for line in rule_differences(before, rule, group))
    kept = {rule["uid"] for rule in group["rules"]}
    gone = [rule for rule in found.rules if _place(rule) == _place_of(group) and rule.get("uid") not in kept]
    yield from (f"- rule {rule.get('title')}" for rule in gone)


def rule_differences(before: Json, rule: Json, group: Json) -> Iterator[str]:
    """Yield how a rule in Grafana differs from ours, in what a rule consists of."""
    ours = {"ruleGroup": group["title"], "folderUID": group["folderUid"], **rule}
    after = {key: ours.get(key) for key in RULE_KEYS}
    yield from differences({key: before.get(key) for key in RULE_KEYS}, after)


def _removed_rules(wanted: Wanted, found: Found) -> Iterator[Change]:
    """Yield our rules in groups that there are no more. Those of the groups that stay go with their group."""
    places = {_place_of(group) for group in wanted.groups}
    kept = {rule["uid"] for group in wanted.groups for rule in group["rules"]}
    for rule in found.rules:
        folder, group = _place(rule)
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
        yield Change(change.kind, change.what, change.name, change.lines, annotation, int(before.get("id", 0)))


def _changed(what: str, name: str, lines: Sequence[str], payload: Json) -> Change:
    return Change("change" if lines else "unchanged", what, name, first_lines(lines), payload)


# whose it is


def is_own_rule(rule: Json) -> bool:
    """Tell whether lastgood put a rule there: through the API, under a uid of ours."""
    return rule.get("provenance") == "api" and str(rule.get("uid", "")).startswith(OWN_UID)


def _place(rule: Json) -> tuple[Any, Any]:
    return rule.get("folderUID"), rule.get("ruleGroup")


def _place_of(group: Json) -> tuple[Any, Any]:
    return group["folderUid"], group["title"]


def _conflicts(wanted: Wanted, found: Found) -> Iterator[str]:
    yield from (
        f"dashboard {uid} comes from a file of this Grafana: take it out of the provisioning folder first"
        for uid, there in found.dashboards.items()
        if there.get("meta", {}).get("provisioned")
    )
    ours = {rule["uid"] for group in wanted.groups for rule in group["rules"]}
    places = {_place_of(group) for group in wanted.groups}
    for rule in found.rules:
        if rule.get("uid") in ours and rule.get("provenance") == "file":
            yield (
                f"rule {rule.get('title')} comes from a file of this Grafana: one rule cannot be managed in both ways; "
                "remove the file and list the rule under deleteRules for one start"
            )
        elif rule.get("uid") not in ours and _place(rule) in places and not is_own_rule(rule):
            yield (
                f"rule {rule.get('title')} in group {rule.get('ruleGroup')} is not from lastgood and would be lost: "
                "move it to another group"
            )
    points = {point["uid"] for point in wanted.contact_points}
    for point in found.contact_points:
        if point.get("uid") in points and point.get("provenance") == "file":
            yield f"contact point {point.get('name')} comes from a file of this Grafana: remove it there first"
    if wanted.route is not None and found.policy.get("provenance") == "file":
        yield (
            "the notification policy comes from a file of this Grafana: add the route to that file, and give "
            "--policy keep"
        )
