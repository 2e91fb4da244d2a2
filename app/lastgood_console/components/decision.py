"""Decide what the first screenful of an incident says: plain values, no HTML.

It answers three questions in this order: who lied (headline), from where to resume, what not to use. Every value is
what the ledger knows *now*: a checkpoint that was trusted at the verdict and has gone missing since is shown as
missing, and the newest checkpoint to use instead is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lastgood.state import NOT_IN_METRICS, Checkpoint, FailedSave, Incident, LastGood, RunState, Trust, Word
from lastgood.wording import (
    NOT_NEEDED,
    NOTHING_KNOWN,
    advice,
    age_text,
    cost_text,
    date_text,
    dated_clock,
    duration_text,
    has_gpu,
    joined,
    moment,
    not_needed,
    resume_command,
    resume_headline,
    skipped,
    state_phrase,
    step_text,
    without_phrase,
)
from lastgood_console.export.origin import avoid_after, none_in_doubt

MOST_REASONS: Final = 3
_WORST_FIRST: Final[tuple[Trust, ...]] = ("tainted", "suspect", "missing", "unreadable", "unverified", "trusted")


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the three decision panels. ``trust`` None: no symbol beside the number."""

    number: str
    trust: Trust | None
    lines: tuple[str, ...]
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of DO. ``done`` says how it went, when it has."""

    words: str
    command: str | None
    done: str = ""


def resume_panel(state: RunState, incident: Incident) -> Panel:
    """Return RESUME FROM."""
    resume = incident.resume
    if incident.status == "cleared" or (resume is None and incident.status == "suspicious"):
        return Panel(NOT_NEEDED, None, (_went_on(state, incident),))
    if skipped(incident):
        newer = _newer(state, resume).strip() if resume is not None else ""
        return Panel(NOT_NEEDED, None, (not_needed(resume), newer) if newer else (not_needed(resume),))
    if resume is None and incident.origin == "metrics":
        return Panel(NOT_IN_METRICS, None, ())
    if resume is None or not resume.exists:
        if resume is None or not resume.reason:
            return Panel("nothing", None, ("No checkpoint lies before the window.", "Start again from step 0."))
        return Panel("nothing", None, (sentence(resume.reason),))
    saved = find(state, resume.attempt, resume.step, resume.path)
    trust = saved.trust if saved else resume.trust
    lines = _replaced(state, incident)
    if not lines or saved is None or saved.reason != resume.reason:
        lines.append(sentence(resume.reason))
    if incident.recovered_by is not None and incident.recovered_by > incident.attempt:
        lines.append(f"Attempt {incident.recovered_by} resumed here and recovered.{_newer(state, resume)}")
    usable = trust in {"trusted", "unverified"}
    if not usable:
        lines.append(_instead(state.last_good))
    return Panel(resume_headline(resume), trust, tuple(lines), resume_command(resume) if usable else None)


def _replaced(state: RunState, incident: Incident) -> list[str]:
    """Say what became of the checkpoint that the verdict named, when it cannot be used any more."""
    frozen = next((v.resume for v in reversed(incident.verdicts) if v.resume is not None), None)
    saved = find(state, frozen.attempt, frozen.step, frozen.path) if frozen is not None else None
    if frozen is None or saved is None or saved.trust in {frozen.trust, "trusted", "unverified"}:
        return []
    was = f"Step {step_text(frozen.step)} was {frozen.trust} at the verdict and is {saved.trust} now"
    return [sentence(f"{was}: {saved.reason}")]


def _went_on(state: RunState, incident: Incident) -> str:
    if incident.window is not None and incident.window.contained:
        return f"Step {step_text(incident.window.end)} was skipped on all ranks and training went on."
    return "Training was not stopped."


def _newer(state: RunState, resume: LastGood) -> str:
    good = state.last_good
    if not good.exists or (good.attempt, good.step) <= (resume.attempt, resume.step):
        return ""
    return f" Last good now: step {step_text(good.step)} of attempt {good.attempt}."


def _instead(good: LastGood) -> str:
    if not good.exists:
        return "No other checkpoint can be used."
    return f"Last good now: step {step_text(good.step)} of attempt {good.attempt}, {good.trust} ({good.path})."


def find(state: RunState, attempt: int, step: int, path: str) -> Checkpoint | None:
    """Return the checkpoint with this identity."""
    return next((c for c in state.checkpoints if (c.attempt, c.step, c.path) == (attempt, step, path)), None)


def avoid_panel(state: RunState, incident: Incident) -> Panel:
    """Return DO NOT USE: the saves that the window covers, and those that a check refused."""
    if incident.origin == "metrics":
        return _avoid_by_metrics(state, incident)
    covered = [c for c in state.checkpoints if incident.id in c.covered_by or c.trust == "tainted"]
    if not covered and incident.covered:
        covered = [c for key in incident.covered if (c := find(state, *key)) is not None]
    refused = refused_saves(state, incident)
    if not covered:
        return Panel("nothing", None, (_none_covered(incident), *_refused_words(refused)))
    worst = min((c.trust for c in covered), key=_WORST_FIRST.index)
    lines = [_saved_by(covered), *_refused_words(refused)]
    later = [a.number for a in state.attempts if incident.resume and a.parent and a.parent.path == incident.resume.path]
    if later:
        lines.append(f"Attempt {later[-1]} does not descend from {'it' if len(covered) == 1 else 'them'}.")
    return Panel(_numbers(covered), worst, tuple(lines))


def _avoid_by_metrics(state: RunState, incident: Incident) -> Panel:
    """Return DO NOT USE where single checkpoints are not known: only the window says what not to use."""
    window = incident.window
    if window is None or window.contained or incident.status == "cleared":
        return Panel("nothing", None, (_none_covered(incident) if window else f"The window is {NOT_IN_METRICS}.",))
    counts = state.trust_counts
    number, lines = avoid_after(window.start_attempt, window.start, counts)
    return Panel(number, "suspect" if counts["suspect"] + counts["tainted"] else None, lines)


def refused_saves(state: RunState, incident: Incident) -> list[FailedSave]:
    """Return the saves of the incident's attempt that a check refused at or after its window."""
    first = incident.window.start if incident.window else incident.step
    return [f for f in state.failed_saves
            if f.reason == "integrity" and f.attempt == incident.attempt and f.step >= first]  # fmt: skip


