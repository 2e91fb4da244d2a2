"""Describe what happened in a run: CloudEvents 1.0 objects, one JSON line each.

Everything that lastgood knows about a run beside its metrics is one of these events. They must serve four readers:
the rank that writes them, the ledger that folds them, a console on another machine that gets them by POST, and
another team that gets them in an export. So an event is plain data, and identical facts have identical bytes.

A *collective* fact (a finding or a verdict that every rank derived from the same bytes) carries an id computed from
the fact, so readers drop the copies that other ranks wrote. Every other event has ``<writer>-<n>`` as its id.

Type names carry the prefix ``lastgood.``; the data of each is a ``TypedDict`` below and a JSON Schema in
``lastgood/schemas/<type>.json``. Not covered: progress of metrics (Prometheus), logs, traces.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NoReturn, Required, TypedDict
from urllib.parse import quote

from lastgood import schema
from lastgood.errors import JournalError, SchemaVersionError

SCHEMA_VERSION: Final = 1
"""Goes into ``dataschema``; a reader refuses a higher one and says which version it needs."""

SLUG_LENGTH: Final = 64
"""Longest run id, so that a line of progress keeps room for its data."""

CHECKS: Final = ("finite", "conservation", "replica", "replay", "at_rest")
CheckName = Literal["finite", "conservation", "replica", "replay", "at_rest"]
Result = Literal["passed", "failed", "not_run"]
Status = Literal["suspicious", "confirmed", "attributed", "undecided", "cleared"]
Scope = Literal["gpu", "node", "group", "job"]
Nature = Literal["transient", "persistent", "unknown"]
Confidence = Literal["low", "high", "exact"]
AlertStatus = Literal["firing", "resolved", "lost", "no_data", "error", "truncated"]

TYPES: Final = (
    "run.started", "run.ended", "check", "finding", "verdict",
    "checkpoint.started", "checkpoint.saved", "checkpoint.failed", "checkpoint.loaded",
    "progress", "cadence", "restart", "device.excursion", "alert", "note", "action", "injection",
)  # fmt: skip


class ParentData(TypedDict):
    """The checkpoint that an attempt or a save descends from."""

    attempt: int
    step: int
    path: str


class RunStartedData(TypedDict):
    """``run.started``: written once per attempt, when its starting step is known."""

    world_size: int
    topology: str  # file relative to the run directory, see lastgood.topology
    config: dict[str, Any]  # the settings of lastgood.config.Config that are plain data
    cadence: dict[str, int | None]  # check -> steps between two runs; None = off or cannot run
    not_run: dict[str, str]  # check -> why it cannot run in this attempt ("switched off", "one rank", ...)
    environment: dict[str, list[int]]  # environment key -> ranks that have it; none: all that have no other
    versions: dict[str, str]
    seed: int | None
    parent: ParentData | None  # None: started at step 0, or the parent is unknown
    parent_known: bool  # False only after resume(None, step=n) or resume() of a file without a record
    parent_verified: bool  # the loaded bytes matched the stored fingerprint (True at step 0)
    from_step: int


class RunEndedData(TypedDict):
    """``run.ended``: the attempt stopped and could say so."""

    reason: str  # completed | integrity | exception | signal
    exit_code: int
    last_step: int


class RankException(TypedDict):
    """A rank whose own result differs from the others'. ``reason`` is empty when the result says it all."""

    rank: int
    result: Result
    reason: str


class CheckData(TypedDict):
    """``check``: one collective round.

    Ranks that are not listed in ``exceptions`` passed, except in a round with ``result`` "not_run", which no rank ran.
    """

    check: CheckName
    phase: str  # replica: loop|state|save|close|immediate; replay: first|audit|probe|immediate|close;
    #             at_rest: loop|part n of m
    state_step: int  # step of the state that was read (replica: s-1 in the loop, c at a save); replay: the step audited
    result: Result
    reason: str
    exceptions: list[RankException]


class DeviceData(TypedDict):
    """A rank's place. ``gpu_uuid`` is ``cpu-<slot>`` without a GPU."""

    rank: int
    node: str
    gpu_uuid: str
    slot: int


