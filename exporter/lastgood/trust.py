"""Decide how far each checkpoint can be trusted, and which one is the last good. Pure: no torch, no files, no clock.

First match: missing or unreadable > tainted (its own bytes or save checks failed) > suspect (a window covers it)
> trusted > unverified. Trusted means: its parent is trusted, its save checks passed, and every device that ran since
the parent passed a replay at or after it, in any attempt. That is audited on both sides, not proven: a transient fault
between two audits leaves no evidence.

Step 0 is its own parent: nothing was computed before it, so the replica check at its save is all there is to pass. It
is ground to stand on even when nobody saved it: the first save of a run that began from nothing descends from it.
What is *missing* on disk keeps its standing as a parent: rotating old files away must not distrust the new ones.

**Newest** follows the newest attempt's lineage: its own saves, then those it descends from; other branches come after,
newest attempt first. A save that a restart left behind was left behind for a reason, whatever its step says. Step 0
is the last resort of both choices, so that a run whose replay is off does not start all over.

Not covered: a fault inside the averaging that every rank agrees on while conservation is off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from lastgood.audits import Audits
from lastgood.lineage import from_nothing, origin, reach, segments, unknown_root
from lastgood.state import Attempt, Checkpoint, Device, LastGood, Point, Trust, Window
from lastgood.windows import Rounds
from lastgood.wording import step_text

Key = tuple[int, int, str]
NAMED_CHECKS = ("finite", "conservation", "replica", "replay")
"""Checks that trust rests on; one that did not run is named in the reason."""


def covered(attempts: Mapping[int, Attempt], window: Window, point: Point, accepted: Set[int] = frozenset()) -> bool:
    """Tell whether the corruption of ``window`` can be in the state at ``point``.

    It is when the lineage of ``point`` contains a step after the window's start, or when its past is unknown and the
    window began before that past was cut off. A contained window covers nothing.
    """
    if window.contained:
        return False
    last = reach(attempts, point, window.start_attempt)
    if last is not None:
        return last > window.start
    root = unknown_root(attempts, point.attempt, accepted)
    return root is not None and window.start_attempt < root


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that trust depends on beside the checkpoints themselves.

    ``covered_by``: checkpoint -> ids of the incidents whose windows cover it. ``accepted``: checkpoint -> the
    person who vouched for it. ``accepted_attempts``: attempts whose unknown past a person vouched for. ``damaged``:
    checkpoint -> why its bytes are not what was saved. ``accused_again``: devices accused more than once.
    ``windows``: incident -> its window. ``in_doubt``: the windows that cover. ``closed``: the incidents that are
    closed. ``present``: path -> ok, missing or unreadable.
    """

    attempts: Mapping[int, Attempt]
    rounds: Rounds
    covered_by: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    in_doubt: Sequence[Window] = ()
    closed: Set[str] = frozenset()
    accepted: Mapping[Key, str] = field(default_factory=dict)
    accepted_attempts: Set[int] = frozenset()
    damaged: Mapping[Key, str] = field(default_factory=dict)
    accused_again: Set[Device] = frozenset()
    present: Mapping[str, str] = field(default_factory=dict)


def assess(checkpoints: Sequence[Checkpoint], facts: Facts) -> tuple[Checkpoint, ...]:
    """Return the checkpoints, sorted by (attempt, step, path), with trust, reason and the incidents that cover them."""
    audits = Audits(facts.attempts, facts.rounds)
    stained = _stained_attempts(facts)
    standing: dict[Key, tuple[Trust, str]] = {}
    for checkpoint in checkpoints:
        standing[_key(checkpoint)] = _standing(checkpoint, facts, audits, standing, stained)
    overwritten = _overwritten(checkpoints)
    return tuple(_judge(c, facts, standing[_key(c)], overwritten.get(_key(c))) for c in checkpoints)


def _key(checkpoint: Checkpoint) -> Key:
    return (checkpoint.attempt, checkpoint.step, checkpoint.path)


def _judge(checkpoint: Checkpoint, facts: Facts, standing: tuple[Trust, str], newer: Checkpoint | None) -> Checkpoint:
    """Put what is on disk before the standing of the bytes that were saved."""
    trust, reason = standing
    on_disk = facts.present.get(checkpoint.path, "ok")
    if newer is not None:
        trust, reason = "missing", f"Overwritten by step {step_text(newer.step)} of attempt {newer.attempt}."
    elif on_disk == "missing":
        trust, reason = "missing", "Journaled as saved; the path is gone."
    elif on_disk == "unreadable":
        trust, reason = "unreadable", "The path is there and cannot be read."
    by = facts.covered_by.get(_key(checkpoint), ())
    return replace(checkpoint, trust=trust, reason=reason, covered_by=by)


