"""Trace what a state descends from, through any number of restarts. Pure: no torch, no files, no clock.

A *lineage* is a chain of segments, oldest first. Segment ``(attempt, start, end]`` says that the state went through
the steps after ``start`` up to and including ``end`` in that attempt; the next segment begins where a later attempt
resumed from it. Corruption is inherited along this chain and along nothing else: what attempt 1 did after the
checkpoint that attempt 2 resumed from is not part of attempt 2.

An attempt that does not say which checkpoint it resumed from has an unknown past: everything that was computed before
it can be in it. Journals can be damaged, so a parent that is not older than its child, or whose attempt is not in the
journal, counts as unknown too; the chain therefore always ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lastgood.state import Attempt, Point


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The steps ``(start, end]`` of one attempt."""

    attempt: int
    start: int
    end: int


def origin(attempts: Mapping[int, Attempt], number: int) -> Point | None:
    """Return the point that attempt ``number`` resumed from; None when it started from nothing or nobody knows."""
    attempt = attempts[number]
    parent = attempt.parent
    if parent is None or not attempt.parent_known or parent.attempt >= number or parent.attempt not in attempts:
        return None
    return parent.point


def from_nothing(attempt: Attempt) -> bool:
    """Tell whether an attempt is known to have begun at step 0, before anything was computed."""
    return attempt.parent is None and attempt.parent_known and attempt.from_step == 0


def segments(attempts: Mapping[int, Attempt], point: Point) -> tuple[Segment, ...]:
    """Return the lineage of ``point``, oldest segment first. Its first segment begins where knowledge begins."""
    chain: list[Segment] = []
    at: Point | None = point
    while at is not None:
        chain.append(Segment(at.attempt, attempts[at.attempt].from_step, at.step))
        at = origin(attempts, at.attempt)
    return tuple(reversed(chain))


def unknown_root(attempts: Mapping[int, Attempt], number: int, accepted: Collection[int] = ()) -> int | None:
    """Return the attempt in the lineage of attempt ``number`` whose past is unknown, or None when all is known.

    ``accepted``: attempts whose unknown past a person has vouched for.
    """
    while (back := origin(attempts, number)) is not None:
        number = back.attempt
    return None if from_nothing(attempts[number]) or number in accepted else number


def unknown_roots(attempts: Mapping[int, Attempt], accepted: Collection[int] = ()) -> dict[int, int | None]:
    """Return :func:`unknown_root` of every attempt, in one pass over them."""
    roots: dict[int, int | None] = {}
    for number in sorted(attempts):
        back = origin(attempts, number)
        roots[number] = unknown_root(attempts, number, accepted) if back is None else roots[back.attempt]
    return roots


def reach(attempts: Mapping[int, Attempt], point: Point, attempt: int) -> int | None:
    """Return the last step of ``attempt`` that the lineage of ``point`` contains, or None when it has none of it."""
    at: Point | None = point
    while at is not None and at.attempt > attempt:
        at = origin(attempts, at.attempt)
    return at.step if at is not None and at.attempt == attempt else None


def reaches(attempts: Mapping[int, Attempt], attempt: int) -> dict[int, int]:
    """Return, for every later attempt that descends from ``attempt``, the last step of it that it starts with.

    The same as :func:`reach` of every attempt's first state, in one pass over the attempts.
    """
    found: dict[int, int] = {}
    for number in sorted(attempts):
        back = origin(attempts, number) if number > attempt else None
        if back is None:
            continue
        if back.attempt == attempt:
            found[number] = back.step
        elif back.attempt in found:
            found[number] = found[back.attempt]
    return found


def normalise(chain: tuple[Segment, ...], point: Point) -> Point:
    """Return the same state as seen from the newest attempt that begins with it.

    What follows the last step that a child took over belongs to the child: a window that starts there must not
    reach into the rest of the parent attempt.
    """
    for segment, following in zip(chain, chain[1:], strict=False):
        if point == Point(segment.attempt, segment.end):
            point = Point(following.attempt, following.start)
    return point
