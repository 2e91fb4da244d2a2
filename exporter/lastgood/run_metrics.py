"""Publish what the ledger knows about runs, incidents, nodes and checkpoints.

A rank that finds a lie exits, and its counters die unscraped; these series come from the journals, so they outlive
it, and alerts about findings evaluate them. What is not known has no series (a NaN or a 0 would be a claim), except
where the catalogue says that -1 means none.

Checks of every step stand in no ``check`` event, only in saves and in the progress lines. So their last pass comes
from there, and their cadence, as far as a ledger can see it, is that of the progress lines.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client import Metric as Family

from lastgood.catalogue import PREFIX, exported, label_value
from lastgood.events import CHECKS, ProgressData, timestamp_of
from lastgood.incident_rows import incident_rows
from lastgood.pacing import PROGRESS_SECONDS
from lastgood.run_time import (
    RESTART_REASONS,
    Span,
    goodput,
    last_heard,
    lost_steps,
    restart_reasons,
    seconds,
    silence,
    spans,
)
from lastgood.state import Attempt, Checkpoint, CheckStatus, Device, RunState

INTERVAL_SAVES: Final = 10  # newest saves whose median distance is the save interval
PER_STEP_CHECKS: Final = ("finite", "conservation")
ACCUSATION_DAYS: Final = (7, 90)

Value = float | None
Row = tuple[str, tuple[object, ...], Value | tuple[Value, Value]]
"""Name without the prefix, values of the labels after ``run``, value (None: no series; a pair: count and sum)."""


class LedgerView(Protocol):
    """What these metrics need of a ledger. Times are Unix seconds."""

    @property
    def last_read_at(self) -> float | None:
        """When the journals were last read."""

    def runs(self) -> Mapping[str, RunState]:
        """Return the state of every run."""

    def lag_seconds(self, run: str) -> float | None:
        """Return how old the newest event was when it was read."""

    def progress(self, run: str) -> ProgressData | None:
        """Return the newest progress of the newest attempt."""

    def node_accusations(self, days: int, now: float) -> Mapping[Device, int]:
        """Return how many incidents of the last ``days`` named each device."""


class RunMetrics:
    """Collect the run metrics of the catalogue from ``ledger``. ``clock`` returns Unix seconds."""

    def __init__(self, ledger: LedgerView, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._clock = clock
        self._spent: dict[str, tuple[RunState, tuple[Span, ...]]] = {}  # a scrape of an unchanged run is cheap

    def collect(self) -> Iterator[Family]:
        """Yield the families that have a value, in the order of the catalogue."""
        metrics = {metric.name.removeprefix(PREFIX): metric for metric in exported("run")}
        families = {name: metric.family() for name, metric in metrics.items()}
        for name, labels, value in self._rows():
            values = value if isinstance(value, tuple) else (value,)
            known = [number for number in values if number is not None and math.isfinite(number)]
            if len(known) == len(values):
                metrics[name].add(families[name], [label_value(label) for label in labels], *known)
        yield from families.values()

    def describe(self) -> Iterator[Family]:
        """Yield the empty families, so that registering reads no journal."""
        return (metric.family() for metric in exported("run"))

    def _rows(self) -> Iterator[Row]:
        runs = self._ledger.runs()
        self._spent = {run: known for run, known in self._spent.items() if run in runs}
        for run, state in runs.items():
            progress = self._ledger.progress(run) or {}
            for name, labels, value in run_rows(state, progress):
                yield name, (run, *labels), value
            for name, labels, value in time_rows(state, self._spans(run, state), self._clock()):
                yield name, (run, *labels), value
            yield "journal_unreadable_lines_total", (run,), float(len(state.unreadable))
            yield "journal_lag_seconds", (run,), self._ledger.lag_seconds(run)
            yield "ledger_last_read_timestamp_seconds", (run,), self._ledger.last_read_at
        for days in ACCUSATION_DAYS:
            for device, count in self._ledger.node_accusations(days, self._clock()).items():
                yield "node_accusations", (device.node, device.gpu_uuid, f"{days}d"), float(count)

    def _spans(self, run: str, state: RunState) -> tuple[Span, ...]:
        """Return the run's time up to its last sign of life, laid out again only when the state is a new one."""
        known = self._spent.get(run)
        if known is None or known[0] is not state:
            known = self._spent[run] = (state, spans(state))
        return known[1]


def run_rows(state: RunState, progress: ProgressData) -> Iterator[Row]:
    """Yield every row of one run that follows from its state and its newest progress. Pure."""
    yield from _attempt_rows(state, progress)
    if state.attempt is not None:
        yield from _check_rows(state.checks, state.attempt, progress)
        yield "check_time_ratio", (), progress.get("check_share")
    yield from _finding_rows(state)
    yield from incident_rows(state.incidents)
    yield from _checkpoint_rows(state)
    yield from _save_rows(state)


