"""Read events into the plain objects of :mod:`lastgood.state`. Pure: no torch, no files, no clock.

The same events in any order, and any number of copies of them, give the same objects: copies share CloudEvents source
and id, and of copies that differ (two ranks wrote one fact at two times) the smallest line is kept.

``progress`` is a sample of what the journal says exactly elsewhere. It moves an attempt's last step and the passes of
the checks that run at every step, and nothing else: it is not counted, not digested, and incidents never read it.
An alert is no sign of life: the one that says that a run is silent must not make it look alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lastgood.event_digest import DigestOf, digest_of
from lastgood.events import CHECKS, Event
from lastgood.state import (
    Attempt,
    Checkpoint,
    CheckRound,
    FailedSave,
    Finding,
    LastGood,
    Parent,
    Place,
    Suspect,
    Verdict,
)

LIFE: frozenset[str] = frozenset(
    {
        "run.started",
        "run.ended",
        "check",
        "finding",
        "verdict",
        "checkpoint.started",
        "checkpoint.saved",
        "checkpoint.failed",
        "checkpoint.loaded",
        "progress",
        "cadence",
    }
)
"""Types that only a living attempt writes. Notes, alerts and actions may be about one that is long over."""

SAID: frozenset[str] = frozenset({"alert", "note", "action"})
"""Types that say something about a run and are not of it: they make no dead run look alive."""

CHECK_ORDER: Mapping[str, int] = {check: i for i, check in enumerate(CHECKS)}


@dataclass(frozen=True, slots=True)
class Journal:
    """The distinct events of one run by type, each list in canonical order."""

    of: Mapping[str, list[Event]] = field(default_factory=dict)
    count: int = 0
    digest: str = ""
    first_at: str = ""
    last_at: str = ""

    def all(self, *types: str) -> list[Event]:
        """Return the events of some types in canonical order."""
        if len(types) == 1:
            return list(self.of.get(types[0], ()))
        return sorted((e for kind in types for e in self.of.get(kind, ())), key=_place_in_time)


def read(run: str, events: Iterable[Event], digest: DigestOf = digest_of) -> Journal:
    """Drop copies and events of other runs, and put the rest in canonical order. ``digest``: what digests them."""
    unique: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.run != run:
            continue
        known = unique.setdefault(event.key, event)
        if known is not event and known != event and event.to_line() < known.to_line():
            unique[event.key] = event
    ordered = sorted(unique.values(), key=_place_in_time)
    of: dict[str, list[Event]] = {}
    for event in ordered:
        of.setdefault(event.type, []).append(event)
    exact = [event for event in ordered if event.type != "progress"]
    times = [event.time for event in ordered if event.type not in SAID] or [""]
    return Journal(of, len(exact), digest(exact), times[0], times[-1])


def _place_in_time(event: Event) -> tuple[str, str, str]:
    return (event.time, event.source, event.id)


# --- attempts --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Life:
    """What an attempt's events say about how far it got."""

    first_at: str
    last_at: str
    step: int = 0
    step_at: str = ""


def attempts(journal: Journal, topologies: Mapping[int, tuple[Place, ...]]) -> dict[int, Attempt]:
    """Return the attempts by number. One whose start is not journaled (yet) has an unknown past."""
    lives = _lives(journal)
    started = {event.attempt: event for event in reversed(journal.all("run.started"))}
    ended = {event.attempt: event for event in journal.all("run.ended")}
    loaded = {event.attempt: str(event.data.get("path", "")) for event in journal.all("checkpoint.loaded")}
    return {
        number: _changed(
            replace(
                _attempt(number, started.get(number), ended.get(number), lives[number], topologies.get(number, ())),
                began_from=loaded.get(number, ""),
            ),
            [event for event in journal.all("cadence") if event.attempt == number],
        )
        for number in sorted(lives)
    }


def _changed(attempt: Attempt, changes: Iterable[Event]) -> Attempt:
    """Return the attempt with the cadences in force, since which step each of them is, and what runs no more."""
    cadence, since, not_run = dict(attempt.cadence), dict(attempt.cadence_since), dict(attempt.not_run)
    for event in sorted(changes, key=lambda e: (e.step or 0, e.time)):
        for check, every in event.data.get("cadence", {}).items():
            if cadence.get(check) != every:
                cadence[check], since[check] = every, event.step or 0
        not_run |= event.data.get("not_run", {})
    return replace(attempt, cadence=cadence, cadence_since=since, not_run=not_run) if since else attempt


