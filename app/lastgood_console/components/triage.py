"""Decide which run needs a person first, and what the overview says about each: plain values, no HTML.

A run needs a decision while an incident of it is open. What is silent is not healthy: a critical alert that stands
comes next, then a late check, an attempt that ended in an error, a run that stopped writing and a warning. An alert
that went away because nobody reports any more does not make its run healthy: the silence itself is said.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lastgood.events import Event, ProgressData
from lastgood.state import NOT_IN_METRICS, Incident, RunState
from lastgood.wording import age_text, joined, resume_headline, scope_phrase, state_phrase, step_text, steps_text
from lastgood_console.components.alert_facts import Alarm, alarm, name_of
from lastgood_console.components.decision import is_open
from lastgood_console.components.meters import latest, meters
from lastgood_console.components.symbols import STATUS_SYMBOL, Symbol

SILENT_AFTER_SECONDS: Final = 60.0
"""Rank 0 writes its progress every 30 s, when a step ends; two missed writes are silence."""
SLOW_STEPS: Final = 3.0
"""So many steps without a word are silence where a step takes longer than that."""
FIRST_STEP_SECONDS: Final = 300.0
"""Before its first step an attempt loads and compiles, and writes nothing."""
GONE_AFTER_SECONDS: Final = 300.0
"""So long a silence is most likely an end."""
MOST_SENTENCES: Final = 3

DECIDE, ALARM, WARN, WATCH, RUNNING, ENDED = range(6)
NO_ALARM: Final = Alarm()
UNREAD: Final = "not read any more: its folder is gone"


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run on the overview. ``alert``: what a standing critical alert says, told in ``words`` too.

    ``note``: what else stands beside an open incident, as a run that writes nothing any more.
    ``unheard``: it is active, and silent or not read any more.
    ``rank``: DECIDE, ALARM (a critical alert stands), WARN, WATCH (recovered, still training), RUNNING or ENDED.
    """

    state: RunState
    rank: int
    symbol: Symbol
    words: str
    incident: Incident | None
    alert: str = ""
    note: str = ""
    unheard: bool = False

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        """Return the incidents that wait for a decision."""
        return tuple(i for i in self.state.incidents if is_open(i))


def rows(
    states: Iterable[RunState],
    *,
    progress: Mapping[str, ProgressData] | None = None,
    silent_seconds: Mapping[str, float] | None = None,
    alerts: Iterable[Event] = (),
    now: str = "",
    unread: Container[str] = (),
) -> tuple[RunRow, ...]:
    """Return the runs, newest trouble first.

    ``progress``: run -> its newest progress. ``silent_seconds``: run -> how long nothing was written. ``alerts``: those
    that stand and that no incident tells, critical first; ``now`` (RFC 3339) is needed with them. ``unread``: runs
    whose folder is gone.
    """
    told, silent = progress or {}, silent_seconds or {}
    of_run: dict[str, list[Event]] = {}
    for event in alerts:
        of_run.setdefault(event.run, []).append(event)
    found = [
        row(s, told.get(s.run), silent.get(s.run, 0.0), alarm(s, of_run.get(s.run, ()), now), s.run in unread)
        for s in states
    ]  # fmt: skip
    found.sort(key=_newest_first, reverse=True)
    return tuple(sorted(found, key=lambda r: r.rank))


def _newest_first(found: RunRow) -> str:
    return found.incident.opened_at if found.rank == DECIDE and found.incident else found.state.last_event_at


def row(
    state: RunState,
    progress: ProgressData | None = None,
    silent_seconds: float = 0.0,
    told: Alarm = NO_ALARM,
    unread: bool = False,
) -> RunRow:
    """Return one run's standing. ``told``: what its alerts say; ``unread``: its folder is gone."""
    unheard = state.active and (unread or is_silent(state, progress, silent_seconds))
    return replace(_standing(state, progress, silent_seconds, told, unread), unheard=unheard)


def _standing(
    state: RunState, progress: ProgressData | None, silent_seconds: float, told: Alarm, unread: bool
) -> RunRow:
    waiting = [i for i in state.incidents if is_open(i)]
    newest = waiting[0] if waiting else state.incidents[0] if state.incidents else None
    alert = told.words if told.critical else ""
    if waiting:
        words = f"{waiting[0].status} {scope_phrase(waiting[0])}".strip()
        symbol = STATUS_SYMBOL[waiting[0].status]
        note = UNREAD if unread else _silence(state, progress, silent_seconds)
        return RunRow(state, DECIDE, symbol, "; ".join(filter(None, (words, alert))), newest, alert, note)
    trouble = UNREAD if unread else _trouble(state, progress, silent_seconds)
    if alert:
        return RunRow(state, ALARM, "critical", "; ".join(filter(None, (alert, trouble))), newest, alert)
    if trouble or told.words:
        return RunRow(state, WARN, "warning", "; ".join(filter(None, (trouble, told.words))), newest)
    return _quiet(state, newest)


def _quiet(state: RunState, newest: Incident | None) -> RunRow:
    after = f", {state_phrase(newest)}" if newest else ""
    if not state.active:
        return RunRow(state, ENDED, "ended", f"{_end_words(state)}{after}", newest)
    watched = newest is not None and newest.state == "recovered"
    words = f"running{after}" if newest else "healthy"
    return RunRow(state, WATCH if watched else RUNNING, "healthy", words, newest)


