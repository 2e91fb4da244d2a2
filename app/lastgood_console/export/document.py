"""Write an incident as one canonical JSON document, and read it back.

Another team, a ticket system and our own HTML report get the same document; the report is rendered from it alone, so
whatever it shows is in the file. The format is published in ``incident.schema.json`` (:func:`schema`). The same
incident gives the same bytes: keys are sorted, nothing depends on the clock, and ``written.at`` is the time of the
last event it was written from. ``dumps(loads(text)) == text`` for every document of ours.

Times are RFC 3339 in UTC, steps are integers without separators, fingerprints are hexadecimal, NaN and infinity are
the strings "NaN", "Infinity" and "-Infinity". ``words`` repeats the verdict in the words of :mod:`lastgood.wording`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NoReturn, cast

from lastgood import __version__, timeline, wording
from lastgood.errors import LastgoodError
from lastgood.events import CHECKS, CheckName, plain
from lastgood.schema import Test, compile_schema
from lastgood.state import NOT_IN_METRICS, Attempt, Checkpoint, Finding, Incident, LastGood, RunState
from lastgood_console.characters import TURNING

FORMAT: Final = "lastgood.incident"
VERSION: Final = 1
MOST_CHECKPOINTS: Final = 60
"""With more, trusted ones are thinned out; the others are never left out."""

Document = dict[str, Any]


_ESCAPED: Final = {ord(c): f"\\u{ord(c):04x}" for c in (*TURNING, "\u2028", "\u2029")}
"""Characters that would make a line of the file read as another one, as JSON spells them."""


class DocumentError(LastgoodError, ValueError):
    """The text is not an incident document that this version reads."""


def schema() -> dict[str, Any]:
    """Return the published JSON Schema (draft 2020-12) of the document."""
    return cast(dict[str, Any], json.loads(files(__package__).joinpath("incident.schema.json").read_text("utf-8")))


def dumps(document: Mapping[str, Any]) -> str:
    """Return the document as text: sorted keys, two spaces, UTF-8 letters as they are, a line end."""
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.translate(_ESCAPED) + "\n"


def loads(text: str) -> Document:
    """Read a document and hold it to the schema.

    Raises :class:`DocumentError` when it is something else, of a newer version, or breaks the schema.
    """
    try:
        document = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as problem:
        raise DocumentError(f"not JSON: {str(problem)[:200]}; export the incident again") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DocumentError(f"not an incident document: its format must be {FORMAT!r}")
    if document.get("version") != VERSION:
        raise DocumentError(
            f"incident document version {document.get('version')!r}: this lastgood reads version {VERSION}, "
            "use the one that wrote it"
        )
    if broken := _validator()(document):
        raise DocumentError(f"not a whole incident document: {broken.lstrip('.')}; export the incident again")
    return document


@cache
def _validator() -> Test:
    return compile_schema(schema(), {})


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is too large for a number")
    return number


def to_document(state: RunState, incident: Incident) -> Document:
    """Return everything that is known about the incident as plain data."""
    entries = timeline.entries(state, incident)
    saves, omitted = _checkpoints(state, incident)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "run": state.run,
        "incident": _incident(incident),
        "words": _words(incident),
        "suspects": [as_data(suspect) for suspect in incident.suspects],
        "window": as_data(incident.window) if incident.window else None,
        "resume": _resume(incident),
        "covered": _covered(state, incident),
        "refused": [_refused(e) for e in entries if e.kind == "refused"],
        "cost": as_data(incident.cost),
        "findings": [_finding(finding) for finding in incident.findings],
        "evidence": [*_evidence(state, incident)],
        "peers": [as_data(peers) for peers in timeline.peers(incident)],
        "lanes": timeline.lanes(entries),
        "timeline": [entry_data(entry) for entry in entries],
        "injected": timeline.injected(state, incident),
        "attempts": [_attempt(attempt) for attempt in timeline.attempts_of(state, incident)],
        "checkpoints": saves,
        "checkpoints_omitted": omitted,
        "written": _written(state),
    }
    if incident.origin == "metrics":
        document["metrics"] = {"told_at": state.told_at, "checkpoints": dict(state.trust_counts)}
    return cast(Document, plain(document))


def shown_timeline(document: Mapping[str, Any]) -> list[Document]:
    """Return a document's timeline for a picture or a table: alerts that say the same stand together."""
    return [entry_data(entry) for entry in timeline_of(document)]


