"""Say in which steps a corruption can have begun. Pure: no torch, no files, no clock.

The window of a finding is ``(w, s]``: ``w`` is the latest point on the finding's lineage that is proven good for what
failed, ``s`` the step whose numbers were wrong; that is the step in progress where a finding read the state that its
attempt began with, which no step of the attempt had written. What proves a point depends on the check:

- ``replay`` of a device: its last replay pass; without one, the step before the device joined the lineage.
- ``replica``: the state of the last replica pass; without one, the step resumed from, if the loaded bytes were
  verified. A finding at a save reads the optimizer state too, so only passes that read it as well count for it.
- ``finite`` and ``conservation`` run at every step, so the step before is good. A contained step touched nothing.
- ``at_rest`` of a device: its last pass that read the same part of the state, then as ``replica``.

Several ranks: the earliest start of them all, so an undecided case is as wide as its widest candidate. Where a
topology file is missing, a device counts as present and only rounds in which everyone passed count for it: a window
may be too wide, never too narrow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lastgood.lineage import Segment, normalise, segments
from lastgood.state import Attempt, CheckRound, Finding, Place, Point, Window
from lastgood.wording import step_text

FULL_PHASES = frozenset({"save", "close", "state"})
"""Phases in which ``replica`` reads the optimizer state as well as the weights."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of every (check, attempt) in the order of the state they read."""

    of: Mapping[tuple[str, int], Sequence[CheckRound]] = field(default_factory=dict)

    @classmethod
    def index(cls, rounds: Iterable[CheckRound]) -> Rounds:
        """Sort rounds into place."""
        of: dict[tuple[str, int], list[CheckRound]] = {}
        for found in rounds:
            of.setdefault((found.check, found.attempt), []).append(found)
        for listed in of.values():
            listed.sort(key=lambda r: (r.state_step, r.step))
        return cls(of)

    def upto(self, check: str, attempt: int, step: int) -> Iterable[CheckRound]:
        """Yield the rounds that read a state up to ``step``, newest first."""
        listed = self.of.get((check, attempt), ())
        for i in range(bisect_right(listed, step, key=lambda r: r.state_step) - 1, -1, -1):
            yield listed[i]


def passed(found: CheckRound, rank: int | None) -> bool:
    """Tell whether ``rank`` passed a round; None asks for everyone."""
    if rank is None:
        return found.result == "passed" and all(result == "passed" for result, _ in found.exceptions.values())
    return found.result_of(rank) == "passed"


def window_of(finding: Finding, attempts: Mapping[int, Attempt], rounds: Rounds) -> Window:
    """Return the window of one finding (the table of docs/checks.md)."""
    if finding.check in ("finite", "conservation"):
        return _per_step(finding, attempts)
    end = finding.step if finding.check == "replay" or _no_step_before(finding, attempts) else finding.state_step
    chain = segments(attempts, Point(finding.attempt, end - 1))
    places: Sequence[Place | None] = finding.places or (None,)
    if finding.check == "replica":
        places = (None,)
    starts = [_start(finding, place, chain, attempts, rounds) for place in places]
    order = {segment.attempt: i for i, segment in enumerate(chain)}
    point, reason = min(starts, key=lambda s: (order[s[0].attempt], s[0].step))
    point = normalise(chain, point)
    return Window(point.attempt, point.step, finding.attempt, end, False, reason)


def _no_step_before(finding: Finding, attempts: Mapping[int, Attempt]) -> bool:
    """Tell whether a finding read the state that its attempt began with, so that it changed in the step in progress."""
    return finding.state_step <= attempts[finding.attempt].from_step


def _per_step(finding: Finding, attempts: Mapping[int, Attempt]) -> Window:
    """Give a check of every step its window; a rank's own flag is heard one step late and contains nothing."""
    late = finding.check == "conservation" and finding.phase == "flag"
    contained = finding.contained and not late
    start = max(finding.step - (2 if late else 1), min(attempts[finding.attempt].from_step, finding.step - 1))
    reason = f"{finding.check} runs at every step and passed at step {step_text(start)}"
    if contained:
        reason = f"step {step_text(finding.step)} was kept out of the weights on all ranks"
    return Window(finding.attempt, start, finding.attempt, finding.step, contained, reason)


def _start(
    finding: Finding,
    place: Place | None,
    chain: tuple[Segment, ...],
    attempts: Mapping[int, Attempt],
    rounds: Rounds,
) -> tuple[Point, str]:
    """Walk back along the lineage to the latest point that is proven good for one device (None: for all)."""
    oldest = chain[-1]
    for segment in reversed(chain):
        attempt = attempts[segment.attempt]
        present, rank = _rank_in(attempt, place, finding)
        if not present:
            continue
        oldest = segment
        for found in rounds.upto(finding.check, segment.attempt, segment.end):
            if passed(found, rank) and _proves(found, finding):
                return Point(segment.attempt, found.state_step), _last_passed(finding, place, found.state_step)
        if finding.check != "replay" and attempt.parent_verified:
            reason = f"the state loaded at step {step_text(segment.start)} was verified"
            return Point(segment.attempt, segment.start), reason if segment.start else "the run began at step 0"
    return Point(oldest.attempt, oldest.start), _joined(place, oldest.start)


def _rank_in(attempt: Attempt, place: Place | None, finding: Finding) -> tuple[bool, int | None]:
    """Return whether a device ran in an attempt and as which rank; None: every rank must have passed."""
    if place is None:
        return True, None
    if attempt.number == finding.attempt:
        return True, place.rank
    if not attempt.places:
        return True, None
    rank = next((p.rank for p in attempt.places if p.node == place.node and p.gpu_uuid == place.gpu_uuid), None)
    return rank is not None, rank


def _proves(found: CheckRound, finding: Finding) -> bool:
    """Tell whether a pass read everything that the finding read."""
    if finding.check == "at_rest":  # parts take turns
        return found.phase in ("loop", finding.phase)
    return finding.check != "replica" or finding.phase not in FULL_PHASES or found.phase in FULL_PHASES


def _last_passed(finding: Finding, place: Place | None, step: int) -> str:
    whose = f" of rank {place.rank} ({place.node})" if place is not None else ""
    return f"{finding.check}{whose} last passed at step {step_text(step)}"


def _joined(place: Place | None, step: int) -> str:
    if place is None:
        return f"no earlier pass is known; the attempt began at step {step_text(step)}"
    return f"rank {place.rank} ({place.node}) joined at step {step_text(step)} and has not passed since"