def _trouble(state: RunState, progress: ProgressData | None, silent_seconds: float) -> str:
    attempt = state.attempt
    if attempt is None:
        return "no attempt has started"
    if attempt.ended_at and attempt.end_reason in {"exception", "signal"}:
        return f"stopped at step {step_text(attempt.last_step)}: {attempt.end_reason}"
    if not state.active:
        return ""
    if silence := _silence(state, progress, silent_seconds):
        return silence + (": it may have ended without a word" if silent_seconds > GONE_AFTER_SECONDS else "")
    late = latest(meters(state, progress))
    return f"{late.check} is {steps_text(late.late_by)} late" if late else ""


def is_silent(state: RunState, progress: ProgressData | None, silent_seconds: float) -> bool:
    """Tell whether an active run has written nothing for longer than its steps explain."""
    return state.active and silent_seconds > _silent_after(state, progress)


def _silent_after(state: RunState, progress: ProgressData | None) -> float:
    attempt = state.attempt
    if attempt is not None and attempt.last_step <= attempt.from_step and progress is None:
        return FIRST_STEP_SECONDS
    return max(SILENT_AFTER_SECONDS, SLOW_STEPS * float((progress or {}).get("step_seconds") or 0.0))


def _silence(state: RunState, progress: ProgressData | None, seconds: float) -> str:
    return f"silent for {_silence_text(seconds)}" if is_silent(state, progress, seconds) else ""


def _silence_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else age_text(seconds)


def _end_words(state: RunState) -> str:
    reason = state.attempt.end_reason if state.attempt else None
    if reason == NOT_IN_METRICS:
        return f"ended: why is {reason}"
    return "completed" if reason == "completed" else f"ended: {reason or 'unknown'}"


def headline(found: Sequence[RunRow], fleet: Sequence[Event] = ()) -> str:
    """Say how many runs need a decision, and in how many others a critical alert stands.

    ``fleet``: the critical alerts that stand and are of no run here: nobody else on the page would tell of them.
    """
    waiting, alarmed = (sum(r.rank == rank for r in found) for rank in (DECIDE, ALARM))
    said = []
    if waiting:
        said.append("One run needs a decision." if waiting == 1 else f"{waiting} runs need a decision.")
    if alarmed:
        where = f"{'one' if alarmed == 1 else alarmed} {'more' if waiting else 'run' if alarmed == 1 else 'runs'}"
        said.append(f"A critical alert stands in {where}." if alarmed == 1 else f"Critical alerts stand in {where}.")
    if fleet:
        said.append(_fleet_words(fleet, " outside these runs" if found else ""))
    if not found:
        return " ".join(["No runs.", *said])
    return " ".join(said) or f"{len(found)} run{'' if len(found) == 1 else 's'}, no open incident."


def _fleet_words(fleet: Sequence[Event], where: str) -> str:
    names = list(dict.fromkeys(name_of(event) for event in fleet))
    more = f" and {len(names) - MOST_SENTENCES} more" if len(names) > MOST_SENTENCES else ""
    told = ", ".join(names[:MOST_SENTENCES]) + more if more else joined(names)
    if len(fleet) == 1:
        return f"A critical alert stands{where}: {told}."
    return f"{len(fleet)} critical alerts stand{where}: {told}."


def consequence(found: Sequence[RunRow]) -> str:
    """Say what to do about the first runs in trouble, and how the others stand."""
    troubled = [r for r in found if r.rank in {DECIDE, ALARM, WARN}]
    said = [f"{r.state.run}: {_needs(r)}." for r in troubled[:MOST_SENTENCES]]
    if len(troubled) > MOST_SENTENCES:
        said.append(f"{len(troubled) - MOST_SENTENCES} more below.")
    quiet = [("running", WATCH), ("healthy", RUNNING), ("ended", ENDED)]
    counts = [(word, sum(r.rank == rank for r in found)) for word, rank in quiet]
    rest = [f"{n} {'has ended' if n == 1 else 'have ended'}" if word == "ended" else
            f"{n} {'is' if n == 1 else 'are'} {word}" for word, n in counts if n]  # fmt: skip
    return " ".join([*said, *([joined(rest) + "."] if rest else [])])


def _needs(found: RunRow) -> str:
    incident = found.incident
    if found.rank != DECIDE or incident is None:
        return found.words
    said = _advice(incident)
    return "; ".join(filter(None, (said, found.alert, found.note)))


def _advice(incident: Incident) -> str:
    resume = incident.resume
    first = f"resume from {resume_headline(resume)}" if resume and resume.exists else incident.status
    if not incident.suspects:
        return f"{first}; no rank stands out"
    named = [f"rank {s.rank} on {s.node}" for s in incident.suspects[:3]]
    accused = incident.status == "attributed"
    verb = ("is" if len(incident.suspects) == 1 else "are") + " accused" if accused else "may be wrong"
    more = f" and {len(incident.suspects) - 3} more" if len(incident.suspects) > 3 else ""
    return f"{first}; {joined(named, 'and' if accused else 'or')}{more} {verb}"
