"""Fold the events of a run into its state. Pure: no torch, no files, no clock.

The fold has one direction: events -> attempts, rounds, findings -> windows -> incidents -> trust -> last good -> how
the incidents went on. Everything is built from sets and sorted sequences, so the order in which journals become
visible, and how often a line is read, change nothing. No step of it is quadratic in rounds, saves or ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lastgood import incidents, lineage, people, records, recovery, reruns, sentences, trust, windows
from lastgood.checkup import check_statuses
from lastgood.event_digest import DigestOf, digest_of
from lastgood.events import Event
from lastgood.incidents import Draft
from lastgood.records import Journal
from lastgood.recovery import Outcome
from lastgood.state import (
    Attempt,
    Checkpoint,
    CheckRound,
    Device,
    FailedSave,
    Finding,
    Incident,
    LastGood,
    Place,
    RunState,
    Unreadable,
    Verdict,
)
from lastgood.trust import Facts, Key
from lastgood.windows import Rounds


def derive(
    run: str,
    events: Iterable[Event],
    *,
    topologies: Mapping[int, tuple[Place, ...]] | None = None,
    unreadable: Iterable[Unreadable] = (),
    present: Mapping[str, str] | None = None,
    digest: DigestOf = digest_of,
) -> RunState:
    """Return the state of ``run`` after ``events``, in whatever order and however often they are given.

    ``topologies``: attempt -> places. ``present``: checkpoint path -> "ok", "missing" or "unreadable" as found on
    disk (None: not looked at, taken as present). ``digest``: what digests the events, one that goes on for speed.
    """
    journal = records.read(run, events, digest)
    history = _history(journal, topologies or {})
    drafts = _drafts(run, history)
    facts = _facts(history, drafts, present or {})
    checkpoints = trust.assess(history.checkpoints, facts)
    good = trust.last_good(checkpoints, facts)
    return RunState(
        run=run,
        attempts=tuple(history.attempts.values()),
        rounds=history.rounds,
        checks=check_statuses(journal, history.attempts, history.rounds_by, history.findings, history.checkpoints),
        findings=tuple(sorted((f for d in drafts for f in d.findings), key=records.finding_order)),
        verdicts=history.verdicts,
        incidents=_incidents(run, history, drafts, facts, checkpoints, good),
        checkpoints=checkpoints,
        failed_saves=history.failed_saves,
        injections=tuple(journal.all("injection")),
        restarts=tuple(journal.all("restart")),
        annotations=tuple(journal.all("alert", "note", "action", "device.excursion")),
        last_good=good,
        first_event_at=journal.first_at,
        last_event_at=journal.last_at,
        event_count=journal.count,
        events_digest=journal.digest,
        unreadable=tuple(sorted(set(unreadable), key=lambda u: (u.file, u.line, u.reason))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the journal says, before anything is concluded from it but the windows."""

    journal: Journal
    attempts: dict[int, Attempt]
    rounds: tuple[CheckRound, ...]
    rounds_by: Rounds
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    checkpoints: tuple[Checkpoint, ...]
    failed_saves: tuple[FailedSave, ...]
    accepted: Mapping[Key, str]
    accepted_attempts: frozenset[int]


def _history(journal: Journal, topologies: Mapping[int, tuple[Place, ...]]) -> History:
    attempts = records.attempts(journal, topologies)
    rounds = records.rounds(journal)
    by = Rounds.index(rounds)
    checkpoints = records.checkpoints(journal, attempts)
    words = records.accepted(journal)
    return History(
        journal=journal,
        attempts=attempts,
        rounds=rounds,
        rounds_by=by,
        findings=tuple(replace(f, window=windows.window_of(f, attempts, by)) for f in records.findings(journal)),
        verdicts=records.verdicts(journal),
        checkpoints=checkpoints,
        failed_saves=records.failed_saves(journal),
        accepted={k: words[k] for k in map(_key, checkpoints) if k in words},
        accepted_attempts=frozenset(n for n, a in attempts.items() if _vouched(a, words)),
    )


def _key(checkpoint: Checkpoint) -> Key:
    return (checkpoint.attempt, checkpoint.step, checkpoint.path)


