"""Make the state of a run, and of its incidents, out of a ledger's series. Pure.

Metrics hold what was concluded, the journal holds why: evidence, reasons, paths, single checkpoints and the names of
people are in no series. Such a field says :data:`lastgood.state.NOT_IN_METRICS`, and the state is marked by its
``origin``, so that nobody takes what is missing for nothing there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, cast, get_args

from lastgood.events import CHECKS, CheckName, Confidence, Nature, Scope, Status, is_slug
from lastgood.state import (
    NOT_IN_METRICS,
    Attempt,
    CheckStatus,
    Cost,
    Finding,
    Incident,
    IncidentState,
    LastGood,
    RunState,
    Suspect,
    Trust,
    Unreadable,
    Window,
)
from lastgood_console.sources.ledger_series import READ_AT, LedgerSeries

_SAID: Final = (NOT_IN_METRICS,)


def run_state(told: LedgerSeries) -> RunState:
    """Return a run as its ledger's series tell it."""
    attempt = _attempt(told)
    incidents, broken = _incidents(told)
    return RunState(
        run=told.run,
        attempts=(attempt,) if attempt else (),
        rounds=(),
        checks=tuple(_check(told, check) for check in CHECKS) if attempt else (),
        findings=(),
        verdicts=(),
        incidents=incidents,
        checkpoints=(),
        failed_saves=(),
        injections=(),
        restarts=(),
        annotations=(),
        last_good=_last_good(told, "last_good") or LastGood(-1, -1, "", "missing", NOT_IN_METRICS),
        first_event_at=told.time("run_start_timestamp_seconds"),
        last_event_at=told.time("run_last_event_timestamp_seconds") or told.time(READ_AT),
        event_count=0,
        events_digest=_digest(told),
        unreadable=(*_unreadable(told), *broken),
        origin="metrics",
        told_at=told.time(READ_AT),
        counted={trust: told.whole("checkpoints", trust) or 0 for trust in get_args(Trust)},
    )


