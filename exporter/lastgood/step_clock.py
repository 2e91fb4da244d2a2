"""Tell when a step ran: some steps have a journaled time, those in between are interpolated."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from datetime import timedelta
from operator import itemgetter

from lastgood import wording
from lastgood.state import Checkpoint, Point, RunState

_step, _time = itemgetter(0), itemgetter(1)  # of an anchor; along the anchors both rise


class StepClock:
    """Tell when a step ran, from the steps whose time is journaled, linear in between."""

    def __init__(self, state: RunState) -> None:
        anchors: dict[int, dict[int, str]] = {}
        for attempt, step, at in _anchors(state):
            times = anchors.setdefault(attempt, {})
            times[step] = min(at, times.get(step, at))
        self._anchors = {attempt: _rising(times) for attempt, times in anchors.items()}

    def at(self, point: Point) -> str | None:
        """Return the time of a point; None when nothing is known about its attempt. Outside, the nearest time."""
        anchors = self._anchors.get(point.attempt)
        if not anchors:
            return None
        after = bisect_left(anchors, point.step, key=_step)
        before = bisect_right(anchors, point.step, key=_step) - 1
        if before < 0 or after == len(anchors):
            return anchors[max(before, 0)][1]
        (low, start), (high, end) = anchors[before], anchors[after]
        share = (point.step - low) / (high - low) if high > low else 0.0
        return stamp_between(start, end, share)

    def step_at(self, attempt: int, at: str) -> int | None:
        """Return the last step of an attempt that had ended at a time; None when nothing is known about it."""
        anchors = self._anchors.get(attempt, [])
        after = bisect_right(anchors, at, key=_time)
        if after in (0, len(anchors)):
            return anchors[max(after - 1, 0)][0] if anchors else None
        (low, start), (high, end) = anchors[after - 1], anchors[after]
        share = (wording.moment(at) - wording.moment(start)) / (wording.moment(end) - wording.moment(start))
        return low + int((high - low) * share)

    def first_step(self, attempt: int) -> tuple[int, str] | None:
        """Return the earliest step of an attempt whose time is journaled, and that time; its start is no step."""
        anchors = self._anchors.get(attempt, [])
        return anchors[1] if len(anchors) > 1 else None


def _anchors(state: RunState) -> Iterator[tuple[int, int, str]]:
    for attempt in state.attempts:
        yield attempt.number, attempt.from_step, attempt.started_at
        if attempt.last_step > attempt.from_step:
            yield attempt.number, attempt.last_step, attempt.last_step_at
    for done in state.rounds:
        yield done.attempt, done.step, done.at
    for save in state.checkpoints:
        yield save.attempt, save.step, _held_at(save)
    for finding in state.findings:
        yield finding.attempt, finding.step, finding.at


def _held_at(save: Checkpoint) -> str:
    """Return when training went on from a save: one in the background is complete only long after its step."""
    behind = (save.seconds or 0.0) - (save.blocked_seconds or 0.0)
    if save.blocked_seconds is None or behind <= 0:
        return save.saved_at
    return (wording.moment(save.saved_at) - timedelta(seconds=behind)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _rising(times: Mapping[int, str]) -> list[tuple[int, str]]:
    """Keep the anchors whose times do not run backwards (a finding of an early step may be written late)."""
    kept: list[tuple[int, str]] = []
    for step, at in sorted(times.items()):
        if at and (not kept or at >= kept[-1][1]):
            kept.append((step, at))
    return kept


def stamp_between(start: str, end: str, share: float) -> str:
    """Return the time at ``share`` (0 to 1) of the way between two times."""
    first = wording.moment(start)
    time = first + (wording.moment(end) - first) * share
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