def _overwritten(checkpoints: Sequence[Checkpoint]) -> dict[Key, Checkpoint]:
    """Return which checkpoints lost their path to a later save."""
    newest: dict[str, Checkpoint] = {}
    lost: dict[Key, Checkpoint] = {}
    for checkpoint in checkpoints:
        older = newest.get(checkpoint.path)
        if older is not None:
            lost[_key(older)] = checkpoint
        newest[checkpoint.path] = checkpoint
    return {key: newest[by.path] for key, by in lost.items()}


# --- one checkpoint --------------------------------------------------------------------------------------------------


def _standing(
    checkpoint: Checkpoint,
    facts: Facts,
    audits: Audits,
    standing: Mapping[Key, tuple[Trust, str]],
    stained: Mapping[int, int],
) -> tuple[Trust, str]:
    """Judge the bytes as they were saved; parents come before their children."""
    key = _key(checkpoint)
    failed = [name for name, result in sorted(checkpoint.checks.items()) if result == "failed"]
    if key in facts.damaged:
        return "tainted", facts.damaged[key]
    if failed:
        return "tainted", f"Its save check failed: {', '.join(failed)}."
    if facts.covered_by.get(key):
        return "suspect", _why_suspect(checkpoint, facts)
    against = _why_unverified(checkpoint, facts, audits, standing, stained)
    if against:
        return "unverified", against + _vouched(facts.accepted.get(key))
    return "trusted", _why_trusted(checkpoint, facts.attempts[checkpoint.attempt], audits)


def _why_suspect(checkpoint: Checkpoint, facts: Facts) -> str:
    by = facts.covered_by[_key(checkpoint)]
    return " ".join(_inside(checkpoint, incident, facts) for incident in by[:2])


def _inside(checkpoint: Checkpoint, incident: str, facts: Facts) -> str:
    window, closed = facts.windows[incident], incident in facts.closed
    steps = f"({step_text(window.start)}, {step_text(window.end)}]"
    named = f"window {steps} of {incident}" + (", closed" if closed else "")
    comma = "," if closed else ""
    if checkpoint.attempt not in (window.start_attempt, window.end_attempt):
        return f"It descends from {named}{comma} in attempt {window.end_attempt}."
    if checkpoint.step <= window.end:
        return f"Saved inside {named}."
    return f"Saved after {named}{comma} began."


def _vouched(person: str | None) -> str:
    return f" Accepted by {person}." if person else ""


def _why_unverified(
    checkpoint: Checkpoint,
    facts: Facts,
    audits: Audits,
    standing: Mapping[Key, tuple[Trust, str]],
    stained: Mapping[int, int],
) -> str:
    """Say why a checkpoint that nothing speaks against is not trusted; empty when it is."""
    if checkpoint.step > stained.get(checkpoint.attempt, checkpoint.step):
        return "A device that ran since was accused twice in this run."
    return (
        _why_not_known(checkpoint, facts)
        or audits.why_not(checkpoint.point)
        or _why_not_parent(checkpoint, facts, standing)
    )


def _why_not_known(checkpoint: Checkpoint, facts: Facts) -> str:
    """Say why nobody knows what a checkpoint descends from; empty when it is known or a person vouched for it."""
    attempt, parent = facts.attempts[checkpoint.attempt], checkpoint.parent
    own = parent is not None and parent.attempt == checkpoint.attempt
    if own or from_nothing(attempt) or attempt.number in facts.accepted_attempts:
        return ""
    if parent is None or not checkpoint.parent_known:
        return "It descends from a checkpoint that lastgood does not know."
    if not attempt.parent_verified:
        return f"The bytes loaded from step {step_text(parent.step)} of attempt {parent.attempt} were not verified."
    return ""