def _digest(told: LedgerSeries) -> str:
    """Return what tells this state from another one of the run. When the ledger last read makes no other state."""
    rows = {name: found for name, found in told.rows.items() if name != READ_AT}
    lines = sorted(f"{name} {values!r} {value!r}" for name, found in rows.items() for values, value in found.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _attempt(told: LedgerSeries) -> Attempt | None:
    number, started = told.whole("run_attempt"), told.time("run_attempt_start_timestamp_seconds")
    if number is None or not started:
        return None
    last_at = told.time("run_last_event_timestamp_seconds") or started
    ended = told.number("run_active") == 0
    step = told.whole("run_attempt_start_step") or 0
    intervals = {check: told.whole("check_interval_steps", check) for check in CHECKS}
    return Attempt(
        number=number,
        world_size=told.whole("run_world_size") or 0,
        places=(),
        parent=None,
        parent_known=False,
        parent_verified=False,
        from_step=step,
        started_at=started,
        last_event_at=last_at,
        last_step=max(step, told.whole("run_step") or 0),
        last_step_at=last_at,
        ended_at=last_at if ended else None,
        end_reason=NOT_IN_METRICS if ended else None,
        cadence=intervals,
        not_run={check: NOT_IN_METRICS for check, interval in intervals.items() if interval is None},
    )


def _check(told: LedgerSeries, check: CheckName) -> CheckStatus:
    interval, last = told.whole("check_interval_steps", check), told.whole("run_check_last_pass_step", check)
    return CheckStatus(
        check=check,
        running=interval is not None,
        reason="" if interval is not None else NOT_IN_METRICS,
        interval_steps=interval,
        last_pass_step=-1 if last is None else last,
        last_pass_at=None,
        due_step=told.whole("check_due_step", check),
        failures=told.whole("findings_total", check) or 0,
    )


def _unreadable(told: LedgerSeries) -> Iterator[Unreadable]:
    count = told.whole("journal_unreadable_lines_total") or 0
    if count:
        yield Unreadable("the run directory", 0, f"{count} places; which ones is {NOT_IN_METRICS}")


def _last_good(told: LedgerSeries, name: str) -> LastGood | None:
    """Return a checkpoint by its step and its trust; None where there is no such series, or two that disagree."""
    found = [(trust, value) for (trust,), value in told.all(f"{name}_attempt").items()]
    if len(found) != 1:
        return None
    trust = cast(Trust, found[0][0])
    attempt = told.whole(f"{name}_attempt", trust)
    step = told.whole(f"{name}_step", trust) if told.all(f"{name}_step").keys() != {()} else told.whole(f"{name}_step")
    if attempt is None or step is None:
        return None
    return LastGood(attempt, step, NOT_IN_METRICS if step >= 0 else "", trust, f"path and reason {NOT_IN_METRICS}")


# incidents


def _incidents(told: LedgerSeries) -> tuple[tuple[Incident, ...], tuple[Unreadable, ...]]:
    """Return the incidents, newest first, and what was told of others by half."""
    found: list[Incident] = []
    broken: list[Unreadable] = []
    for name in sorted({values[0] for values in told.all("incident_info")}):
        incident = _incident(told.run, name, told.about(name)) if is_slug(name) else None
        if incident is not None:
            found.append(incident)
        else:
            broken.append(Unreadable("metrics", 0, f"incident {name[:40]}: some of its series are missing"))
    older = int(sum(told.all("incidents").values())) - len(found) - len(broken)
    if older > 0:
        broken.append(Unreadable("metrics", 0, f"{older} more incidents are {NOT_IN_METRICS}"))
    found.sort(key=lambda i: (i.attempt, i.step, CHECKS.index(i.check)), reverse=True)
    return tuple(found), tuple(broken)


def _incident(run: str, name: str, told: LedgerSeries) -> Incident | None:
    """Return an incident; None when not all is told that a person needs."""
    attempt, step = told.whole("incident_finding_attempt"), told.whole("incident_finding_step")
    opened, kinds = told.time("incident_timestamp_seconds", "opened"), list(told.all("incident_info"))
    if attempt is None or step is None or not opened or len(kinds) != 1:
        return None
    check, status, scope, nature, confidence, state = kinds[0]
    suspects = _suspects(told)
    unknown = _unnamed(told, suspects)
    closed = told.time("incident_timestamp_seconds", "closed")
    recovered = told.time("incident_timestamp_seconds", "recovered")
    cleared = "cleared" if status == "cleared" else NOT_IN_METRICS
    return Incident(
        id=name,
        aliases=(),
        run=run,
        state=cast(IncidentState, state),
        status=cast(Status, status),
        scope=cast(Scope, scope),
        suspects=suspects,
        nature=cast(Nature, nature),
        confidence=cast(Confidence, confidence),
        check=cast(CheckName, check),
        attempt=attempt,
        step=step,
        findings=tuple(_finding(run, name, c, attempt, step, opened) for c in _checks(told, check)),
        verdicts=(),
        window=_window(told),
        reasons_for=_SAID,
        reasons_against=_SAID,
        unknown=unknown,
        resume=_last_good(told, "incident_last_good"),
        covered=(),
        opened_at=opened,
        recovered_at=recovered or None,
        recovered_by=told.whole("incident_recovery_attempt"),
        closed_at=closed or None,
        closed_by=cleared if closed else None,
        cost=_cost(told, over=bool(recovered or closed)),
        other_nodes=told.number("incident_other_nodes") != 0,
        origin="metrics",
    )


def _checks(told: LedgerSeries, first: str) -> list[CheckName]:
    found = {check for (check,) in told.all("incident_findings")} | {first}
    return [check for check in CHECKS if check in found]


def _finding(run: str, incident: str, check: CheckName, attempt: int, step: int, at: str) -> Finding:
    """Return the word that a check found something; where and what exactly, a journal knows."""
    return Finding(
        id=f"{run}-{incident}-{check}",
        check=check,
        attempt=attempt,
        step=step,
        state_step=step,
        phase=NOT_IN_METRICS,
        contained=False,
        ranks=(),
        places=(),
        tensor=None,
        bucket=None,
        observed=NOT_IN_METRICS,
        expected=NOT_IN_METRICS,
        evidence=(),
        at=at,
    )


def _suspects(told: LedgerSeries) -> tuple[Suspect, ...]:
    rows = (values for values in told.all("incident_suspect_info") if _is_small(values[1]) and _is_small(values[4]))
    found = [Suspect(int(rank), node, gpu, int(slot), "accused" if role == "accused" else "candidate")
             for role, rank, node, gpu, slot in rows]  # fmt: skip
    return tuple(sorted(found))


def _is_small(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _unnamed(told: LedgerSeries, named: tuple[Suspect, ...]) -> tuple[str, ...]:
    more = (told.whole("incident_suspects") or 0) - len(named)
    return (f"{more} more devices are named, which ones is {NOT_IN_METRICS}",) if more > 0 else _SAID


def _window(told: LedgerSeries) -> Window | None:
    attempts = [told.whole("incident_onset_attempt", edge) for edge in ("start", "end")]
    steps = [told.whole("incident_onset_step", edge) for edge in ("start", "end")]
    (first, last), (start, end) = attempts, steps
    if first is None or last is None or start is None or end is None:
        return None
    return Window(first, start, last, end, told.number("incident_contained") == 1, NOT_IN_METRICS)


def _cost(told: LedgerSeries, over: bool) -> Cost:
    seconds = max(0.0, told.number("incident_lost_seconds") or 0.0)
    device_hours = max(0.0, told.number("incident_lost_device_seconds") or 0.0) / 3600
    rising = seconds > 0 and not over  # a step that was skipped, and nothing else, costs no time
    return Cost(told.whole("incident_lost_steps") or 0, seconds, device_hours, rising)