def timeline_of(document: Mapping[str, Any]) -> tuple[timeline.TimelineEntry, ...]:
    """Return :func:`shown_timeline` as entries."""
    names = {f.name for f in fields(timeline.TimelineEntry)}
    rows = ({name: value for name, value in row.items() if name in names} for row in document["timeline"])
    return timeline.condensed(timeline.TimelineEntry(**row) for row in rows)


def entry_data(entry: timeline.TimelineEntry) -> Document:
    """Return an entry as a document holds it."""
    return {**as_data(entry), "in_story": entry.in_story}


def as_data(value: Any) -> Any:
    """Return state objects as dictionaries and lists, all the way down, whatever mapping they hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_data(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    return [as_data(item) for item in value] if isinstance(value, list | tuple) else value


def _incident(incident: Incident) -> dict[str, Any]:
    names = (
        "id", "aliases", "state", "status", "scope", "nature", "confidence", "check", "attempt", "step", "opened_at",
        "recovered_at", "recovered_by", "closed_at", "closed_by",
    )  # fmt: skip
    said = {name: as_data(getattr(incident, name)) for name in ("acknowledged", "cause")}
    return {name: getattr(incident, name) for name in names} | said


def _words(incident: Incident) -> dict[str, Any]:
    gpus = bool(incident.suspects) and all(wording.has_gpu(s) for s in incident.suspects)
    number, detail, how_far = wording.cost_text(incident.cost, gpus, recovered=incident.recovered_by is not None)
    return {
        "status": wording.status_word(incident),
        "scope": wording.scope_phrase(incident),
        "confidence": f"confidence {incident.confidence}",
        "nature": wording.nature_phrase(incident),
        "state": wording.state_phrase(incident),
        "headline": wording.headline(incident),
        "window": wording.window_text(incident.window),
        "resume": wording.resume_number(incident),
        "without": wording.without_phrase(incident),
        "cost": [number, detail, how_far],
        "for": incident.reasons_for,
        "against": incident.reasons_against,
        "unknown": incident.unknown,
        "do": [{"words": words, "command": command} for words, command in wording.advice(incident)],
    }


def _resume(incident: Incident) -> dict[str, Any] | None:
    if incident.resume is None or not incident.resume.exists:
        return None
    command = None if wording.skipped(incident) else wording.resume_command(incident.resume)
    return {**as_data(incident.resume), "command": command, "exclude": wording.excluded_nodes(incident)}


def _covered(state: RunState, incident: Incident) -> list[dict[str, Any]]:
    known = {(c.attempt, c.step, c.path): c for c in state.checkpoints}
    out = []
    for attempt, step, path in incident.covered:
        save = known.get((attempt, step, path))
        trust, reason = (save.trust, save.reason) if save else ("missing", "")
        out.append({"attempt": attempt, "step": step, "path": path, "trust": trust, "reason": reason})
    return out


def _refused(entry: timeline.TimelineEntry) -> dict[str, Any]:
    return {"attempt": entry.attempt, "step": entry.step, "text": entry.text}


def _finding(finding: Finding) -> Document:
    return cast(Document, as_data(finding))


def _attempt(attempt: Attempt) -> dict[str, Any]:
    values: Document = as_data(attempt)
    places = values.pop("places")
    del values["cadence_since"], values["began_from"]  # for whoever watches a run; the resume panel has the path
    return values | {"nodes": sorted({place["node"] for place in places})}


# the evidence table: what failed, and what the other checks said


def _evidence(state: RunState, incident: Incident) -> Iterator[dict[str, Any]]:
    for finding in sorted(incident.findings, key=_exclusive):
        yield _failed(finding, incident)
    failed = {finding.check for finding in incident.findings}
    attempt = next((a for a in state.attempts if a.number == incident.attempt), None)
    for check in CHECKS:
        if check not in failed and attempt is not None:
            yield from _context(state, incident, attempt, check)


def _exclusive(finding: Finding) -> float:
    """Order evidence: what few ranks showed comes before what many share and what points at no rank."""
    return len(finding.ranks) or math.inf


def _failed(finding: Finding, incident: Incident) -> dict[str, Any]:
    where = finding.tensor or (f"bucket {finding.bucket}" if finding.bucket is not None else "")
    texts = [str(item["text"]) for item in finding.evidence if item.get("text") and item.get("kind") != "peers"]
    happened = wording.window_text(finding.window) if finding.window else f"step {wording.step_text(finding.step)}"
    return {
        "check": finding.check,
        "result": "failed",
        "happened": f"steps {happened}" if happened.startswith("(") else happened,
        "known_at": finding.at,
        "subject": wording.seen_on(finding),
        "where": where,
        "observed": finding.observed,
        "expected": finding.expected,
        "detail": NOT_IN_METRICS if incident.origin == "metrics" else " ".join(texts),
    }


def _context(state: RunState, incident: Incident, attempt: Attempt, check: CheckName) -> Iterator[dict[str, Any]]:
    """Say what a check that found nothing here has to say: its last round before, or why it did not run."""
    row = {"check": check, "observed": "", "expected": "", "where": "", "subject": f"all {attempt.world_size} ranks"}
    rounds = [
        r for r in state.rounds if r.check == check and r.attempt == attempt.number and r.at <= incident.opened_at
    ]
    if check in attempt.not_run:
        reason = attempt.not_run[check]
        yield row | {"result": "not_run", "happened": "", "known_at": None, "subject": "", "detail": reason}
    elif rounds:
        last = rounds[-1]
        happened = f"step {wording.step_text(last.state_step)}"
        yield row | {"result": last.result, "happened": happened, "known_at": last.at, "detail": last.reason}
    else:
        yield from _at_saves(state, incident, attempt, row)


def _at_saves(
    state: RunState, incident: Incident, attempt: Attempt, row: dict[str, Any]
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Take the word of the newest save: per-step checks are journaled with the saves only."""
    saves = [c for c in state.checkpoints if c.attempt == attempt.number and c.saved_at <= incident.opened_at]
    if saves and row["check"] in saves[-1].checks:
        step = wording.step_text(saves[-1].step)
        result = saves[-1].checks[row["check"]]
        yield row | {"result": result, "happened": f"steps up to {step}", "known_at": saves[-1].saved_at,
                     "detail": f"as stored with the save of step {step}"}  # fmt: skip