def _lives(journal: Journal) -> dict[int, _Life]:
    lives: dict[int, _Life] = {}
    for event in journal.all(*LIFE):
        life = lives.setdefault(event.attempt, _Life(event.time, event.time, -1, event.time))
        life.last_at = event.time
        step = _last_step(event)
        if step > life.step:
            life.step, life.step_at = step, event.time
    return lives


def _last_step(event: Event) -> int:
    """Return how far the attempt had got at an event. A loaded checkpoint is where it came from, not where it is."""
    if event.type in ("run.started", "checkpoint.loaded"):
        return int(event.data.get("from_step", -1))
    if event.type == "run.ended":
        return int(event.data.get("last_step", -1))
    if event.step is not None:
        return event.step
    return int(event.data.get("step", -1))


def _attempt(number: int, start: Event | None, end: Event | None, life: _Life, places: tuple[Place, ...]) -> Attempt:
    data: Mapping[str, Any] = start.data if start else {}
    from_step = int(data.get("from_step", 0))
    return Attempt(
        number=number,
        world_size=int(data.get("world_size", len(places))),
        places=places,
        parent=parent_of(data.get("parent")),
        parent_known=bool(data.get("parent_known", False)),
        parent_verified=bool(data.get("parent_verified", False)),
        from_step=from_step,
        started_at=start.time if start else life.first_at,
        last_event_at=life.last_at,
        last_step=max(life.step, from_step),
        last_step_at=life.step_at,
        ended_at=end.time if end else None,
        end_reason=end.data.get("reason") if end else None,
        exit_code=end.data.get("exit_code") if end else None,
        cadence=dict(data.get("cadence", {})),
        not_run=dict(data.get("not_run", {})),
        config=dict(data.get("config", {})),
        versions=dict(data.get("versions", {})),
    )


def parent_of(data: Mapping[str, Any] | None) -> Parent | None:
    """Read ``ParentData``."""
    return Parent(int(data["attempt"]), int(data["step"]), str(data["path"])) if data else None


# --- checks, findings, verdicts --------------------------------------------------------------------------------------


def rounds(journal: Journal) -> tuple[CheckRound, ...]:
    """Return the rounds of the collective checks by (attempt, step, check, time)."""
    found = [_round(event) for event in journal.all("check")]
    return tuple(sorted(found, key=lambda r: (r.attempt, r.step, CHECK_ORDER.get(r.check, 9), r.at, r.phase)))


def _round(event: Event) -> CheckRound:
    data = event.data
    state_step = int(data["state_step"])
    return CheckRound(
        check=data["check"],
        phase=data.get("phase", ""),
        attempt=event.attempt,
        step=state_step if event.step is None else event.step,
        state_step=state_step,
        at=event.time,
        result=data["result"],
        reason=data.get("reason", ""),
        exceptions={int(x["rank"]): (x["result"], x.get("reason", "")) for x in data.get("exceptions", ())},
    )


def findings(journal: Journal) -> tuple[Finding, ...]:
    """Return the findings by (attempt, step, check), without their windows."""
    return tuple(sorted((_finding(event) for event in journal.all("finding")), key=finding_order))


def finding_order(finding: Finding) -> tuple[int, int, int, str, str, tuple[int, ...]]:
    """Sort findings canonically."""
    check = CHECK_ORDER.get(finding.check, 9)
    return (finding.attempt, finding.step, check, finding.at, finding.id, finding.ranks)


def _finding(event: Event) -> Finding:
    data = event.data
    return Finding(
        id=event.id,
        check=data["check"],
        attempt=event.attempt,
        step=int(data["step"]),
        state_step=int(data["state_step"]),
        phase=data.get("phase", ""),
        contained=bool(data.get("contained", False)),
        ranks=tuple(data.get("ranks", ())),
        places=tuple(place_of(d) for d in data.get("devices", ())),
        tensor=data.get("tensor"),
        bucket=data.get("bucket"),
        observed=str(data.get("observed", "")),
        expected=str(data.get("expected", "")),
        evidence=tuple(data.get("evidence", ())),
        at=event.time,
    )


def place_of(data: Mapping[str, Any]) -> Place:
    """Read ``DeviceData``."""
    return Place(int(data["rank"]), str(data["node"]), str(data["gpu_uuid"]), int(data["slot"]))


def verdicts(journal: Journal) -> tuple[Verdict, ...]:
    """Return the verdicts by (attempt, step, time)."""
    found = [_verdict(event) for event in journal.all("verdict")]
    return tuple(sorted(found, key=lambda v: (v.attempt, v.step, v.at, v.id)))


