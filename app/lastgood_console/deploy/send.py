"""Do what a plan says, thing by thing, and know at every moment what has been done.

There is no transaction over Grafana's API. So a failure stops at once, and its message lists what was done and what
was not; running the deployment again goes on from there, since what is in place is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lastgood.errors import LastgoodError
from lastgood_console.deploy.grafana import Grafana, GrafanaError
from lastgood_console.deploy.show import annotations_text
from lastgood_console.deploy.things import Change, Json, Kind, Plan


class SendError(LastgoodError):
    """A deployment stopped half-way: says why, what was done and what was not."""


def send(plan: Plan, grafana: Grafana, policy_before: Json, said: Callable[[Change], None]) -> None:
    """Do it all in order; ``said`` is told after each. Raises :class:`SendError` at the first failure."""
    to_do = plan.to_do
    for number, change in enumerate(to_do):
        try:
            if change.what == "notification policy":
                _unchanged_meanwhile(grafana, policy_before)
            _SENDERS[change.what, change.kind](grafana, change)
        except GrafanaError as error:
            raise SendError(f"{error}.\n{_story(to_do[:number], to_do[number:])}") from None
        said(change)


def _unchanged_meanwhile(grafana: Grafana, before: Json) -> None:
    """Refuse to replace a policy tree that somebody changed since it was read: the API cannot tell."""
    if grafana.policy() != before:
        raise GrafanaError(
            "the notification policy was changed by somebody else meanwhile: look with --dry-run, then run this again"
        )


def _story(done: tuple[Change, ...], left: tuple[Change, ...]) -> str:
    return f"Done: {_names(done)}.\nNot done: {_names(left)}."


def _names(changes: tuple[Change, ...]) -> str:
    """Name the changes."""
    named = [f"{change.what} {change.name}" for change in changes if change.what != "annotation"]
    marks = len(changes) - len(named)
    if marks:
        named.append(annotations_text(marks))
    return ", ".join(named) or "nothing"


def _policy(grafana: Grafana, change: Change) -> None:
    """Put the tree back as it was but for our route, as free to edit as it was."""
    tree = {key: value for key, value in change.payload.items() if key != "provenance"}
    grafana.put_policy(tree, editable=not change.payload.get("provenance"))


_SENDERS: Final[Mapping[tuple[str, Kind], Callable[[Grafana, Change], None]]] = {
    ("folder", "create"): lambda grafana, change: grafana.create_folder(change.payload),
    ("dashboard", "create"): lambda grafana, change: grafana.save_dashboard(change.payload),
    ("dashboard", "change"): lambda grafana, change: grafana.save_dashboard(change.payload),
    ("contact point", "create"): lambda grafana, change: grafana.create_contact_point(change.payload),
    ("contact point", "change"): lambda grafana, change: grafana.change_contact_point(change.payload),
    ("notification policy", "change"): _policy,
    ("rule group", "create"): lambda grafana, change: grafana.put_rule_group(change.payload),
    ("rule group", "change"): lambda grafana, change: grafana.put_rule_group(change.payload),
    ("rule", "remove"): lambda grafana, change: grafana.delete_rule(change.payload["uid"]),
    ("annotation", "create"): lambda grafana, change: grafana.create_annotation(change.payload),
    ("annotation", "change"): lambda grafana, change: grafana.change_annotation(change.number, change.payload),
}