def _refused_words(refused: list[FailedSave]) -> list[str]:
    if not refused:
        return []
    steps = joined([step_text(f.step) for f in refused])
    return [f"The save at step {steps} was refused by a check; nothing was written."]


def _none_covered(incident: Incident) -> str:
    contained = incident.window is not None and incident.window.contained
    return none_in_doubt(incident.status, incident.state, contained)


def _numbers(covered: list[Checkpoint]) -> str:
    steps = sorted({c.step for c in covered})
    if len(steps) == 1:
        return f"step {step_text(steps[0])}"
    if len(steps) <= 3:
        return f"steps {joined([step_text(s) for s in steps])}"
    return f"{len(steps)} saves"


def _saved_by(covered: list[Checkpoint]) -> str:
    attempts = sorted({c.attempt for c in covered})
    steps = sorted({c.step for c in covered})
    who = f"attempt{'s' if len(attempts) > 1 else ''} {joined([str(a) for a in attempts])}"
    span = f", steps {step_text(steps[0])} to {step_text(steps[-1])}" if len(steps) > 3 else ""
    return f"Saved by {who} inside the window{span}."


def cost_panel(incident: Incident) -> Panel:
    """Return COST SO FAR."""
    gpus = any(has_gpu(s) for s in incident.suspects)
    number, detail, span = cost_text(incident.cost, gpus, recovered=incident.recovered_by is not None)
    return Panel(number, None, (detail, sentence(span)))


