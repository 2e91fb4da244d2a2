"""Tell what a run's time was spent on: steps that were kept, steps that were lost, saves, starts, and standing still.

Only some moments of a run are journaled (starts, saves, rounds, ends, a line of progress every 30 s), so the time of a
step in between is interpolated. What a step was worth is only known afterwards: when a later attempt resumes from an
earlier checkpoint, the steps after it turn from productive to lost. Goodput is the share of productive seconds, as in
ml-goodput-measurement, except that steps behind a suspect checkpoint count as lost as soon as the run resumes before
them. Not covered: what happens inside a step (data loading, waiting for other ranks). Pure: no files, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, get_args

from lastgood import lineage
from lastgood.events import timestamp_of
from lastgood.state import Attempt, Point, RunState
from lastgood.step_clock import StepClock

TimeState = Literal["productive", "lost", "saving", "starting", "stopped"]
TIME_STATES: Final[tuple[TimeState, ...]] = get_args(TimeState)
RestartReason = Literal["completed", "integrity", "exception", "signal", "lost"]
RESTART_REASONS: Final[tuple[RestartReason, ...]] = get_args(RestartReason)
"""How the attempt before a restart ended; ``lost``: it died without a word."""

QUIET_SECONDS: Final = 60.0
"""Silence that means nothing: progress comes every 30 s."""
ALIVE_SECONDS: Final = 600.0
"""An attempt that has written nothing for so long is dead, whatever it said last: its time is over."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a run's time, in unix seconds."""

    state: TimeState
    start: float
    end: float


def spans(state: RunState) -> tuple[Span, ...]:
    """Return the run's time from its first start to its last sign of life, without gaps and in order.

    Saves are not spans: an asynchronous save overlaps with steps, see :func:`seconds`.
    """
    if not state.attempts:
        return ()
    clock, kept = StepClock(state), _kept(state)
    pieces: list[Span] = []
    for attempt, following in pairwise([*state.attempts, None]):
        assert attempt is not None
        pieces += _of_attempt(attempt, kept.get(attempt.number), clock)
        end = timestamp_of(following.started_at) if following else last_heard(state)
        pieces.append(Span("stopped", pieces[-1].end, end))
    return tuple(_tidied(pieces))


def _kept(state: RunState) -> dict[int, int]:
    """Return attempt -> last step of it that the newest state still contains. Attempts that left nothing are absent."""
    attempts = {attempt.number: attempt for attempt in state.attempts}
    newest = state.attempts[-1]
    return {s.attempt: s.end for s in lineage.segments(attempts, Point(newest.number, newest.last_step))}


def _of_attempt(attempt: Attempt, kept: int | None, clock: StepClock) -> Iterator[Span]:
    """Yield start, kept steps, lost steps. An attempt without a step only started."""
    begin, last = timestamp_of(attempt.started_at), timestamp_of(attempt.last_step_at or attempt.started_at)
    first = begin + _starting_seconds(attempt, begin, last, clock)
    yield Span("starting", begin, first)
    until = min(max(kept if kept is not None else attempt.from_step, attempt.from_step), attempt.last_step)
    at = clock.at(Point(attempt.number, until)) if until > attempt.from_step else None
    turn = last if until == attempt.last_step else min(last, max(first, timestamp_of(at) if at else first))
    yield Span("productive", first, turn)
    yield Span("lost", turn, last)


def _starting_seconds(attempt: Attempt, begin: float, last: float, clock: StepClock) -> float:
    """Return how much longer the first journaled stretch of steps took than the rest of them would have.

    The first step of an attempt compiles, warms up and opens connections. With fewer than two journaled steps nobody
    can tell, and it counts as nothing.
    """
    known = clock.first_step(attempt.number)
    if known is None or known[0] >= attempt.last_step:
        return 0.0
    step, at = known[0], timestamp_of(known[1])
    usual = (last - at) / (attempt.last_step - step)
    return min(max(0.0, (at - begin) - usual * (step - attempt.from_step)), last - begin)


def silence(state: RunState, now: float) -> tuple[Span, ...]:
    """Return the time since the last sign of life of a run that is alive but has not written for over a minute."""
    last = last_heard(state)
    quiet = state.active and QUIET_SECONDS < now - last < ALIVE_SECONDS
    return (Span("stopped", last, now),) if quiet else ()


def last_heard(state: RunState) -> float:
    """Return when the run last wrote an event or a line of progress (unix seconds)."""
    newest = state.attempts[-1]
    return max(timestamp_of(at) for at in (newest.last_event_at, newest.last_step_at, newest.started_at) if at)


def _tidied(pieces: Sequence[Span]) -> Iterator[Span]:
    """Drop what is empty, and let no span begin before the one before it has ended (clocks of nodes differ)."""
    reached = -math.inf
    for piece in pieces:
        start = max(piece.start, reached)
        if piece.end > start:
            yield Span(piece.state, start, piece.end)
            reached = piece.end


def seconds(state: RunState, found: Sequence[Span], since: float = -math.inf) -> dict[TimeState, float]:
    """Return state -> seconds after ``since``. The time that training waited for saves is taken from the steps."""
    total = dict.fromkeys(TIME_STATES, 0.0)
    for span in found:
        total[span.state] += max(0.0, span.end - max(span.start, since))
    for save in state.checkpoints:
        if timestamp_of(save.saved_at) > since:
            _move_to_saving(total, save.blocked_seconds or 0.0)
    return total


def _move_to_saving(total: dict[TimeState, float], blocked: float) -> None:
    for source in ("productive", "lost"):
        moved = min(blocked, total[source])
        total[source] -= moved
        total["saving"] += moved
        blocked -= moved


def goodput(spent: Mapping[TimeState, float]) -> float | None:
    """Return the share of productive seconds, 0 to 1; None when there is no time to share."""
    whole = math.fsum(spent.values())
    return spent["productive"] / whole if whole > 0 else None


def restart_reasons(attempts: Sequence[Attempt]) -> tuple[RestartReason, ...]:
    """Return why each attempt after the first was started: how the one before it ended."""
    return tuple(_reason(attempt.end_reason) for attempt in attempts[:-1])


def _reason(end_reason: str | None) -> RestartReason:
    return next((reason for reason in RESTART_REASONS if reason == end_reason), "lost")


def lost_steps(attempts: Sequence[Attempt]) -> int:
    """Return how many steps had to be trained again, over all restarts."""
    return sum(max(0, earlier.last_step - later.from_step) for earlier, later in pairwise(attempts))
