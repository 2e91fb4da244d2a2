"""Say what is heard no more: a folder or a run directory that is gone, a run that went silent, an old scrape. Pure."""

from __future__ import annotations

from dataclasses import replace

from lastgood.events import timestamp_of
from lastgood.gone import Gone
from lastgood.state import Incident, RunState
from lastgood.wording import age_text, step_text
from lastgood_console.characters import escape
from lastgood_console.components.heads import rfc3339
from lastgood_console.components.strip import Strip, layout
from lastgood_console.components.symbols import symbol
from lastgood_console.components.triage import is_silent
from lastgood_console.store import Snapshot


def clock(seconds: float) -> str:
    """Return the time of day of unix seconds."""
    return f"{rfc3339(seconds)[11:19]} UTC"


def gone_note(gone: Gone, read_at: float | None) -> str:
    """Say which folders are not there any more, since when, and what is still shown. ``read_at``: unix seconds."""
    if not gone.places:
        return ""
    said = " ".join(f"{place} has not been there since {clock(since)}." for place, since in gone.places.items())
    count = len(gone.kept)
    runs = "The run" if count == 1 else f"The {count} runs"
    verb = "is" if count == 1 else "are"
    when = f", at {clock(read_at)}" if read_at is not None else ""
    shown = f" {runs} in it {verb} shown as last read{when}, and may stand otherwise by now." if count else ""
    words = f"{said} Nothing there is read any more.{shown}"
    return f'<div class="lg-warn">{symbol("warning")}<span>{escape(words)}</span></div>'


def gone_run(gone: Gone, run: str) -> str:
    """Say until when a run that is not known was there; nothing when it never was."""
    if run not in gone.runs:
        return ""
    last = gone.runs[run]
    return f"It was there until {clock(last) if last is not None else 'just now'}: its directory is gone."


def gone_runs(gone: Gone) -> str:
    """Say which runs were there, when there is none any more; nothing when there never was one."""
    if not gone.runs:
        return ""
    last = max((at for at in gone.runs.values() if at is not None), default=None)
    until = f" until {clock(last)}" if last is not None else ""
    if len(gone.runs) == 1:
        return f"One run was there{until}: its directory is gone."
    return f"{len(gone.runs)} runs were there{until}: their directories are gone."


def is_unheard(state: RunState, snapshot: Snapshot, now: float) -> bool:
    """Tell whether an active run has gone silent, or is not read any more. ``now``: unix seconds."""
    if state.run in snapshot.gone.kept:
        return state.active
    heard = snapshot.heard_at.get(state.run)
    return heard is not None and is_silent(state, snapshot.progress.get(state.run), now - heard)


def heard_html(state: RunState, snapshot: Snapshot, now: float) -> str:
    """Return when a run that is heard no more was last heard of; nothing while it is heard. ``now``: unix seconds."""
    if not is_unheard(state, snapshot, now):
        return ""
    heard = snapshot.heard_at.get(state.run, snapshot.read_at)
    if heard is None:
        return ""
    return (
        f'<span class="lg-stale">{symbol("warning")} last heard of {clock(heard)} ({age_text(now - heard)} ago)</span>'
    )


def heard_strip(state: RunState, incident: Incident | None, snapshot: Snapshot, now: float) -> Strip:
    """Return the strip of a run as far as it is heard: see :func:`unheard_strip`. ``now``: unix seconds."""
    strip = layout(state, incident)
    return unheard_strip(strip) if is_unheard(state, snapshot, now) else strip


def unheard_strip(strip: Strip) -> Strip:
    """Return a strip whose newest attempt does not look as if it went on."""
    lines = [
        replace(x, running=False, name=f"attempt {x.attempt} last heard of at {step_text(x.end)}") if x.running else x
        for x in strip.lines
    ]
    return replace(strip, lines=tuple(lines))


def as_told(snapshot: Snapshot, state: RunState | None) -> Snapshot:
    """Return the snapshot with the age of what is known of one run: metrics tell it as of the last scrape."""
    if state is None or state.origin != "metrics" or not state.told_at:
        return snapshot
    return replace(snapshot, read_at=timestamp_of(state.told_at))
