"""Tell a plan and its execution in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from lastgood_console.deploy.things import Change, Kind, Plan

SIGNS: Final[dict[Kind, str]] = {"create": "+", "change": "~", "remove": "-", "unchanged": "="}
DONE_WORDS: Final[dict[Kind, str]] = {"create": "created", "change": "changed", "remove": "removed"}


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield one line for each thing, with what differs below it; annotations are counted."""
    for change in plan.changes:
        if change.what != "annotation":
            yield f"{SIGNS[change.kind]} {change.what} {change.name}"
            yield from (f"    {line}" for line in change.lines)
    for kind, count in _marks(plan.changes).items():
        yield f"{SIGNS[kind]} {annotations_text(count)}"


def done_lines(change: Change) -> Iterator[str]:
    """Yield what to say when a change is done: nothing for annotations, which are counted at the end."""
    if change.what != "annotation":
        yield f"{DONE_WORDS[change.kind]} {change.what} {change.name}"
    yield from (f"removed rule {title} of {change.what} {change.name}" for title in change.leaving)


def summary(plan: Plan, dry_run: bool) -> str:
    """Return the counts in one line."""
    counts = Counter(change.kind for change in plan.changes)
    counts["remove"] += sum(len(change.leaving) for change in plan.changes)
    numbers = f"{counts['create']} to create, {counts['change']} to change, {counts['remove']} to remove"
    if dry_run:
        return f"{numbers}, {counts['unchanged']} as they should be. Nothing was sent (--dry-run)."
    if not plan.to_do:
        return f"Nothing to do: all {counts['unchanged']} are as they should be."
    return (
        f"{counts['create']} created, {counts['change']} changed, {counts['remove']} removed, "
        f"{counts['unchanged']} left as they were."
    )


def annotations_done(plan: Plan) -> Iterator[str]:
    """Yield how many annotations were created and changed."""
    for kind, count in _marks(plan.to_do).items():
        yield f"{DONE_WORDS[kind]} {annotations_text(count)}"


def _marks(changes: Iterable[Change]) -> Counter[Kind]:
    return Counter(change.kind for change in changes if change.what == "annotation")


def annotations_text(count: int) -> str:
    """Return a number of annotations, which are counted and not named: there are many."""
    return f"{count} annotation{'' if count == 1 else 's'}"
