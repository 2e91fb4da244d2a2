"""Lay an incident out in time: what happened at which step, and when it was known.

Two clocks run through an incident. A wrong value is made at some step inside the window and is known only at the
check that found it, so every entry carries both: ``happened`` (steps, with ``at`` as the time they ran) and
``known_at``. Console, report and exports draw and list the same entries, so they cannot disagree.

The x axis of every picture is UTC. Only some steps have a journaled time (saves, rounds, findings, starts); those in
between are interpolated by :class:`StepClock`. Per-step checks are not journaled step by step: they are one ``ran``
span over the attempt, broken by their failures. A fault that was injected on purpose is ground truth, not knowledge,
and never an entry: :func:`injected` tells it separately. Pure: no files, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from lastgood import people, wording
from lastgood.events import CHECKS, CheckName, Event
from lastgood.peers import Peers, peers
from lastgood.state import (
    NOT_IN_METRICS,
    Attempt,
    CheckRound,
    FailedSave,
    Finding,
    Incident,
    Point,
    RunState,
    Window,
)
from lastgood.step_clock import StepClock
from lastgood.timeline_alerts import alert_entries, excursion_entries
from lastgood.timeline_density import condensed, narrowed
from lastgood.timeline_entry import LANES, SAID_KINDS, TimelineEntry, Tone, entry_of, first_text, timed_entry

__all__ = [
    "LANES",
    "Peers",
    "SAID_KINDS",
    "StepClock",
    "TimelineEntry",
    "attempts_of",
    "condensed",
    "entries",
    "entries_of",
    "injected",
    "lanes",
    "others",
    "peers",
    "story",
]

_PHASES: Final = {"loss": " in the loss", "local": " before the reduce", "reduced": " after the reduce"}
STATUS_TONES: Final[Mapping[str, Tone]] = {
    "suspicious": "candidate",
    "confirmed": "confirmed",
    "attributed": "accused",
    "undecided": "candidate",
    "cleared": "cleared",
}

_ENDED_BY: Final = {"integrity": "policy stop", NOT_IN_METRICS: NOT_IN_METRICS}
"""Who ended an attempt, by the reason; else the training script did."""

_ACTIONS: Final = {
    "acknowledge": "Incident acknowledged",
    "cause": "Cause",
    "close": "Incident closed",
    "reopen": "Incident reopened",
    "accept": "Checkpoint accepted",
}


def entries(state: RunState, incident: Incident) -> tuple[TimelineEntry, ...]:
    """Return the incident's timeline, ordered by when things were known, then by when they happened."""
    shown = attempts_of(state, incident)
    clock = StepClock(state)
    found = narrowed(entries_of(state, incident, shown, clock), incident, clock)
    found += _steps(found, shown, incident, clock)
    return tuple(sorted(found, key=lambda e: (e.known_at, e.at, LANES.index(e.lane), e.text)))


def entries_of(state: RunState, incident: Incident, shown: Sequence[Attempt], clock: StepClock) -> list[TimelineEntry]:
    """Return everything of some attempts and what the incident brought, one entry each, in no order, without steps."""
    return [
        *_attempts(shown, incident),
        *_checks(state, shown),
        *_findings(incident, clock),
        *_saves(state, shown),
        *alert_entries(state, incident, clock),
        *excursion_entries(state, incident, clock),
        *_annotations(state, incident, shown),
        *_restarts(state, shown),
        *_outcome(incident),
    ]


def attempts_of(state: RunState, incident: Incident) -> tuple[Attempt, ...]:
    """Return the attempts that the incident is about: from the window's start to the recovery, at most six."""
    first = min(incident.attempt, incident.window.start_attempt if incident.window else incident.attempt)
    last = incident.recovered_by
    if last is None:
        last = incident.attempt if incident.status == "cleared" else max((a.number for a in state.attempts), default=0)
    about = [a for a in state.attempts if first <= a.number <= last]
    return tuple(about if len(about) <= 6 else [*about[:3], *about[-3:]])