def _verdict(event: Event) -> Verdict:
    data = event.data
    resume = data.get("resume")
    return Verdict(
        id=event.id,
        attempt=event.attempt,
        step=event.step or 0,
        at=event.time,
        findings=tuple(data["findings"]),
        status=data["status"],
        scope=data["scope"],
        suspects=tuple(
            Suspect(int(s["rank"]), s["node"], s["gpu_uuid"], int(s["slot"]), s["role"]) for s in data["suspects"]
        ),
        nature=data["nature"],
        confidence=data["confidence"],
        reasons_for=tuple(data.get("for", ())),
        reasons_against=tuple(data.get("against", ())),
        resume=LastGood(**{k: resume[k] for k in ("attempt", "step", "path", "trust", "reason")}) if resume else None,
        action=data["action"],
    )


# --- saves -----------------------------------------------------------------------------------------------------------


def checkpoints(journal: Journal, known: Mapping[int, Attempt]) -> tuple[Checkpoint, ...]:
    """Return the saved checkpoints by (attempt, step, path), with their parents and no trust yet."""
    saved: dict[tuple[int, int, str], Event] = {}
    for event in journal.all("checkpoint.saved"):
        saved[_identity(event)] = event
    out: list[Checkpoint] = []
    parent: Parent | None = None
    before: list[tuple[int, int, str]] = []
    for key in sorted(saved):
        attempt, step, _ = key
        if before and before[-1][0] != attempt:
            before, parent = [], None
        if before and before[-1][1] < step:
            parent = Parent(*before[-1])
        out.append(_checkpoint(key, saved[key], parent, known[saved[key].attempt]))
        before.append(key)
    return tuple(out)


def _identity(event: Event) -> tuple[int, int, str]:
    data = event.data
    return (event.attempt, int(data.get("step", event.step or 0)), str(data.get("path", "")))


def _checkpoint(key: tuple[int, int, str], event: Event, before: Parent | None, attempt: Attempt) -> Checkpoint:
    """Build one checkpoint; ``before`` is the newest save of the same attempt at an earlier step."""
    data = event.data
    parent = before or attempt.parent
    if parent is None and attempt.parent_known and key[1] == attempt.from_step == 0:
        parent = Parent(*key)
    return Checkpoint(
        attempt=key[0],
        step=key[1],
        path=key[2],
        saved_at=event.time,
        parent=parent,
        parent_known=before is not None or attempt.parent_known,
        bytes=data.get("bytes"),
        seconds=data.get("seconds"),
        blocked_seconds=data.get("blocked_seconds"),
        fingerprint=str(data.get("fingerprint", "")),
        checks=dict(data.get("checks", {})),
    )


def failed_saves(journal: Journal) -> tuple[FailedSave, ...]:
    """Return the saves that did not happen by (attempt, step, path)."""
    found = [
        FailedSave(*_identity(event), event.time, str(event.data.get("reason", "")), dict(event.data.get("checks", {})))
        for event in journal.all("checkpoint.failed")
    ]
    return tuple(sorted(found, key=lambda s: (s.attempt, s.step, s.path, s.at)))


def damaged(journal: Journal, saved: Iterable[Checkpoint]) -> dict[tuple[int, int, str], str]:
    """Return the checkpoints whose bytes a load found to be others than those that were saved.

    The newest load of a path counts, and only for what was saved there before.
    """
    found: dict[tuple[int, int, str], str] = {}
    words = {str(e.data.get("path", "")): e for e in journal.all("checkpoint.loaded")}
    for checkpoint in saved:
        word = words.get(checkpoint.path)
        if word is not None and word.time >= checkpoint.saved_at and _says_damaged(word, checkpoint):
            found[checkpoint.attempt, checkpoint.step, checkpoint.path] = (
                "Its bytes differ from the stored fingerprint."
            )
    return found


def _says_damaged(word: Event, checkpoint: Checkpoint) -> bool:
    if word.data.get("step", checkpoint.step) != checkpoint.step:
        return False
    failed = any(result == "failed" for result in word.data.get("checks", {}).values())
    return failed or word.data.get("reason") in ("fingerprint", "integrity")


# --- what people said ------------------------------------------------------------------------------------------------


def accepted(journal: Journal) -> dict[tuple[int, int, str], str]:
    """Return what people vouched for: (attempt, step, path) -> name.

    The attempt is the one that saved it; where nobody knows which one did, the one that was resumed from it.
    """
    out: dict[tuple[int, int, str], str] = {}
    for event in journal.all("action"):
        if event.data.get("action") in ("accept_checkpoint", "accept"):
            where = (int(event.data.get("attempt", -1)), int(event.data.get("step", -1)))
            out[*where, str(event.data.get("path", ""))] = person(event)
    return out


def person(event: Event) -> str:
    """Return who wrote a note or did an action."""
    return str(event.data.get("by") or event.data.get("author") or "unknown")