class FindingData(TypedDict):
    """``finding``: a check that failed."""

    check: CheckName
    step: int  # when it was found
    state_step: int
    phase: str  # finite: loss|local|reduced; conservation: reduce|flag; replica and replay: as in CheckData
    contained: bool  # the guard kept the step out of the weights on all ranks
    ranks: list[int]  # minority or candidates; empty when no rank stands out
    devices: list[DeviceData]  # of `ranks`; of more than 64 the first
    tensor: str | None
    bucket: int | None
    observed: str  # hexadecimal fingerprint, number or words
    expected: str
    evidence: list[dict[str, Any]]  # each has "kind"; "text" is a sentence for people; the rest is for machines


class SuspectData(DeviceData):
    """A named device."""

    role: Literal["accused", "candidate"]


class ResumeData(TypedDict):
    """The last good checkpoint at the time of the verdict. ``step`` is -1 when there is none."""

    attempt: int
    step: int
    path: str
    trust: str
    reason: str


_Reasons = TypedDict("_Reasons", {"for": list[str]})  # "for" is a keyword of Python, so no class can spell it


class VerdictData(_Reasons):
    """``verdict``: what findings together say.

    ``for`` and ``against`` are sentences. ``action`` is what the policy did: stop, skip or record.
    """

    findings: list[str]  # finding ids
    status: Status
    scope: Scope
    suspects: list[SuspectData]
    nature: Nature
    confidence: Confidence
    against: list[str]
    resume: ResumeData | None
    action: Literal["stop", "skip", "record"]


class CheckpointData(TypedDict, total=False):
    """``checkpoint.started|saved|failed|loaded``. ``failed`` with reason "integrity" is a refused save."""

    attempt: int
    step: int
    path: str
    parent: ParentData | None
    bytes: int
    seconds: float
    blocked_seconds: float
    fingerprint: str  # 32 hexadecimal digits: two lanes of 64 bits
    checks: dict[str, Result]
    reason: str
    missing_ranks: list[int]  # ranks that did not enter the save in time


class ProgressData(TypedDict, total=False):
    """``progress``: every 30 s, at most 400 bytes, in ``<writer>.progress.jsonl``. Incidents never read it."""

    step: int
    step_seconds: float
    check_share: float  # share of step time that checks take at the cadences in force, without saves
    seconds: dict[str, float]
    passed: dict[str, int]  # check -> last state step passed
    grad_norm: list[float]  # p10, p50, p90 of the ranks' local gradient norms
    extremes: list[tuple[int, float]]


class CadenceData(TypedDict, total=False):
    """``cadence``: the cadences in force from here on, where a budget has changed them; by rank 0.

    Also where a check cannot run from here on: then ``not_run`` says why, and share and budget may be missing.
    """

    cadence: Required[dict[str, int | None]]  # as in RunStartedData
    state_every: int | None
    share: float  # share of step time that checks take at these cadences, as measured so far
    budget: float
    not_run: dict[str, str]  # as in RunStartedData, for the checks that cannot run from here on


class InjectionData(TypedDict, total=False):
    """``injection``: ground truth, written by the fault injector at the moment it corrupts a real tensor.

    ``chance``: probability per execution of an intermittent fault. ``replay``: it happened while a batch was replayed,
    so training never saw it. ``values`` have other bits than before; the largest differences are "Infinity" where a
    value is not finite. ``projected_difference``: what a projection shows of a change in a gradient bucket.
    """

    site: str
    fault: str
    step: int
    rank: int
    tensor: str
    detail: str
    permanent: bool
    chance: float
    replay: bool
    values: int
    largest_difference: float | str
    largest_relative_difference: float | str
    projected_difference: float | str


class ExcursionData(TypedDict, total=False):
    """``device.excursion``: a sensor left its range, or came back (``state``). Context for people, never evidence.

    Both lines of one excursion have its ``excursion`` (unique within the writer). ``value`` is the worst one so far,
    ``limit`` what it is held to. ``kept_back``: excursions of this kind that were not told since the last line.
    """

    excursion: str
    state: Literal["started", "ended"]
    nature: Literal["thermal_margin", "power_deviates", "uncorrected_ecc"]
    sensor: Literal["margin", "power", "ecc"]
    value: float
    limit: float
    unit: Literal["celsius", "watts", "errors"]
    started: str
    ended: str | None
    rank: int
    node: str
    gpu_uuid: str
    slot: int
    kept_back: int
    text: str


