"""Follow an incident to its end: closed, recovered, reopened, and what it cost. Pure: no torch, no files, no clock.

*Closed*: cleared, or by a person. *Recovered*: a later attempt resumed at or before the resume step that was frozen at
the verdict, from a state that no window covers, and every device in it passed the checks that failed; contained and
not stopped: the same attempt passed them afterwards. *Reopened*: there is evidence after that, or a person says so.
Else *open*.

Only facts of the journal count, never progress: a check that runs at every step is passed by a save that says so, by
a check event, or by an attempt that ran to its end.

**Cost.** Steps: the step of the last finding minus the resume step. Seconds: from the save of the resume checkpoint
(without one, from the start of the first attempt with a finding) until the attempt that recovered began, or until a
person closed the incident, but never past the newest event of training: what people write later costs nothing. Device
hours: these seconds times the devices of the attempt with the last finding. A step that was skipped, and that is all
that happened, costs that step and no time worth counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from lastgood import people
from lastgood.events import CheckName
from lastgood.incidents import Draft
from lastgood.lineage import reach, unknown_root
from lastgood.records import person
from lastgood.state import (
    Attempt,
    Checkpoint,
    Cost,
    FailedSave,
    Finding,
    IncidentState,
    LastGood,
    Point,
    Window,
)
from lastgood.trust import covered
from lastgood.windows import Rounds


@dataclass(frozen=True, slots=True)
class Proof:
    """What the journal says about later passes."""

    attempts: Mapping[int, Attempt]
    rounds: Rounds
    saves: Mapping[int, Sequence[Checkpoint | FailedSave]]
    accepted_attempts: Set[int] = frozenset()


def closing(d: Draft) -> tuple[str | None, str | None]:
    """Return when and by whom an incident was closed: "cleared", a person's name, or None while it stands."""
    if d.status == "cleared":
        return max((v.at for v in d.deciding), default=None), "cleared"
    last = people.closed(d.actions, _last_evidence(d))
    return (last.time, person(last)) if last is not None else (None, None)


def in_doubt(d: Draft) -> tuple[Window, ...]:
    """Return the windows whose checkpoints must not be used.

    A person's close ends the work on an incident and not what a check proved: only a suspicion, about which no verdict
    was reached, is settled by it.
    """
    settled = d.status == "suspicious" and closing(d)[1] is not None
    return () if settled else d.windows


def _last_evidence(d: Draft) -> str:
    verdicts = (v.at for v in d.verdicts if v.status != "cleared")
    return max((*(f.at for f in d.standing), *verdicts), default="")


def recovery(d: Draft, resume: LastGood | None, proof: Proof) -> tuple[int, str] | None:
    """Return the attempt that recovered from an incident, and when it was proven; None while none has.

    ``resume`` is the checkpoint frozen at the verdict.
    """
    findings = d.findings
    last = max(f.attempt for f in findings)
    contained = all(f.window is not None and f.window.contained for f in findings)
    if contained and not d.stopped:
        step = max(f.step for f in findings if f.attempt == last)
        at = _passed_all(last, step, findings, proof)
        if at is not None:
            return last, at
    for number in sorted(proof.attempts):
        if number > last and _resumed_before(number, d, resume, proof):
            at = _passed_all(number, proof.attempts[number].from_step, findings, proof)
            if at is not None:
                return number, at
    return None


def _resumed_before(number: int, d: Draft, resume: LastGood | None, proof: Proof) -> bool:
    """Tell whether an attempt began with a state that no window covers and that is not after the resume step."""
    attempts, accepted = proof.attempts, proof.accepted_attempts
    start = Point(number, attempts[number].from_step)
    known = unknown_root(attempts, number, accepted) is None
    if not known or any(covered(attempts, w, start, accepted) for w in d.windows):
        return False
    if resume is None or not resume.exists:
        return True
    last = reach(attempts, start, resume.attempt)
    return last is None or last <= resume.step