def _vouched(attempt: Attempt, words: Mapping[Key, str]) -> bool:
    """Tell whether a person accepted what an attempt was resumed from. An unknown parent is named by its child."""
    if (parent := attempt.parent) is not None:
        return (parent.attempt, parent.step, parent.path) in words
    return not attempt.parent_known and any(key[:2] == (attempt.number, attempt.from_step) for key in words)


# --- incidents and what they cover -----------------------------------------------------------------------------------


def _drafts(run: str, history: History) -> list[Draft]:
    """Return the incidents, oldest first, with the notes and actions about them.

    Findings are grouped by the windows they were found with: a re-run that narrows one must not take an incident apart.
    """
    verdicts = incidents.Verdicts(history.verdicts)
    saves = reruns.twins(history.checkpoints)
    about: dict[str, list[Event]] = {}
    for event in history.journal.all("note", "action"):
        about.setdefault(str(event.data.get("incident", "")), []).append(event)
    drafts = []
    for found in incidents.group(history.findings, verdicts, history.attempts):
        narrowed = tuple(reruns.narrowed(finding, history.attempts, saves) for finding in found)
        d = incidents.draft(run, narrowed, verdicts)
        events = [e for name in (d.id, *d.aliases) for e in about.get(name, ())]
        drafts.append(replace(d, actions=tuple(sorted(events, key=lambda e: (e.time, e.source, e.id)))))
    return drafts


def _covered_by(history: History, drafts: Iterable[Draft]) -> dict[Key, tuple[str, ...]]:
    """Return which checkpoints the windows cover: :func:`trust.covered` of all of them, in one pass a window."""
    attempts = history.attempts
    roots = lineage.unknown_roots(attempts, history.accepted_attempts)
    found: dict[Key, list[str]] = {}
    for d in drafts:
        starts = {(w.start_attempt, w.start) for w in recovery.in_doubt(d)}
        covered = {
            _key(c)
            for attempt, start in starts
            for ends in [lineage.reaches(attempts, attempt)]
            for c in history.checkpoints
            if _reaches_past(c, attempt, start, ends, roots)
        }
        for key in covered:
            found.setdefault(key, []).append(d.id)
    return {key: tuple(ids) for key, ids in found.items()}


def _reaches_past(
    c: Checkpoint, attempt: int, start: int, ends: Mapping[int, int], roots: Mapping[int, int | None]
) -> bool:
    last = c.step if c.attempt == attempt else ends.get(c.attempt)
    if last is not None:
        return last > start
    root = roots[c.attempt]
    return root is not None and attempt < root


def _facts(history: History, drafts: Sequence[Draft], present: Mapping[str, str]) -> Facts:
    accused = incidents.accusations(drafts)
    return Facts(
        attempts=history.attempts,
        rounds=history.rounds_by,
        covered_by=_covered_by(history, drafts),
        windows={d.id: d.window for d in drafts if d.window is not None},
        in_doubt=tuple(window for d in drafts for window in recovery.in_doubt(d)),
        closed=frozenset(d.id for d in drafts if recovery.closing(d)[1] is not None),
        accepted=history.accepted,
        accepted_attempts=history.accepted_attempts,
        damaged=records.damaged(history.journal, history.checkpoints),
        accused_again=frozenset(device for device, times in accused.items() if len(times) > 1),
        present=present,
    )


# --- how the incidents went on ---------------------------------------------------------------------------------------


def _incidents(
    run: str,
    history: History,
    drafts: Sequence[Draft],
    facts: Facts,
    checkpoints: Sequence[Checkpoint],
    good: LastGood,
) -> tuple[Incident, ...]:
    """Return the finished incidents, newest first. ``good``: the last good checkpoint as of today."""
    proof = recovery.Proof(history.attempts, history.rounds_by, _saves(history), history.accepted_attempts)
    accused = incidents.accusations(drafts)
    known = {_key(c): c for c in checkpoints}
    covered: dict[str, list[Key]] = {}
    for c in checkpoints:
        for name in c.covered_by:
            covered.setdefault(name, []).append(_key(c))
    trained = max((a.last_event_at for a in history.attempts.values()), default=history.journal.last_at)
    finished = []
    for d in drafts:
        keys = tuple(covered.get(d.id, ()))
        resume = _resume(d, frozenset(keys), history, facts)
        save = known.get((resume.attempt, resume.step, resume.path)) if resume is not None else None
        at = save.saved_at if save is not None else None
        outcome = recovery.outcome_of(d, resume, proof, resume_saved_at=at, now=trained)
        now = _resume_now(resume, save, outcome, good)
        finished.append(_incident(run, d, now, outcome, keys, accused, history.attempts))
    return tuple(reversed(finished))