class RestartData(TypedDict, total=False):
    """``restart``: why a new attempt began, and what the old one cost. ``excluded``: nodes that it leaves out."""

    reason: str
    seconds: float
    lost_steps: int
    excluded: list[str]


class NoteData(TypedDict, total=False):
    """``note``: a person's words about a run or an incident."""

    text: str
    author: str
    incident: str


class ActionData(TypedDict, total=False):
    """``action``: something a person decided, by name (``accept`` a checkpoint, ``close`` an incident, ...)."""

    action: str
    author: str
    incident: str
    attempt: int
    step: int
    path: str
    reason: str


class AlertData(TypedDict, total=False):
    """``alert``: what an alerting system said, as the console got it. ``Event.time`` is when the console knew.

    ``status``: "lost" is an alert that went away without a measurement that says it is over; "no_data" and "error"
    are rules that could not be evaluated; "truncated" says how many alerts of a group were not sent.
    """

    name: str
    status: AlertStatus
    severity: str  # critical | warning | info, or what a foreign rule says
    summary: str
    description: str
    labels: dict[str, str]
    starts_at: str
    ends_at: str  # only of one that is over
    fingerprint: str
    source: Literal["alertmanager", "grafana"]
    generator_url: str
    runbook_url: str
    incident: str
    check: str
    rank: int
    node: str
    gpu_uuid: str
    resume_step: int
    value: str
    rule: str  # no_data and error: the rule that could not be evaluated
    reason: str
    truncated: int


@dataclass(frozen=True, slots=True)
class Event:
    """One CloudEvents 1.0 object. Two events with equal ``key`` are the same fact."""

    id: str
    source: str
    type: str  # without the prefix "lastgood."
    time: str  # RFC 3339, UTC, microseconds: 2026-11-29T02:58:02.123456Z
    run: str
    attempt: int
    data: Mapping[str, Any] = field(hash=False)
    rank: int | None = None
    node: str | None = None
    step: int | None = None
    schema: int = SCHEMA_VERSION

    @property
    def key(self) -> tuple[str, str]:
        """Identify the fact: CloudEvents source and id."""
        return (self.source, self.id)

    def to_dict(self) -> dict[str, Any]:
        """Return the CloudEvents JSON object (attributes without a value are left out).

        A line of progress has 400 bytes, so it goes without the two attributes that CloudEvents makes optional.
        """
        out: dict[str, Any] = {
            "specversion": "1.0",
            "id": self.id,
            "source": self.source,
            "type": f"lastgood.{self.type}",
            "time": self.time,
        }
        if self.type != "progress":
            out["datacontenttype"] = "application/json"
            out["dataschema"] = f"urn:lastgood:{self.type}:{self.schema}"
        out |= {"run": self.run, "attempt": self.attempt}
        out |= {k: v for k, v in (("rank", self.rank), ("node", self.node), ("step", self.step)) if v is not None}
        out["data"] = dict(self.data)
        return out

    def to_line(self) -> str:
        """Return one JSON line without the line end. NaN and infinity are not JSON: write them as strings."""
        return _ENCODER.encode(self.to_dict())


def source_of(run: str, attempt: int, rank: int | None = None) -> str:
    """Return the CloudEvents source: of the job (collective facts) or of one rank. Percent-encoded."""
    base = f"/lastgood/{quote(run, safe='')}/{attempt}"
    return base if rank is None else f"{base}/rank/{rank}"


def fact_id(kind: str, check: str, step: int, phase: str) -> str:
    """Return the id of a collective fact, equal on every rank that derived it. ``kind``: finding or verdict."""
    digest = hashlib.sha256(f"{kind}\0{check}\0{step}\0{phase}".encode()).hexdigest()
    return f"{kind[0]}-{digest[:16]}"


def utc(timestamp: float) -> str:
    """Return unix seconds as an event's time: RFC 3339, UTC, microseconds."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def timestamp_of(time: str) -> float:
    """Return an event's time as unix seconds."""
    return datetime.fromisoformat(time).timestamp()


def slug(text: str) -> str:
    """Return ``text`` as a run id: ``[a-z0-9._-]+``, starting with a letter, digit or underscore, at most 64 long.

    A longer text keeps its beginning and ends with a hash, so that two long names stay two names. Raises
    ``ValueError`` when nothing is left.
    """
    words = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.")
    if not words:
        raise ValueError(f"{text!r} cannot name a run: use letters, digits, '.', '_' or '-'")
    if len(words) > SLUG_LENGTH:
        words = f"{words[: SLUG_LENGTH - 9]}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"
    return words