def _passed_all(number: int, step: int, findings: Iterable[Finding], proof: Proof) -> str | None:
    """Return when every rank of an attempt had passed, after ``step``, all the checks that failed."""
    times = [_passed_since(check, number, step, proof) for check in {f.check for f in findings}]
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def _passed_since(check: CheckName, number: int, step: int, proof: Proof) -> str | None:
    """Return when every rank had passed one check on a state after ``step``."""
    times = [*_by_rounds(check, number, step, proof)]
    if check in ("finite", "conservation"):
        times += _by_saves(check, number, step, proof)
    return min(times, default=None)


def _by_rounds(check: CheckName, number: int, step: int, proof: Proof) -> Iterator[str]:
    """Yield the time of the round after which no rank is left that has not passed."""
    left: set[int] | None = None
    for found in sorted(proof.rounds.of.get((check, number), ()), key=lambda r: r.at):
        if found.step <= step or found.result == "not_run":
            continue
        odd = {rank for rank, (result, _) in found.exceptions.items() if result != "passed"}
        left = odd if left is None else left & odd
        if not left:
            yield found.at
            return


def _by_saves(check: CheckName, number: int, step: int, proof: Proof) -> Iterator[str]:
    """Yield the times at which a check of every step is journaled as passed."""
    for save in proof.saves.get(number, ()):
        if save.step > step and save.checks.get(check) == "passed":
            yield save.saved_at if isinstance(save, Checkpoint) else save.at
    attempt = proof.attempts[number]
    running = check not in attempt.not_run and attempt.cadence.get(check, 1) is not None
    if running and attempt.end_reason == "completed" and attempt.ended_at and attempt.last_step > step:
        yield attempt.ended_at


# --- state and cost --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an incident went on."""

    state: IncidentState
    recovered_at: str | None
    recovered_by: int | None
    closed_at: str | None
    closed_by: str | None
    cost: Cost
    reopened_at: str | None = None  # when it was last reopened, by evidence or by a person, while it is


def outcome_of(d: Draft, resume: LastGood | None, proof: Proof, *, resume_saved_at: str | None, now: str) -> Outcome:
    """Return how an incident went on; ``now`` is the time of the newest event of training."""
    found = None if d.status == "cleared" else recovery(d, resume, proof)  # nothing had to recover from software
    by, at = found or (None, None)
    closed_at, closed_by = closing(d)
    began = proof.attempts[by].started_at if by is not None else None
    end = began or (min(closed_at, now) if closed_at else None)
    cost = _cost(d, resume, proof, start=resume_saved_at, end=end, now=now)
    state: IncidentState = "open"
    again = people.reopened_at(d.actions, at)
    if closed_by is not None:
        state = "closed"
    elif by is not None and not (again and at and again > at):
        state = "recovered"
    elif again or _was_over(d, resume, proof):
        state = "reopened"
    since = max(again or "", _last_evidence(d)) if state == "reopened" else None
    return Outcome(state, at, by, closed_at, closed_by, cost, since)


def _was_over(d: Draft, resume: LastGood | None, proof: Proof) -> bool:
    """Tell whether a person had closed the incident, or an attempt recovered from it, before the newest evidence."""
    newest = _last_evidence(d)
    if any(e.time < newest for e in people.decisions(d.actions, "close")):
        return True
    last = max(f.attempt for f in d.findings)
    earlier = tuple(f for f in d.findings if f.attempt < last)
    if not earlier:
        return False
    found = recovery(replace(d, findings=earlier), resume, proof)
    return found is not None and found[1] < newest


def _cost(d: Draft, resume: LastGood | None, proof: Proof, *, start: str | None, end: str | None, now: str) -> Cost:
    """Return what an incident has cost so far (the rule is at the top); ``end`` is None while it rises."""
    if d.status == "cleared" or not (d.windows or d.stopped):
        return Cost(len({(f.attempt, f.step) for f in d.findings}), 0.0, 0.0, False)
    last = d.findings[-1]
    start = start or proof.attempts[d.findings[0].attempt].started_at
    seconds = max(0.0, (_moment(end or now) - _moment(start)).total_seconds())
    steps = last.step - (resume.step if resume is not None and resume.exists else 0)
    return Cost(max(0, steps), seconds, seconds * proof.attempts[last.attempt].world_size / 3600, end is None)


def _moment(time: str) -> datetime:
    return datetime.fromisoformat(time.replace("Z", "+00:00"))
