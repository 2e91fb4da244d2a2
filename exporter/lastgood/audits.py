"""Say whether every device of an attempt passed a replay at or after a step. Pure: no torch, no files, no clock.

A fleet has 16,384 ranks, and a long run 26,000 rounds and hundreds of attempts. So ranks are never walked where a round
that everyone passed says the same, and what changed between attempts is found by comparing places by identity: readers
of topologies share the objects. Equal places that are not the same object cost time and change nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from operator import is_not
from typing import Final

from lastgood.state import Attempt, Place, Point
from lastgood.windows import Rounds, passed
from lastgood.wording import step_text

Named = tuple[str, str]
"""Node and GPU of a device."""


Span = tuple[int, int, int]
"""First attempt and last, and the rank in them."""

BLOCK: Final = 512
FEW_QUESTIONS: Final = 8
FEW_DEVICES: Final = 64


def _named(place: Place) -> Named:
    return (place.node, place.gpu_uuid)


class Audits:
    """Answers whether every device of a checkpoint's segment passed a replay at or after it.

    Never walks ranks where a round that everyone passed says the same: a fleet has 16,384 of them and a long run
    26,000 rounds.
    """

    def __init__(self, attempts: Mapping[int, Attempt], rounds: Rounds) -> None:
        self._attempts = attempts
        self._rounds = rounds
        self._full = {number: self._full_steps(number) for number in attempts}
        self._numbers = sorted(attempts)
        self._odd_ranks: dict[tuple[int, int], frozenset[int] | None] = {}

    @cached_property
    def presence(self) -> Presence:
        """Return where each device ran; made when it is first asked for."""
        return Presence(self._attempts)

    def why_not(self, point: Point) -> str:
        """Say which devices have not passed a replay at or after ``point``; empty when all have."""
        attempt = self._attempts[point.attempt]
        if point.step == attempt.from_step or self._next_full(point) is not None:
            return ""
        waiting = self.waiting(point)
        if waiting is not None and not waiting:
            return ""
        if "replay" in attempt.not_run:
            return f"Replay did not run: {attempt.not_run['replay']}."
        count = attempt.world_size
        if waiting is None or len(waiting) >= count:
            return f"No device has passed a replay at or after step {step_text(point.step)} yet."
        names = ", ".join(f"{node} {gpu}" for node, gpu in sorted(waiting)[:2])
        step = step_text(point.step)
        return f"{len(waiting)} of {count} devices have not passed a replay at or after step {step}: {names}."

    def why(self, point: Point) -> str:
        """Say in which replay the devices passed."""
        attempt = self._attempts[point.attempt]
        if point.step == attempt.from_step:
            return "Nothing was computed before it." if point.step == 0 else "It is the state that was resumed from."
        who = "The device" if attempt.world_size == 1 else f"All {attempt.world_size} devices"
        step = self._next_full(point)
        if step is not None:
            return f"{who} passed a replay at step {step_text(step)}."
        return f"{who} passed a replay at or after step {step_text(point.step)}, not all in the same round."

    def _full_steps(self, number: int) -> list[int]:
        """Return the steps of the rounds that every rank of an attempt passed, ascending."""
        return [r.state_step for r in self._rounds.of.get(("replay", number), ()) if passed(r, None)]

    def _next_full(self, point: Point) -> int | None:
        steps = self._full[point.attempt]
        at = bisect_left(steps, point.step)
        return steps[at] if at < len(steps) else None

    def waiting(self, point: Point) -> frozenset[Named] | None:
        """Return the devices without a pass at or after ``point``; None when the devices are not known."""
        places = self._attempts[point.attempt].places
        if not places:
            return None
        odd = self._odd(point.attempt, point.step)
        waiting = self._after_the_next(point.attempt) if odd is None else {_named(p) for p in places if p.rank in odd}
        spans = self.presence.of(waiting)
        return frozenset(d for d in waiting if not self._passes_later(spans.get(d, ()), point.attempt))

    def _after_the_next(self, number: int) -> set[Named]:
        """Return every device of an attempt but those that the next one with a replay says to have passed there.

        It compares places by identity: most of them are the same objects in both, and stay with the same rank.
        """
        own = self._attempts[number].places
        later = self._numbers[bisect_right(self._numbers, number) :]
        following = next((n for n in later if self._attempts[n].places and self._odd(n) is not None), None)
        if following is None:
            return {_named(place) for place in own}
        next_places, odd = self._attempts[following].places, self._odd(following) or ()
        moved = map(is_not, own, next_places)
        left = {_named(place) for place in compress(own, moved)}
        left |= {_named(place) for place in own[len(next_places) :]}
        return left | {_named(place) for place in own if odd and place.rank in odd} | {
            device for place in next_places if odd and place.rank in odd
            for device in [_named(place)] if self.presence.ranks(device, number)
        }  # fmt: skip

    def _passes_later(self, spans: Sequence[Span], number: int) -> bool:
        """Tell whether a device passed in an attempt after this one, on every rank that it had there."""
        for first, last, _ in spans:
            begin, end = bisect_right(self._numbers, max(number, first - 1)), bisect_right(self._numbers, last)
            for later in self._numbers[begin:end]:
                odd = self._odd(later)
                if odd is not None and not (odd and odd & _ranks(spans, later)):
                    return True
        return False

    def _odd(self, number: int, step: int = -1) -> frozenset[int] | None:
        """Return the ranks of an attempt that did not pass a replay at or after ``step``; None: none has run."""
        key = (number, step)
        if key not in self._odd_ranks:
            listed = self._rounds.of.get(("replay", number), ())
            late = [r.exceptions for r in listed if r.state_step >= step and r.result != "not_run"]
            odd = ({rank for rank, (result, _) in found.items() if result != "passed"} for found in late)
            self._odd_ranks[key] = None if not late else frozenset() if not all(late) else _common(odd)
        return self._odd_ranks[key]


def _common(sets: Iterable[set[int]]) -> frozenset[int]:
    return frozenset(set.intersection(*sets))


class Presence:
    """Says in which attempts a device ran, and as which rank. A device without a place in an attempt ran not in it.

    A restart changes a node or two of thousands, so only what changes is looked at.
    """

    def __init__(self, attempts: Mapping[int, Attempt]) -> None:
        self._ended: list[tuple[int, int, Place]] = []  # first attempt, last, where
        self._since: list[int] = []  # of each place of the attempt before, since which attempt it is so
        self._questions = 0
        before: Sequence[Place] = ()
        last = 0
        for number in sorted(attempts):
            self._go_on(before, attempts[number].places, number, last)
            before, last = attempts[number].places, number
        self._go_on(before, (), last + 1, last)

    def of(self, devices: Collection[Named]) -> Mapping[Named, Sequence[Span]]:
        """Return device -> its spans, at least for these devices. To sort all of them takes longer than a few looks."""
        self._questions += 1
        if self._questions > FEW_QUESTIONS or len(devices) > FEW_DEVICES:
            return self._spans
        uuids = {uuid for _, uuid in devices}
        return _by_device(ended for ended in self._ended if ended[2].gpu_uuid in uuids)

    def ranks(self, device: Named, number: int) -> set[int]:
        """Return the ranks that a device had in an attempt; none where it did not run."""
        return _ranks(self._spans.get(device, ()), number)

    @cached_property
    def _spans(self) -> Mapping[Named, Sequence[Span]]:
        return _by_device(self._ended)

    def _go_on(self, before: Sequence[Place], places: Sequence[Place], number: int, last: int) -> None:
        """End the spans of the places that are others in the next attempt."""
        changed = [] if before is places else [*_changed(before, places)]
        self._ended += [(self._since[i], last, before[i]) for i in changed]
        for i in changed:
            self._since[i] = number
        self._since = [*self._since[: len(places)], *[number] * (len(places) - len(before))]


def _changed(before: Sequence[Place], places: Sequence[Place]) -> Iterator[int]:
    """Yield where two attempts differ. Blocks of the same objects are equal in one look."""
    for start in range(0, len(before), BLOCK):
        old, new = before[start : start + BLOCK], places[start : start + BLOCK]
        if old != new:
            yield from compress(range(start, start + len(new)), map(is_not, old, new))
            yield from range(start + len(new), start + len(old))


def _by_device(ended: Iterable[tuple[int, int, Place]]) -> dict[Named, list[Span]]:
    spans: dict[Named, list[Span]] = {}
    for first, last, place in ended:
        spans.setdefault(_named(place), []).append((first, last, place.rank))
    return spans


def _ranks(spans: Iterable[Span], number: int) -> set[int]:
    return {rank for first, last, rank in spans if first <= number <= last}