def reasons(incident: Incident) -> Mapping[str, tuple[str, ...]]:
    """Return WHY, AGAINST and UNKNOWN: at most three sentences each, never empty; and the CAUSE, once it is named."""
    groups = {"WHY": incident.reasons_for, "AGAINST": incident.reasons_against, "UNKNOWN": incident.unknown}
    said = {word: _at_most(tuple(map(sentence, found))) for word, found in groups.items()}
    return said | ({"CAUSE": _cause(incident.cause)} if incident.cause else {})


def _cause(cause: Word) -> tuple[str, ...]:
    return (sentence(cause.text), f"Said by {cause.by}, {date_text(cause.at)} UTC.")


def _at_most(found: tuple[str, ...]) -> tuple[str, ...]:
    if not found:
        return (sentence(NOTHING_KNOWN),)
    if len(found) <= MOST_REASONS:
        return found
    return (*found[:MOST_REASONS], f"… and {len(found) - MOST_REASONS} more in the evidence.")


def things_to_do(state: RunState, incident: Incident, run_path: Path | None = None) -> tuple[Advice, ...]:
    """Return DO. ``run_path``: the run directory, which a command for a relative checkpoint path needs."""
    resume, out = incident.resume, []
    for words, command in advice(incident):
        loads = command is not None and command == resume_command(resume)  # it stands in the panel already
        out.append(Advice(words, None if loads else command, _followed(state, incident) if loads else ""))
    if resume is not None and resume.path_known and resume.exists and incident.recovered_by is None:
        where = (run_path or Path()) / resume.path
        out.append(Advice("Verify the save", f"lastgood checkpoint verify {shlex.quote(str(where))}"))
    return tuple(out)


def _followed(state: RunState, incident: Incident) -> str:
    """Say which attempt resumed where the incident says to, and how far it is."""
    if incident.resume is None:
        return ""
    later = [a for a in state.attempts if a.number > incident.attempt and a.parent]
    attempt = next((a for a in reversed(later) if a.parent and a.parent.path == incident.resume.path), None)
    if attempt is None:
        return ""
    step = step_text(attempt.last_step)
    if incident.recovered_by == attempt.number:
        return f"attempt {attempt.number} recovered, step {step}"
    return f"attempt {attempt.number} {'running' if attempt.ended_at is None else 'ended'}, step {step}"


def resume_note(incident: Incident) -> str:
    """Say where the resume command belongs."""
    without = without_phrase(incident)
    return f"on every rank, after loading it{', ' + without if without else ''}"


def is_open(incident: Incident) -> bool:
    """Tell whether an incident waits for a decision."""
    return incident.state in {"open", "reopened"}


def state_words(incident: Incident, now: str) -> str:
    """Return how the incident stands at time ``now`` (RFC 3339): ``open 14 min``, ``recovered by attempt 2``.

    What is reopened is as old as its reopening; metrics do not tell when that was.
    """
    if not is_open(incident):
        return state_phrase(incident)
    since = incident.reopened_at if incident.state == "reopened" else incident.opened_at
    return f"{incident.state} {age_text((moment(now) - moment(since)).total_seconds())}" if since else incident.state


def standing(incident: Incident, now: str) -> tuple[str, ...]:
    """Return how the incident stands, how long that took, and since when it is known."""
    end = incident.closed_at if incident.state == "closed" else incident.recovered_at
    took = ""
    seen = f", acknowledged by {incident.acknowledged.by}" if is_open(incident) and incident.acknowledged else ""
    seconds = (moment(end) - moment(incident.opened_at)).total_seconds() if end and not is_open(incident) else 0.0
    if seconds >= 1:
        took = f" after {duration_text(seconds)}"
    return (state_words(incident, now) + took + seen, f"known since {dated_clock(incident.opened_at, now)} UTC")


def sentence(words: str) -> str:
    """Return words as a sentence: a capital at its start, a full stop at its end."""
    words = words.strip()
    if not words:
        return words
    return words[:1].upper() + words[1:] + ("" if words[-1] in ".!?…" else ".")