def is_slug(text: str) -> bool:
    """Tell whether ``text`` is a run id as it stands."""
    return re.fullmatch(rf"[a-z0-9_][a-z0-9._-]{{0,{SLUG_LENGTH - 1}}}", text, re.ASCII) is not None


def plain(value: Any, depth: int = 32) -> Any:
    """Return ``value`` as plain JSON data, whatever it was.

    NaN and infinity are not JSON and become the strings "NaN", "Infinity" and "-Infinity". What JSON has no word for
    becomes its ``str``: a journal that is a little less exact is better than an exception in a training loop.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int(value) if value.bit_length() <= 1024 else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _spell(value)
    if depth and isinstance(value, Mapping):
        return {str(plain(str(k))): plain(v, depth - 1) for k, v in value.items()}
    if depth and isinstance(value, (list, tuple)):
        return [plain(v, depth - 1) for v in value]
    if depth and isinstance(value, (set, frozenset)):
        return sorted((plain(v, depth - 1) for v in value), key=str)
    try:
        return plain(str(value))
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"


def _spell(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def event_from_line(line: str | bytes) -> Event:
    """Return the event in one JSON line. Raises as :func:`event_from_dict`."""
    try:
        text = line if isinstance(line, str) else line.decode()
        # Bytes that are UTF-8 hold no half characters but those that are spelled out.
        return _event(_DECODER.decode(text), is_unicode=text is not line and "\\u" not in text)
    except (ValueError, RecursionError) as problem:
        raise JournalError(f"not a line of JSON: {str(problem)[:200]}") from None


def event_from_dict(obj: Any) -> Event:
    """Return the event in a CloudEvents JSON object.

    Raises :class:`SchemaVersionError` when a newer lastgood wrote it, :class:`JournalError` when it is not an event of
    lastgood or its data breaks the schema of its type. Unknown attributes and unknown fields of the data are kept out
    of the way: a newer lastgood may add them without a new schema version.
    """
    return _event(obj, is_unicode=False)


def _event(obj: Any, is_unicode: bool) -> Event:
    """Return the event in an object; ``is_unicode``: all its text is known to be."""
    if not isinstance(obj, dict) or not str(obj.get("type", "")).startswith("lastgood."):
        raise JournalError("not an event of lastgood")
    kind = str(obj["type"]).removeprefix("lastgood.")
    version = _schema_version(obj, kind)
    problem = schema.problem("event", obj) or (
        schema.problem(kind, obj["data"]) if kind in TYPES else f"type: lastgood.{kind} is not known"
    )
    if problem:
        raise JournalError(problem)
    try:
        timestamp_of(obj["time"])
        if not is_unicode:
            json.dumps(obj, ensure_ascii=False).encode()
    except (ValueError, OverflowError):
        raise JournalError("time: no such date, or text that is not Unicode") from None
    extensions = {k: obj.get(k) for k in ("rank", "node", "step")}
    return Event(
        obj["id"], obj["source"], kind, obj["time"], obj["run"], obj["attempt"], obj["data"],
        **extensions, schema=version,
    )  # fmt: skip


def _schema_version(obj: Mapping[str, Any], kind: str) -> int:
    """Return the schema version; only progress may go without one (see :meth:`Event.to_dict`)."""
    if kind == "progress" and "dataschema" not in obj:
        return SCHEMA_VERSION
    if obj.get("dataschema") == f"urn:lastgood:{kind}:{SCHEMA_VERSION}" and kind in TYPES:
        return SCHEMA_VERSION
    found = re.fullmatch(r"urn:lastgood:[a-z.]+:([0-9]{1,9})", str(obj.get("dataschema")))
    if found is None:
        raise JournalError(f"dataschema: {obj.get('dataschema')!r} is not urn:lastgood:{kind}:<version>")
    version = int(found[1])
    if version > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"written by a newer lastgood: needs one that reads schema version {version}, this one reads up to "
            f"{SCHEMA_VERSION}; install the newer lastgood here"
        )
    return version


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large")
    return value


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
"""Made once: a ledger reads 30,000 lines at its start."""
