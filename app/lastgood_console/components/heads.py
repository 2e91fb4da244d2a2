"""Draw what stands above and between: page heads, freshness, sections, empty states, warnings."""

from __future__ import annotations

from datetime import UTC, datetime

from lastgood.state import RunState
from lastgood.wording import age_text
from lastgood_console.characters import escape
from lastgood_console.components.symbols import symbol
from lastgood_console.export.origin import origin_words


def rfc3339(seconds: float) -> str:
    """Return unix seconds as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def freshness(read_at: float | None, now: float, stale_seconds: float) -> str:
    """Return how old the shown data is; in the colour of a warning, with the time, when it is stale."""
    if read_at is None:
        return "nothing read yet"
    age = max(0.0, now - read_at)
    if age <= stale_seconds:
        return f"data {age_text(age)} old"
    words = f"data {age_text(age)} old, last read {rfc3339(read_at)[11:19]} UTC"
    return f'<span class="lg-stale">{symbol("warning")} {words}</span>'


def page_head(headline: str, consequence: str, right: str) -> str:
    """Return the head of a page. ``right``: freshness, as HTML."""
    left = f'<div><h1 class="lg-page">{escape(headline)}</h1><div class="lg-sub">{escape(consequence)}</div></div>'
    return f'<div class="lg-row lg-head">{left}<div class="lg-caption">{right}</div></div>'


def section(title: str, note: str = "") -> str:
    """Return a section's title with its note."""
    return (
        f'<div class="lg-sectionrow"><h2 class="lg-section">{escape(title)}</h2>'
        f'<span class="lg-caption">{escape(note)}</span></div>'
    )


def empty(html: str) -> str:
    """Return an empty state: what is true, why, and the next step. ``html`` is escaped already."""
    return f'<div class="lg-empty">{html}</div>'


def origin_note(state: RunState) -> str:
    """Say that a run is told by metrics alone; nothing when its journal is read."""
    if state.origin == "journal":
        return ""
    return f'<div class="lg-warn">{symbol("warning")}<span>{escape(origin_words(state.told_at))}</span></div>'


def metrics_note(problem: str, since: float | None, now: float) -> str:
    """Say what is wrong with the metrics server, and since when; nothing when nothing is. Times: unix seconds.

    Without ``since`` the server is only waited for, which alarms nobody.
    """
    if not problem:
        return ""
    if since is None:
        return f'<div class="lg-caption">{escape(f"Metrics: {problem}.")}</div>'
    missing = "Trends, and runs without a run directory, are as they were before, or missing."
    words = f"Metrics, for {age_text(now - since)}: {problem}. {missing}"
    return f'<div class="lg-warn">{symbol("warning")}<span>{escape(words)}</span></div>'


def unreadable_warning(state: RunState) -> str:
    """Say which places of the run directory could not be read; nothing when all could."""
    found = state.unreadable
    if not found:
        return ""
    first = ", ".join(f"{u.file}:{u.line} ({u.reason})" if u.line else f"{u.file} ({u.reason})" for u in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    what = "One place" if len(found) == 1 else f"{len(found)} places"
    words = f"{what} of run {state.run} could not be read: {first}{more}. What follows may be incomplete."
    return f'<div class="lg-warn">{symbol("warning")}<span>{escape(words)}</span></div>'
