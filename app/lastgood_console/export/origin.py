"""Say what is not there, in the same words on pages and in reports: in metrics, and in a window. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lastgood.state import NOT_IN_METRICS, Trust
from lastgood.wording import date_text, joined, step_text

STORY_WORDS: Final = f"What else happened, and who did it, is {NOT_IN_METRICS}."


def origin_words(told_at: str) -> str:
    """Say where a run is known from. ``told_at``: RFC 3339, when its ledger last read the journal."""
    when = f", as of {date_text(told_at)} UTC" if told_at else ""
    return (
        f"Metrics alone tell of this run{when}: its run directory is not here. What only the journal holds reads "
        f'"{NOT_IN_METRICS}".'
    )


def saves_words(counts: Mapping[Trust, int]) -> str:
    """Say how many checkpoints a run has, where only their number is known."""
    some = [f"{count} {trust}" for trust, count in counts.items() if count]
    if not some:
        return "Nothing saved yet."
    return f"{joined(some)[:1].upper()}{joined(some)[1:]}. Their steps, paths and fingerprints are {NOT_IN_METRICS}."


def avoid_after(attempt: int, step: int, counts: Mapping[Trust, int]) -> tuple[str, tuple[str, str]]:
    """Say what not to use where only the window is known: in short, and in two sentences. ``counts``: by trust."""
    after = f"after step {step_text(step)}"
    bad = f"{counts.get('suspect', 0)} suspect and {counts.get('tainted', 0)} tainted"
    what = f"What attempt {attempt} saved {after}, and all that descends from it."
    return after, (what, f"Which saves that are is {NOT_IN_METRICS}; the run has {bad} ones now.")


def none_in_doubt(status: str, state: str, contained: bool) -> str:
    """Say why an incident covers no checkpoint. That none was saved in its window is said only where none was."""
    if contained:
        return "The wrong value was kept out of the weights: no checkpoint holds it."
    if status == "cleared":
        return "The finding was cleared: no checkpoint is in doubt for it."
    if status == "suspicious" and state == "closed":
        return "The suspicion was closed: no checkpoint is in doubt for it."
    return "No checkpoint was saved inside the window."


def nothing_covered(document: Mapping[str, Any]) -> str:
    """Return :func:`none_in_doubt` of an exported document."""
    incident, window = document["incident"], document["window"]
    return none_in_doubt(incident["status"], incident["state"], bool(window and window["contained"]))


def window_to_avoid(document: Mapping[str, Any]) -> tuple[str, tuple[str, str]] | None:
    """Return :func:`avoid_after` of a document out of metrics; None where no save has to be avoided."""
    window = document["window"]
    if "metrics" not in document or document["incident"]["status"] == "cleared" or not window or window["contained"]:
        return None
    return avoid_after(window["start_attempt"], window["start"], document["metrics"]["checkpoints"])