# checkpoints


def _checkpoints(state: RunState, incident: Incident) -> tuple[list[dict[str, Any]], int]:
    """Return the table's rows, newest first, and how many trusted ones were left out."""
    numbers = {attempt.number for attempt in timeline.attempts_of(state, incident)}
    about = [c for c in state.checkpoints if c.attempt in numbers or _is_named(c, state, incident)]
    kept = [c for c in about if c.trust != "trusted" or _is_named(c, state, incident)]
    rest = [c for c in about if c.trust == "trusted" and not _is_named(c, state, incident)]
    stride = max(1, -(-len(rest) // max(1, MOST_CHECKPOINTS - len(kept))))
    kept += rest[::-1][::stride]
    kept.sort(key=lambda c: (c.attempt, c.step, c.path), reverse=True)
    return [_checkpoint(c, state) for c in kept], len(about) - len(kept)


def _is_named(save: Checkpoint, state: RunState, incident: Incident) -> bool:
    return _is(save, state.last_good) or _is(save, incident.resume)


def _is(save: Checkpoint, good: LastGood | None) -> bool:
    return good is not None and (save.attempt, save.step, save.path) == (good.attempt, good.step, good.path)


def _checkpoint(save: Checkpoint, state: RunState) -> dict[str, Any]:
    return {**as_data(save), "last_good": _is(save, state.last_good)}


def _written(state: RunState) -> dict[str, Any]:
    return {
        "at": max((state.last_event_at, *(event.time for event in state.annotations))),
        "by": f"lastgood {__version__}",
        "events": state.event_count,
        "events_digest": state.events_digest,
        "unreadable": [as_data(u) for u in state.unreadable],
    }
