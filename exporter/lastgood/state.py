"""Hold what is known about a run: the result of folding its events, and nothing else.

:func:`lastgood.fold.derive` is the only maker of these objects from a journal; terminal, console, exports, metrics and
alerts are its readers, so they cannot disagree. A console that has lost the run directory makes them out of metrics,
marked as such (``origin``). Times are RFC 3339 strings as journaled (sortable, exact); ages are computed by
whoever shows them. Steps are optimizer steps; a *point* is the state after a step of an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from lastgood.events import CheckName, Confidence, Event, Nature, Result, Scope, Status

Trust = Literal["trusted", "unverified", "suspect", "tainted", "missing", "unreadable"]
IncidentState = Literal["open", "recovered", "closed", "reopened"]
Origin = Literal["journal", "metrics"]
"""Where a state was read: in a run's journal, or in the series of a ledger that had read it."""
NOT_IN_METRICS: Final = "not in metrics"
"""Stands in a state out of metrics where only a journal could say what is there."""


FAKE_PREFIX: Final = "FAKE-GPU-"
"""How the UUID of a device begins that is made up, to show what lastgood does where there is no GPU."""


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """The identity that is accused and remembered, never the rank. ``gpu_uuid`` is ``cpu-<slot>`` without a GPU."""

    node: str
    gpu_uuid: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A rank of an attempt and the device it ran on. ``slot`` is the local rank on its node."""

    rank: int
    node: str
    gpu_uuid: str
    slot: int

    @property
    def device(self) -> Device:
        """Return the identity without the rank."""
        return Device(self.node, self.gpu_uuid)


@dataclass(frozen=True, slots=True, order=True)
class Suspect(Place):
    """A named device."""

    role: Literal["accused", "candidate"] = "candidate"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """The state after ``step`` of ``attempt``."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class Parent:
    """The checkpoint that a state descends from."""

    attempt: int
    step: int
    path: str

    @property
    def point(self) -> Point:
        """Return it as a point."""
        return Point(self.attempt, self.step)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One (re)start of a run."""

    number: int
    world_size: int
    places: tuple[Place, ...]  # by rank; empty when the topology file is missing
    parent: Parent | None
    parent_known: bool
    parent_verified: bool
    from_step: int
    started_at: str
    last_event_at: str
    last_step: int
    last_step_at: str
    ended_at: str | None = None
    end_reason: str | None = None  # completed | integrity | exception | signal
    exit_code: int | None = None
    cadence: Mapping[str, int | None] = field(default_factory=dict, hash=False)
    not_run: Mapping[str, str] = field(default_factory=dict, hash=False)
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    cadence_since: Mapping[str, int] = field(default_factory=dict, hash=False)  # step of the last change of each
    began_from: str = ""  # path of the checkpoint that was loaded at its start; empty where none was, or nobody knows


@dataclass(frozen=True, slots=True)
class CheckRound:
    """One round of a collective check. ``exceptions``: rank -> (result, reason), as in ``CheckData``."""

    check: CheckName
    phase: str
    attempt: int
    step: int
    state_step: int
    at: str
    result: Result
    reason: str
    exceptions: Mapping[int, tuple[Result, str]] = field(default_factory=dict, hash=False)

    def result_of(self, rank: int) -> Result:
        """Return the result of one rank in this round."""
        if rank in self.exceptions:
            return self.exceptions[rank][0]
        return "not_run" if self.result == "not_run" else "passed"


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """Where a check stands in the run's newest attempt. ``last_pass_step`` is -1 when it never passed."""

    check: CheckName
    running: bool
    reason: str  # why it does not run: "switched off", "one rank", ...; empty when it runs
    interval_steps: int | None
    last_pass_step: int
    last_pass_at: str | None
    due_step: int | None  # max(last pass, attempt start) + 3 intervals
    failures: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that failed."""

    id: str
    check: CheckName
    attempt: int
    step: int
    state_step: int
    phase: str
    contained: bool
    ranks: tuple[int, ...]
    places: tuple[Place, ...]
    tensor: str | None
    bucket: int | None
    observed: str
    expected: str
    evidence: tuple[Mapping[str, Any], ...] = field(hash=False)
    at: str = ""
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The onset ``(start, end]``: the steps in which the corruption can have begun.

    ``start`` counts in ``start_attempt``, ``end`` in ``end_attempt``. A contained window covers no checkpoint.
    """

    start_attempt: int
    start: int
    end_attempt: int
    end: int
    contained: bool
    reason: str  # "replay of this device last passed at step 50"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What findings together say, as journaled at the time."""

    id: str
    attempt: int
    step: int
    at: str
    findings: tuple[str, ...]
    status: Status
    scope: Scope
    suspects: tuple[Suspect, ...]
    nature: Nature
    confidence: Confidence
    reasons_for: tuple[str, ...]
    reasons_against: tuple[str, ...]
    resume: LastGood | None
    action: Literal["stop", "skip", "record"]


