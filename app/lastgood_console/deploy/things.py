"""Hold what a deployment compares: what should be in a Grafana, what is there, and what is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Json = dict[str, Any]
Kind = Literal["create", "change", "remove", "unchanged"]

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

    folder: Json | None = None
    dashboards: Mapping[str, Json] = field(default_factory=dict)
    rules: tuple[Json, ...] = ()
    intervals: Mapping[str, int] = field(default_factory=dict)  # group -> seconds
    contact_points: tuple[Json, ...] = ()
    policy: Json = field(default_factory=dict)
    annotations: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done with one thing. ``payload`` is what is sent; ``number`` is Grafana's id of an annotation.

    ``leaving``: the titles of the rules that are removed by it, since a rule group is replaced as a whole.
    """

    kind: Kind
    what: str
    name: str
    lines: tuple[str, ...] = ()
    payload: Json = field(default_factory=dict, hash=False)
    number: int = 0
    leaving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in this order, and what forbids it."""

    changes: tuple[Change, ...]
    conflicts: tuple[str, ...] = ()

    @property
    def to_do(self) -> tuple[Change, ...]:
        """Return the changes that send something."""
        return tuple(change for change in self.changes if change.kind != "unchanged")


def is_own_rule(rule: Json) -> bool:
    """Tell whether lastgood put a rule there: through the API, under a uid of ours."""
    return rule.get("provenance") == "api" and str(rule.get("uid", "")).startswith(OWN_UID)


def place(rule: Json) -> tuple[Any, Any]:
    """Return the uid of the folder and the group of a rule."""
    return rule.get("folderUID"), rule.get("ruleGroup")


def place_of(group: Json) -> tuple[Any, Any]:
    """Return the place of the rules of a group."""
    return group["folderUid"], group["title"]
