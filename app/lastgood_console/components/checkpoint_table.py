"""Draw the table of checkpoints: how far each can be trusted, and why; and the saves that did not happen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from lastgood.events import Result
from lastgood.state import Checkpoint, FailedSave, LastGood, RunState
from lastgood.wording import hex_text, step_text
from lastgood_console.characters import escape
from lastgood_console.components.decision import sentence
from lastgood_console.components.strip import is_last_good
from lastgood_console.components.symbols import marked, trust_mark
from lastgood_console.components.tables import MOST_ROWS, NOTHING, Column, clocks, table_html

Save = Checkpoint | FailedSave
"""A save: one that was written, or one that was not."""
NEWEST: Final = 30
AROUND: Final = 5
"""Where the table stands beside something else: so many of the newest saves, and so many on each side of one."""
CHECKPOINTS: Final = (
    Column("Step", "num"), Column("Attempt", "num"), Column("Trust", "nowrap"), Column("Why", "prose"),
    Column("Saved (UTC)", "nowrap"), Column("Parent", "num"), Column("Replica", "nowrap"),
    Column("Fingerprint", "hex"), Column("Size", "num"), Column("Path", "hex"),
)  # fmt: skip


def saves(state: RunState) -> list[Save]:
    """Return the checkpoints and the saves that did not happen, newest first."""
    found: list[Save] = [*state.checkpoints, *state.failed_saves]
    found.sort(key=lambda c: (c.saved_at if isinstance(c, Checkpoint) else c.at, c.attempt, c.step), reverse=True)
    return found


def checkpoints_html(state: RunState, resume: LastGood | None = None, shown: Sequence[Save] | None = None) -> str:
    """Return the trust of every checkpoint, newest first, and the saves that did not happen.

    ``resume``: the checkpoint that an incident says to resume from; its row says so. ``shown``: these saves alone,
    at most 200; else the newest, those around that checkpoint, and the way to all.
    """
    every = saves(state) if shown is None else []
    items = _beside(every, resume) if shown is None else shown[:MOST_ROWS]
    times = clocks(c.saved_at if isinstance(c, Checkpoint) else c.at for c in items)
    rows = [
        _checkpoint_row(c, at, state, resume) if isinstance(c, Checkpoint) else _failed_row(c, at)
        for c, at in zip(items, times, strict=True)
    ]
    table = table_html(CHECKPOINTS, rows, label="Checkpoints")
    if len(items) >= len(every):
        return table
    return table + _way_to_all(state.run, "the newest" + (" and those around the resume point" if resume else ""))


def _beside(every: Sequence[Save], resume: LastGood | None) -> Sequence[Save]:
    """Return the saves that stand beside an incident: a browser takes half a second to draw hundreds of rows."""
    named = next((i for i, save in enumerate(every) if _is_named(save, resume)), 0)
    return [save for i, save in enumerate(every) if i < NEWEST or abs(i - named) <= AROUND]


def _is_named(save: Save, resume: LastGood | None) -> bool:
    return resume is not None and (save.attempt, save.step, save.path) == (resume.attempt, resume.step, resume.path)


def _way_to_all(run: str, shown: str) -> str:
    link = f'<a href="checkpoints?run={quote(run, safe="")}">all checkpoints of the run</a>'
    return f'<div class="lg-caption">Here are {shown}; see {link}.</div>'


def _checkpoint_row(c: Checkpoint, at: str, state: RunState, resume: LastGood | None) -> tuple[str, list[str]]:
    good = is_last_good(c, state)
    why = escape(sentence(c.reason)) or NOTHING
    said = "Last good." if good else "Resume point of this incident." if _is_named(c, resume) else ""
    open_tint = " lg-tr-open" if good and c.trust != "trusted" else ""
    cells = [
        f"<b>{step_text(c.step)}</b>" if good else step_text(c.step),
        str(c.attempt),
        trust_mark(c.trust),
        f"<b>{said}</b> {why}" if said else why,
        at,
        parent_text(c),
        check_text(c.checks.get("replica")),
        escape(hex_text(c.fingerprint[:16])) or NOTHING,
        bytes_text(c.bytes),
        escape(c.path),
    ]
    return (f"lg-tr-lastgood{open_tint}" if good else ""), cells


def _failed_row(f: FailedSave, at: str) -> tuple[str, list[str]]:
    refused = f.reason == "integrity"
    why = "A check failed at the save; nothing was written." if refused else escape(sentence(f.reason))
    mark = marked("tainted", "refused") if refused else marked("missing", "failed")
    cells = [
        step_text(f.step),
        str(f.attempt),
        mark,
        why,
        at,
        NOTHING,
        check_text(f.checks.get("replica")),
    ]
    return "", [*cells, NOTHING, NOTHING, escape(f.path)]


def parent_text(c: Checkpoint) -> str:
    """Return the step a checkpoint descends from, with its attempt where that is another one."""
    if not c.parent_known or c.parent is None:
        return "unknown" if not c.parent_known else NOTHING
    same = c.parent.attempt == c.attempt
    return step_text(c.parent.step) if same else f"{step_text(c.parent.step)} of attempt {c.parent.attempt}"


def check_text(result: Result | None) -> str:
    """Return what a check said at a save."""
    return {"passed": "passed", "failed": "failed", "not_run": "not run", None: NOTHING}[result]


def bytes_text(size: int | None) -> str:
    """Return a size as ``402 GB``, ``2.4 MB``; "–" when it is not known."""
    if size is None:
        return NOTHING
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