@dataclass(frozen=True, slots=True)
class LastGood:
    """The checkpoint a person should resume from. ``step`` is -1 and ``path`` empty when there is none.

    ``attempt`` is -1 then where the run can begin again at step 0, else the attempt whose beginning nobody knows.
    """

    attempt: int
    step: int
    path: str
    trust: Trust
    reason: str

    @property
    def exists(self) -> bool:
        """Tell whether there is a checkpoint to resume from."""
        return self.step >= 0

    @property
    def from_the_start(self) -> bool:
        """Tell whether there is none, and what is left is to begin again at step 0."""
        return not self.exists and self.attempt < 0

    @property
    def path_known(self) -> bool:
        """Tell whether its path is known: a metric holds none."""
        return self.path not in ("", NOT_IN_METRICS)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved checkpoint and how far it can be trusted. Identity: (attempt, step, path)."""

    attempt: int
    step: int
    path: str
    saved_at: str
    parent: Parent | None  # newest checkpoint of its lineage saved before it; itself at step 0
    parent_known: bool
    bytes: int | None
    seconds: float | None
    blocked_seconds: float | None
    fingerprint: str
    checks: Mapping[str, Result] = field(hash=False)
    trust: Trust = "unverified"
    reason: str = ""
    covered_by: tuple[str, ...] = ()  # incident ids whose window covers it

    @property
    def point(self) -> Point:
        """Return the state that was saved."""
        return Point(self.attempt, self.step)


@dataclass(frozen=True, slots=True)
class FailedSave:
    """A save that did not happen. ``reason`` is "integrity" when a check refused it."""

    attempt: int
    step: int
    path: str
    at: str
    reason: str
    checks: Mapping[str, Result] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an incident has cost so far: from the resume step to recovery (or to the last step known)."""

    steps: int
    seconds: float
    device_hours: float
    rising: bool  # not recovered yet


@dataclass(frozen=True, slots=True)
class Word:
    """What a person said about an incident, and when. ``text`` may be empty: to acknowledge says enough."""

    by: str
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings, their verdict, the window, the covered checkpoints, and how it went on."""

    id: str
    aliases: tuple[str, ...]
    run: str
    state: IncidentState
    status: Status
    scope: Scope
    suspects: tuple[Suspect, ...]
    nature: Nature
    confidence: Confidence
    check: CheckName  # of the first finding
    attempt: int  # of the first finding
    step: int  # of the first finding
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    window: Window | None
    reasons_for: tuple[str, ...]
    reasons_against: tuple[str, ...]
    unknown: tuple[str, ...]
    resume: LastGood | None  # frozen at the verdict, with its trust as it is now; open and gone: the last good
    covered: tuple[tuple[int, int, str], ...]  # (attempt, step, path) of covered checkpoints
    opened_at: str
    recovered_at: str | None
    recovered_by: int | None  # the attempt that resumed
    closed_at: str | None
    closed_by: str | None  # "cleared" or a person's name
    cost: Cost
    reopened_at: str | None = None  # when it was last reopened, while it is; None as well where metrics do not tell
    actions: tuple[Event, ...] = field(default=(), hash=False)  # notes and actions about it
    other_nodes: bool = True  # the attempt with the last finding had, or may have had, nodes without a suspect
    acknowledged: Word | None = None  # None again once it was reopened
    cause: Word | None = None  # what a person found the cause to be
    origin: Origin = "journal"  # metrics: findings are one per check, and texts that no metric holds are NOT_IN_METRICS


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A place in the run directory that could not be read. ``line`` is 0 when it is the whole file."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class RunState:
    """All that is known about one run. Sequences are in canonical order; equal histories give equal states."""

    run: str
    attempts: tuple[Attempt, ...]
    rounds: tuple[CheckRound, ...]
    checks: tuple[CheckStatus, ...]  # in the order of events.CHECKS
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    incidents: tuple[Incident, ...]  # newest first
    checkpoints: tuple[Checkpoint, ...]  # by (attempt, step, path)
    failed_saves: tuple[FailedSave, ...]
    injections: tuple[Event, ...]
    restarts: tuple[Event, ...]
    annotations: tuple[Event, ...]  # alerts, notes, actions, excursions
    last_good: LastGood
    first_event_at: str
    last_event_at: str
    event_count: int
    events_digest: str  # SHA-256 over the sorted events: the same history, the same digest
    unreadable: tuple[Unreadable, ...] = ()
    origin: Origin = "journal"
    counted: Mapping[Trust, int] = field(default_factory=dict, hash=False)  # of metrics: the checkpoints by trust
    told_at: str = ""  # of metrics: when the ledger that tells this had read the journal

    @property
    def trust_counts(self) -> Mapping[Trust, int]:
        """Return how many checkpoints stand at each trust."""
        counts = Counter(checkpoint.trust for checkpoint in self.checkpoints)
        return dict(self.counted) or {trust: counts[trust] for trust in get_args(Trust)}

    @property
    def attempt(self) -> Attempt | None:
        """Return the newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def active(self) -> bool:
        """Tell whether the newest attempt has started and not said that it ended."""
        return bool(self.attempts) and self.attempts[-1].ended_at is None