def time_rows(state: RunState, found: tuple[Span, ...], now: float) -> Iterator[Row]:
    """Yield the rows about restarts and about what the time was spent on. ``now``: unix seconds. Pure."""
    if not state.attempts:
        return
    silent = silence(state, now)
    whole = seconds(state, (*found, *silent))
    for kind, spent in whole.items():
        yield "run_seconds", (kind,), spent
    yield "goodput_ratio", ("run",), goodput(whole)
    yield "goodput_ratio", ("1h",), goodput(seconds(state, (*found, *silent), since=now - 3600))
    starts = [timestamp_of(attempt.started_at) for attempt in state.attempts[1:]]
    for window, length in (("1h", 3600), ("24h", 86400)):
        yield "restarts_recent", (window,), float(sum(at > now - length for at in starts))
    reasons = Counter(restart_reasons(state.attempts))
    for reason in RESTART_REASONS:
        yield "restarts_total", (reason,), float(reasons[reason])
    yield "lost_steps_total", (), float(lost_steps(state.attempts))


def _attempt_rows(state: RunState, progress: ProgressData) -> Iterator[Row]:
    yield "run_active", (), float(state.active)
    if state.attempt is None:
        yield "run_last_event_timestamp_seconds", (), _unix_seconds(state.last_event_at)
    else:
        yield "run_start_timestamp_seconds", (), _unix_seconds(state.attempts[0].started_at)
        yield "run_attempt_start_timestamp_seconds", (), _unix_seconds(state.attempt.started_at)
        yield "run_last_event_timestamp_seconds", (), last_heard(state)
        yield "run_attempt", (), float(state.attempt.number)
        yield "run_world_size", (), float(state.attempt.world_size)
        yield "run_attempt_start_step", (), float(state.attempt.from_step)
        yield "run_step", (), float(max(state.attempt.last_step, progress.get("step", -1)))


def _check_rows(checks: Iterable[CheckStatus], attempt: Attempt, progress: ProgressData) -> Iterator[Row]:
    by_name = {status.check: status for status in checks}
    for check in CHECKS:
        status = by_name.get(check)
        last = max(status.last_pass_step if status else -1, progress.get("passed", {}).get(check, -1))
        yield "run_check_last_pass_step", (check,), float(last)
        if status is None or not status.running or status.interval_steps is None:
            continue
        yield "check_interval_steps", (check,), float(status.interval_steps)
        due = _due_by_progress(last, attempt, progress) if check in PER_STEP_CHECKS else status.due_step
        yield "check_due_step", (check,), due


def _due_by_progress(last_pass: int, attempt: Attempt, progress: ProgressData) -> float | None:
    """Return when a check of every step should have passed again; None before the first progress."""
    step_seconds = progress.get("step_seconds", 0.0)
    if not step_seconds > 0:
        return None
    return max(last_pass, attempt.from_step) + 3 * math.ceil(PROGRESS_SECONDS / step_seconds)


def _finding_rows(state: RunState) -> Iterator[Row]:
    for check in CHECKS:
        found = [finding for finding in state.findings if finding.check == check]
        newest = max(found, key=lambda finding: (finding.attempt, finding.step), default=None)
        yield "findings_total", (check,), float(len(found))
        yield "finding_last_step", (check,), float(newest.step) if newest else -1.0
        yield "finding_last_timestamp_seconds", (check,), _unix_seconds(newest.at) if newest else None


def _checkpoint_rows(state: RunState) -> Iterator[Row]:
    trusted = [checkpoint for checkpoint in state.checkpoints if checkpoint.trust == "trusted"]
    for name, newest in (
        ("checkpoint_last", _newest(state.checkpoints)),
        ("checkpoint_last_trusted", _newest(trusted)),
    ):
        yield f"{name}_step", (), float(newest.step) if newest else -1.0
        yield f"{name}_timestamp_seconds", (), _unix_seconds(newest.saved_at) if newest else None
    yield "last_good_step", (), float(state.last_good.step)
    yield "last_good_attempt", (state.last_good.trust,), float(state.last_good.attempt)
    yield "checkpoint_interval_seconds", (), _save_interval(state.checkpoints)
    for trust, count in state.trust_counts.items():
        yield "checkpoints", (trust,), float(count)


def _newest(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    return max(checkpoints, key=lambda checkpoint: (checkpoint.point, checkpoint.saved_at), default=None)


def _save_interval(checkpoints: Iterable[Checkpoint]) -> float | None:
    """Return the median seconds between the newest saves of the newest attempt; None before the second."""
    checkpoints = tuple(checkpoints)
    attempt = max((checkpoint.attempt for checkpoint in checkpoints), default=0)
    times = sorted(timestamp_of(checkpoint.saved_at) for checkpoint in checkpoints if checkpoint.attempt == attempt)
    times = times[-INTERVAL_SAVES:]
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    return statistics.median(gaps) if gaps else None


def _save_rows(state: RunState) -> Iterator[Row]:
    durations = [checkpoint.seconds for checkpoint in state.checkpoints if checkpoint.seconds is not None]
    blocked = [checkpoint.blocked_seconds or 0.0 for checkpoint in state.checkpoints]
    failures = [save for save in state.failed_saves if save.reason != "integrity"]
    yield "checkpoint_saves_total", (), float(len(state.checkpoints))
    yield "checkpoint_failures_total", (), float(len(failures))
    last_saved = max((checkpoint.saved_at for checkpoint in state.checkpoints), default="")
    yield "checkpoint_failed_saves", (), float(sum(save.at > last_saved for save in failures))
    yield "checkpoint_save_seconds", (), (float(len(durations)), math.fsum(durations))
    yield "checkpoint_blocked_seconds_total", (), math.fsum(blocked)


def _unix_seconds(time_text: str) -> float | None:
    return timestamp_of(time_text) if time_text else None