def _why_not_parent(checkpoint: Checkpoint, facts: Facts, standing: Mapping[Key, tuple[Trust, str]]) -> str:
    """Say why a parent is no ground to stand on; empty when it is trusted or a person vouched for it."""
    parent = checkpoint.parent
    if parent is None:
        return ""
    key = (parent.attempt, parent.step, parent.path)
    trust = standing.get(key, ("not in the journal", ""))[0]
    if key == _key(checkpoint) or trust == "trusted":
        return ""
    resumed = parent.attempt != checkpoint.attempt and checkpoint.attempt in facts.accepted_attempts
    if trust != "tainted" and (resumed or key in facts.accepted):  # nobody vouches for bytes that are known to be bad
        return ""
    return f"It descends from step {step_text(parent.step)} of attempt {parent.attempt}, which is {trust}."


def _why_trusted(checkpoint: Checkpoint, attempt: Attempt, audits: Audits) -> str:
    """Say what was passed, and name a check that did not run."""
    skipped = {name for name, result in checkpoint.checks.items() if result == "not_run"} | set(attempt.not_run)
    names = [name for name in NAMED_CHECKS if name in skipped and name != "replay"]
    said = [f"{name} did not run ({attempt.not_run.get(name) or 'not at this save'})" for name in names]
    without = f" {_sentence(', '.join(said))}." if said else ""
    return audits.why(checkpoint.point) + without


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _stained_attempts(facts: Facts) -> dict[int, int]:
    """Return attempt -> step after which its checkpoints hold work of a device that was accused more than once."""
    stained: dict[int, int] = {}
    if not facts.accused_again:
        return stained
    for number, attempt in sorted(facts.attempts.items()):
        back = origin(facts.attempts, number)
        if back is not None and back.step > stained.get(back.attempt, back.step):
            stained[number] = -1
        elif not attempt.places or any(place.device in facts.accused_again for place in attempt.places):
            stained[number] = attempt.from_step
    return stained


# --- last good -------------------------------------------------------------------------------------------------------


def last_good(checkpoints: Iterable[Checkpoint], facts: Facts) -> LastGood:
    """Return the checkpoint to resume from: newest trusted, else newest unverified, else what the run began from."""
    every = list(checkpoints)
    usable = [c for c in every if c.trust in ("trusted", "unverified")]
    if not usable:
        return _beginning(facts, "No checkpoint is left outside the windows" if every else "Nothing saved yet")
    rank = _newest_first(facts.attempts)
    best = max(usable, key=lambda c: (c.step > 0, c.trust == "trusted", rank(c), c.path))
    return LastGood(best.attempt, best.step, best.path, best.trust, _why_last_good(best))


def _beginning(facts: Facts, why: str) -> LastGood:
    """Return what the newest lineage began from: step 0, or a checkpoint that is none of the run's own."""
    attempts = facts.attempts
    newest = max(attempts, default=None)
    first = None if newest is None else attempts[segments(attempts, Point(newest, sys.maxsize))[0].attempt]
    if first is None or from_nothing(first):
        return LastGood(-1, -1, "", "missing", f"{why}. Resume is possible from step 0 only.")
    if not first.from_step:
        return LastGood(first.number, -1, "", "missing", f"{why}. What attempt {first.number} began from is not known.")
    point = Point(first.number, first.from_step)
    if any(covered(attempts, window, point, facts.accepted_attempts) for window in facts.in_doubt):
        said = f"{why}, and what attempt {first.number} began from may be damaged: where it came from is not known."
        return LastGood(first.number, -1, "", "missing", said)
    path = first.parent.path if first.parent else first.began_from
    which = f"step {step_text(first.from_step)}" + ("" if path else ", whose path is not known here")
    said = f"{why}. Attempt {first.number} began from {which}; whether that is good was not checked in this run."
    return LastGood(first.number, first.from_step, path, "unverified", said)


def _why_last_good(best: Checkpoint) -> str:
    if best.step == 0 and best.trust == "trusted":
        return "No later checkpoint can be used; step 0 is before anything was computed. " + best.reason
    if best.trust == "trusted":
        return best.reason
    newest = f"Step {step_text(best.step)} is the newest save outside every window."
    return f"No checkpoint after step 0 is trusted. {newest} {best.reason}"


def _newest_first(attempts: Mapping[int, Attempt]) -> Callable[[Checkpoint], tuple[bool, int, int]]:
    """Return the order of checkpoints: those on the newest attempt's lineage last, then by attempt and step."""
    newest = max(attempts, default=0)
    chain = segments(attempts, Point(newest, sys.maxsize)) if attempts else ()
    ends = {segment.attempt: segment.end for segment in chain}
    return lambda c: (c.step <= ends.get(c.attempt, -1), c.attempt, c.step)