def story(timeline: Iterable[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    """Return the entries for the table "What happened, and when we knew"."""
    return tuple(e for e in timeline if e.in_story)


def lanes(timeline: Iterable[TimelineEntry]) -> tuple[str, ...]:
    """Return the lanes that have something to show, top to bottom. Lanes of checks stay: silence is drawn."""
    used = {e.lane for e in timeline} | set(CHECKS)
    return tuple(lane for lane in LANES if lane in used)


# attempts and steps


def _attempts(shown: Sequence[Attempt], incident: Incident) -> Iterator[TimelineEntry]:
    for attempt in shown:
        end = attempt.ended_at or attempt.last_event_at
        label = f"attempt {attempt.number} · {_attempt_phrase(attempt)}"
        yield entry_of("attempts", "attempt", "neutral", "", attempt.number, attempt.from_step, attempt.started_at,
                       label, until=end)  # fmt: skip
        if attempt.number > incident.attempt:
            yield entry_of("attempts", "started", "neutral", "•", attempt.number, attempt.from_step, attempt.started_at,
                         started_text(attempt), timed=True)  # fmt: skip
        if attempt.ended_at:
            who = _ENDED_BY.get(attempt.end_reason or "", "training script")
            yield entry_of("attempts", "ended", "neutral", "▪", attempt.number, attempt.last_step, attempt.ended_at,
                         ended_text(attempt), who=who, timed=True)  # fmt: skip


def _attempt_phrase(attempt: Attempt) -> str:
    if attempt.number > 1 and attempt.parent is not None:
        return f"from step {wording.step_text(attempt.from_step)}"
    if attempt.ended_at is None:
        return f"at step {wording.step_text(attempt.last_step)}"
    verb = {"completed": "completed", NOT_IN_METRICS: "ended"}.get(attempt.end_reason or "", "stopped")
    return f"{verb} at step {wording.step_text(attempt.last_step)}"


def started_text(attempt: Attempt) -> str:
    """Say from where an attempt started."""
    if attempt.parent is not None:
        return f"Attempt {attempt.number} resumed from step {wording.step_text(attempt.parent.step)}"
    known = "" if attempt.parent_known or attempt.end_reason == NOT_IN_METRICS else ", from an unknown checkpoint"
    return f"Attempt {attempt.number} started at step {wording.step_text(attempt.from_step)}{known}"


def ended_text(attempt: Attempt) -> str:
    """Say how an attempt ended."""
    how = {"completed": "completed", "integrity": "stopped", "signal": "was ended by a signal"}
    how[NOT_IN_METRICS] = f"ended (why is {NOT_IN_METRICS})"
    verb = how.get(attempt.end_reason or "", "ended with an error")
    return f"Attempt {attempt.number} {verb} at step {wording.step_text(attempt.last_step)}"


def _steps(
    found: Sequence[TimelineEntry], shown: Sequence[Attempt], incident: Incident, clock: StepClock
) -> list[TimelineEntry]:
    low, high = min((e.at for e in found), default=""), max((e.until for e in found), default="")
    out = []
    for attempt in shown:
        for step in _step_ticks(found, attempt, incident.window):
            at = clock.at(Point(attempt.number, step))
            if at is not None and low <= at <= high:
                out.append(entry_of("steps", "step", "neutral", "", attempt.number, step, at, wording.step_text(step)))
    return out


def _step_ticks(found: Sequence[TimelineEntry], attempt: Attempt, window: Window | None) -> list[int]:
    """Choose the steps worth a label: start, saves, window, end; at most ten per attempt."""
    saves = [e.step for e in found if e.lane == "saves" and e.attempt == attempt.number and e.step is not None]
    stride = max(1, -(-len(saves) // 6))
    ticks = {attempt.from_step, attempt.last_step, *sorted(set(saves))[::stride]}
    if window is not None:
        edges = [(window.end_attempt, window.end)]
        edges += [] if window.contained else [(window.start_attempt, window.start)]
        ticks |= {step for number, step in edges if number == attempt.number}
    return sorted(ticks)


# checks


_Checked = TypeVar("_Checked", CheckRound, Finding)


def _checks(state: RunState, shown: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    all_rounds, all_failed = _by_attempt_and_check(state.rounds), _by_attempt_and_check(state.findings)
    for attempt in shown:
        for check in CHECKS:
            rounds, failed = all_rounds.get((attempt.number, check), []), all_failed.get((attempt.number, check), [])
            if _is_off(attempt, check) and not rounds and not failed:
                yield _off(attempt, check)
                continue
            if attempt.cadence.get(check) == 1 and not rounds:
                yield from _every_step(attempt, check, failed)
            yield from (_round(r) for r in rounds)
            known = {r.step for r in rounds if r.result == "failed"}
            yield from (_failure(f) for f in failed if f.step not in known)


def _by_attempt_and_check(found: Iterable[_Checked]) -> dict[tuple[int, str], list[_Checked]]:
    out: dict[tuple[int, str], list[_Checked]] = {}
    for one in found:
        out.setdefault((one.attempt, one.check), []).append(one)
    return out


def _is_off(attempt: Attempt, check: CheckName) -> bool:
    return check in attempt.not_run or attempt.cadence.get(check) is None


def _off(attempt: Attempt, check: CheckName) -> TimelineEntry:
    reason = attempt.not_run.get(check) or "switched off"
    return entry_of(check, "not_run", "missing", "–", attempt.number, None, attempt.started_at, f"not run: {reason}",
                  until=attempt.ended_at or attempt.last_event_at)  # fmt: skip


def _every_step(attempt: Attempt, check: CheckName, failed: Sequence[Finding]) -> Iterator[TimelineEntry]:
    """Yield the spans in which a per-step check ran: the attempt, broken at each failure."""
    start = attempt.started_at
    for end in [*sorted(f.at for f in failed), attempt.last_step_at]:
        if end > start:
            yield entry_of(check, "ran", "trusted", "✓", attempt.number, None, start, "ran at every step", until=end)
        start = max(start, end)


def _round(done: CheckRound) -> TimelineEntry:
    tones: dict[str, tuple[Tone, str]] = {"passed": ("trusted", "✓"), "failed": ("accused", "◆")}
    tone, symbol = tones.get(done.result, ("missing", "–"))
    text = f"{done.check} {wording.RESULT_WORDS[done.result]} at step {wording.step_text(done.state_step)}"
    odd = [rank for rank in done.exceptions if done.result_of(rank) == "not_run"]
    if odd and done.result != "not_run":
        text += f"; not run on {wording.ranks_text(odd)}"
    text += f": {done.reason}" if done.reason else ""
    return entry_of(done.check, done.result, tone, symbol, done.attempt, done.state_step, done.at, text)


def _failure(finding: Finding) -> TimelineEntry:
    return entry_of(finding.check, "failed", "accused", "◆", finding.attempt, finding.step, finding.at,
                  finding_text(finding))  # fmt: skip


# findings and verdicts


def finding_text(finding: Finding) -> str:
    """Say what a finding found: ``Replay failed: rank 3, layers.2.mlp.up``."""
    who = wording.seen_on(finding)
    bucket = "" if finding.bucket is None else f", bucket {finding.bucket}"
    where = f", {finding.tensor}" if finding.tensor else bucket
    phase = _PHASES.get(finding.phase, "")
    return f"{finding.check.replace('_', ' ').capitalize()} failed{phase}: {who}{where}"


def _findings(incident: Incident, clock: StepClock) -> Iterator[TimelineEntry]:
    for finding in incident.findings:
        window = finding.window
        began = clock.at(Point(window.start_attempt, window.start)) if window and not window.contained else None
        happened = f"step {wording.step_text(finding.step)}"
        if window and not window.contained:
            happened = f"steps {wording.window_text(window)}" if window.end - window.start != 1 else happened
        tone: Tone = "accused" if finding.ranks and incident.status == "attributed" else STATUS_TONES[incident.status]
        yield replace(
            entry_of(
                "findings", "finding", tone, "◆", finding.attempt, finding.step, finding.at, finding_text(finding)
            ),
            happened=happened,
            at=min(began or finding.at, finding.at),
            ranks=finding.ranks,
        )
    for verdict in incident.verdicts:
        names = wording.joined([wording.rank_text(s) for s in verdict.suspects], "or") if verdict.suspects else ""
        text = f"Verdict {verdict.status}" + (f": {names}" if names else "")
        yield entry_of("findings", "verdict", STATUS_TONES[verdict.status], wording.STATUS_SYMBOLS[verdict.status],
                     verdict.attempt, verdict.step, verdict.at, text)  # fmt: skip


# saves


def _saves(state: RunState, shown: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    numbers = {a.number for a in shown}
    for save in state.checkpoints:
        if save.attempt in numbers:
            text = f"{save.path}: {save.trust}" + (f", {save.reason}" if save.reason else "")
            yield entry_of("saves", "saved", save.trust, wording.TRUST_SYMBOLS[save.trust], save.attempt, save.step,
                         save.saved_at, text)  # fmt: skip
    for failed in state.failed_saves:
        if failed.attempt in numbers:
            yield _failed_save(failed)


def _failed_save(failed: FailedSave) -> TimelineEntry:
    kind, tone, symbol, text = (
        ("refused", "tainted", "✗", f"Save refused by a check: {failed.path}")
        if failed.reason == "integrity"
        else ("failed_save", "missing", "–", f"Save failed: {failed.path}: {failed.reason}")
    )
    return entry_of("saves", kind, cast(Tone, tone), symbol, failed.attempt, failed.step, failed.at, text)


# what surrounds it


def _annotations(state: RunState, incident: Incident, shown: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    """Yield what people said and did; the close that holds stands with the findings, as the end of the story."""
    names = {incident.id, *incident.aliases}
    numbers = {attempt.number for attempt in shown}
    seen = {(e.source, e.id) for e in people.decisions(incident.actions, "close") if e.time == incident.closed_at}
    for event in (*incident.actions, *(e for e in state.annotations if e.type in ("note", "action"))):
        mine = event in incident.actions or event.data.get("incident") in names
        accepts = event.data.get("action") in ("accept", "accept_checkpoint") and event.data.get("attempt") in numbers
        if (mine or accepts) and event.key not in seen:
            seen.add(event.key)
            yield _annotation(event)


def _annotation(event: Event) -> TimelineEntry:
    verb = first_text(event.data, "action").removesuffix("_checkpoint") if event.type == "action" else ""
    what = _ACTIONS.get(verb, verb) or event.type.capitalize()
    parts = (what, first_text(event.data, "path"), people.text_of(event))
    who = people.person(event)
    return timed_entry("notes", event.type, "note", "▫", event, ": ".join(filter(None, parts)), who, event.time)


def _restarts(state: RunState, shown: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    """Yield the restarts: as journaled, else as the gap between two attempts shows them."""
    told = {event.attempt: event for event in state.restarts}
    numbers = {attempt.number for attempt in shown}
    for before, after in pairwise(state.attempts):
        if after.number in numbers and after.number == before.number + 1:
            event = told.pop(after.number, None)
            gone = {p.node for p in before.places} - {p.node for p in after.places} if after.places else set()
            excluded = [str(n) for n in event.data.get("excluded") or []] if event else sorted(gone)
            began = before.ended_at or before.last_event_at
            yield _restart(after.number, began, after.started_at, excluded, "launcher" if event else "lastgood")
    for number, event in told.items():
        if number in numbers:
            seconds = timedelta(seconds=_seconds(event.data.get("seconds")))
            began = (wording.moment(event.time) - seconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            yield _restart(number, began, event.time, [str(n) for n in event.data.get("excluded") or []], "launcher")


def _restart(attempt: int, began: str, ended: str, excluded: Sequence[str], who: str) -> TimelineEntry:
    seconds = max(0.0, (wording.moment(ended) - wording.moment(began)).total_seconds())
    without = f", without {wording.joined(excluded)}" if excluded else ""
    text = f"Restarted in {wording.duration_text(seconds)}{without}"
    entry = entry_of("restarts", "restart", "neutral", "", attempt, None, began, text, until=ended, who=who, timed=True)
    return replace(entry, known_at=max(began, ended))


def _seconds(value: Any) -> float:
    """Read a duration; one that is no number ("NaN" is journaled as a word) counts as none."""
    return float(value) if isinstance(value, int | float) else 0.0


def others(state: RunState, incident: Incident) -> Iterator[TimelineEntry]:
    """Yield a mark for each other incident of the run, where it opened; for pictures of more than one incident."""
    for other in state.incidents:
        if other.id != incident.id:
            who = ": " + wording.ranks_text(s.rank for s in other.suspects) if other.suspects else ""
            yield entry_of("findings", "other", STATUS_TONES[other.status], "◆", other.attempt, other.step,
                           other.opened_at, f"incident {other.id}: {other.status}{who}")  # fmt: skip


def _outcome(incident: Incident) -> Iterator[TimelineEntry]:
    if incident.recovered_at:
        by = f" by attempt {incident.recovered_by}" if incident.recovered_by is not None else ""
        yield entry_of("findings", "recovered", "trusted", "✓", incident.recovered_by, None, incident.recovered_at,
                     f"Recovered{by}: every device passed the {incident.check} check", timed=True)  # fmt: skip
    if incident.closed_at:
        who = incident.closed_by or "lastgood"
        word = people.newest_word(incident.actions, "close", incident.closed_at)
        why = "cleared" if who == "cleared" else word.text if word else ""
        text = f"Closed: {why}" if why else "Closed"
        yield entry_of("findings", "closed", "cleared", "○✓", None, None, incident.closed_at, text,
                     who="lastgood" if who == "cleared" else who, timed=True)  # fmt: skip


def injected(state: RunState, incident: Incident) -> tuple[str, ...]:
    """Tell the faults that were injected on purpose in the incident's attempts: ground truth, never evidence.

    A permanent fault is journaled at every step; here it is one sentence.
    """
    numbers = {a.number for a in attempts_of(state, incident)}
    faults: dict[tuple[Any, ...], list[Event]] = {}
    for event in state.injections:
        if event.attempt in numbers:
            key = (event.attempt, event.data.get("site"), event.data.get("fault"), event.data.get("rank", event.rank))
            faults.setdefault(key, []).append(event)
    return tuple(injection_text(events) for events in faults.values())


def injection_text(events: Sequence[Event]) -> str:
    """Say what the fault injector did, in one sentence: the events of one fault of one rank in one attempt."""
    data = events[0].data
    steps = [int(step) for event in events if (step := event.data.get("step", event.step)) is not None]
    rank = data.get("rank", events[0].rank)
    fault = ", ".join(str(data[key]) for key in ("site", "fault") if data.get(key)) or "unnamed"
    what = "; ".join(str(data[key]) for key in ("tensor", "detail") if data.get(key) and len(events) == 1)
    when = f" at step {wording.step_text(steps[0])}" if steps else ""
    if len(set(steps)) > 1:
        when = f" in steps {wording.step_text(min(steps))} to {wording.step_text(max(steps))} ({len(events)} times)"
    where = (f" on rank {rank}" if rank is not None else "") + f" of attempt {events[0].attempt}"
    return f"fault injected on purpose: {fault}{where}{when}" + (f" ({what})" if what else "")