def _incident(
    run: str,
    d: Draft,
    resume: LastGood | None,
    outcome: Outcome,
    covered: tuple[Key, ...],
    accused: Mapping[Device, set[tuple[int, int]]],
    attempts: Mapping[int, Attempt],
) -> Incident:
    first = d.findings[0]
    return Incident(
        id=d.id,
        aliases=d.aliases,
        run=run,
        state=outcome.state,
        status=d.status,
        scope=d.scope,
        suspects=d.suspects,
        nature=d.nature,
        confidence=d.confidence,
        check=first.check,
        attempt=first.attempt,
        step=first.step,
        findings=d.findings,
        verdicts=d.verdicts,
        window=d.window,
        reasons_for=sentences.in_favour(d, accused),
        reasons_against=sentences.against(d),
        unknown=sentences.unknown(d, attempts),
        resume=resume,
        covered=covered,
        opened_at=min(f.at for f in d.findings),
        recovered_at=outcome.recovered_at,
        recovered_by=outcome.recovered_by,
        closed_at=outcome.closed_at,
        closed_by=outcome.closed_by,
        reopened_at=outcome.reopened_at,
        cost=outcome.cost,
        actions=d.actions,
        other_nodes=_other_nodes(d, attempts),
        acknowledged=people.newest_word(d.actions, "acknowledge", outcome.reopened_at or ""),
        cause=people.newest_word(d.actions, "cause"),
    )


def _other_nodes(d: Draft, attempts: Mapping[int, Attempt]) -> bool:
    places, named = attempts[d.findings[-1].attempt].places, {s.node for s in d.suspects}
    return not places or any(place.node not in named for place in places)


def _saves(history: History) -> dict[int, list[Checkpoint | FailedSave]]:
    saves: dict[int, list[Checkpoint | FailedSave]] = {}
    every: list[Checkpoint | FailedSave] = [*history.checkpoints, *history.failed_saves]
    for save in every:
        saves.setdefault(save.attempt, []).append(save)
    return saves


def _resume(d: Draft, covered: frozenset[Key], history: History, facts: Facts) -> LastGood | None:
    """Return the checkpoint to resume from as it was frozen at the verdict; None when nobody has to resume.

    A later finding can cover what was frozen, and a rank can die before it rules: then it is what was known at the
    newest verdict or finding of the incident.
    """
    frozen = next((v.resume for v in reversed((*d.verdicts, *d.deciding)) if v.resume is not None), None)
    if d.status == "cleared" or not (d.windows or d.stopped):
        return frozen
    if frozen is not None and (frozen.attempt, frozen.step, frozen.path) not in covered:
        return frozen
    known_at = max((*(v.at for v in d.deciding), *(f.at for f in d.standing)))
    return _last_good_at(known_at, max(f.attempt for f in d.standing), history, facts)


def _resume_now(frozen: LastGood | None, save: Checkpoint | None, outcome: Outcome, good: LastGood) -> LastGood | None:
    """Return the frozen resume checkpoint as it is today, or the last good one where it cannot be used any more.

    An incident that is over keeps it, for its story; one that waits for a decision must not send anybody to a
    checkpoint that is gone.
    """
    if frozen is None or save is None:
        return frozen
    usable = save.trust in ("trusted", "unverified")
    if not usable and outcome.state in ("open", "reopened"):
        return good
    return frozen if save.trust == frozen.trust else replace(frozen, trust=save.trust, reason=save.reason)


def _last_good_at(time: str, attempt: int, history: History, facts: Facts) -> LastGood:
    """Return what was the last good checkpoint at a time, of the attempts up to one, whatever is on disk today."""
    attempts = {n: a for n, a in history.attempts.items() if n <= attempt}
    rounds = Rounds.index(r for r in history.rounds if r.check == "replay" and r.at <= time and r.attempt <= attempt)
    saves = [c for c in history.checkpoints if c.saved_at <= time and c.attempt <= attempt]
    past = replace(facts, attempts=attempts, rounds=rounds, present={})
    return trust.last_good(trust.assess(saves, past), past)
