"""Say where each check stands in the newest attempt: silence is not health. Pure: no torch, no files, no clock.

Rounds are journaled one by one. The checks of every step are journaled in saves, in an attempt's end and, every 30 s,
in ``progress``; this is the one place that reads progress. A round in which some ranks had no partner is a pass of the
check: that those devices were not audited shows in their own series and in the trust of the checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from lastgood.events import CHECKS, CheckName
from lastgood.records import Journal
from lastgood.state import Attempt, Checkpoint, CheckStatus, Finding
from lastgood.windows import Rounds

PER_STEP = ("finite", "conservation")
LATE_AFTER = 3
"""A check is late when so many intervals have gone by without a pass."""


def check_statuses(
    journal: Journal,
    attempts: Mapping[int, Attempt],
    rounds: Rounds,
    findings: Iterable[Finding],
    checkpoints: Iterable[Checkpoint],
) -> tuple[CheckStatus, ...]:
    """Return the state of every check, in the order of ``events.CHECKS``; ``failures`` counts the whole run."""
    if not attempts:
        return ()
    newest = attempts[max(attempts)]
    failures = Counter(finding.check for finding in findings)
    saves = [c for c in checkpoints if c.attempt == newest.number]
    return tuple(_status(check, newest, journal, rounds, saves, failures[check]) for check in CHECKS)


def _status(
    check: CheckName, attempt: Attempt, journal: Journal, rounds: Rounds, saves: Iterable[Checkpoint], failures: int
) -> CheckStatus:
    passes = [*_round_passes(check, attempt, rounds), *_other_passes(check, attempt, journal, saves)]
    last, at = max(passes, default=(-1, ""))
    interval, reason = _cadence(check, attempt)
    since = max(last, attempt.from_step, attempt.cadence_since.get(check, 0))
    due = since + LATE_AFTER * interval if interval is not None else None
    return CheckStatus(check, not reason, reason, interval, last, at or None, due, failures)


def _cadence(check: CheckName, attempt: Attempt) -> tuple[int | None, str]:
    """Return the steps between two runs, or None and why the check does not run."""
    if check in attempt.not_run:
        return None, attempt.not_run[check]
    interval = attempt.cadence.get(check)
    return (None, "switched off") if interval is None else (interval, "")


def _round_passes(check: CheckName, attempt: Attempt, rounds: Rounds) -> Iterator[tuple[int, str]]:
    return ((r.state_step, r.at) for r in rounds.of.get((check, attempt.number), ()) if r.result == "passed")


def _other_passes(
    check: CheckName, attempt: Attempt, journal: Journal, saves: Iterable[Checkpoint]
) -> Iterator[tuple[int, str]]:
    """Yield the passes that are not journaled as rounds."""
    for event in journal.of.get("progress", ()):
        if event.attempt == attempt.number and check in event.data.get("passed", {}):
            yield int(event.data["passed"][check]), event.time
    if check not in PER_STEP:
        return
    yield from ((c.step, c.saved_at) for c in saves if c.checks.get(check) == "passed")
    if attempt.end_reason == "completed" and attempt.ended_at and _cadence(check, attempt)[0] is not None:
        yield attempt.last_step, attempt.ended_at
