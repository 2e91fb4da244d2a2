"""Draw tables as HTML: hairlines, two clocks, a word beside every symbol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastgood.events import ProgressData
from lastgood.state import Attempt, Incident, Place
from lastgood.timeline import TimelineEntry
from lastgood.wording import (
    clock_text,
    dated_clock,
    device_text,
    has_gpu,
    hex_text,
    moment,
    quantity_text,
    step_text,
    window_text,
)
from lastgood_alerts.rules import RULES
from lastgood_console.characters import escape
from lastgood_console.components.decision import sentence
from lastgood_console.components.symbols import result_mark, status_mark
from lastgood_console.export.story import split

MOST_ROWS: Final = 200
NOTHING: Final = "–"
_BOXED: Final = frozenset({"named", "hex"})
RULE: Final = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head; ``kind``: "" (text), "num" (right-aligned), "nowrap", "named", "hex" or "prose".

    What others have named may be of any length: "named" and "hex" go on in the next line where it is long.
    """

    head: str
    kind: str = ""


def table_html(columns: Sequence[Column], rows: Iterable[tuple[str, Sequence[str]]], *, label: str) -> str:
    """Return a table. ``rows``: (row classes, cells); cells are HTML already, everything else is escaped here."""
    head = "".join(f'<th scope="col"{_class(c)}>{escape(c.head)}</th>' for c in columns)
    body = "".join(_row_html(columns, classes, cells) for classes, cells in rows)
    table = f'<table class="lg-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="lg-scroll" tabindex="0" role="region" aria-label="{escape(label, quote=True)}">{table}</div>'


def _row_html(columns: Sequence[Column], classes: str, cells: Sequence[str]) -> str:
    inner = "".join(
        f"<td{_class(c)}>{_boxed(cell) if c.kind in _BOXED else cell}</td>"
        for c, cell in zip(columns, cells, strict=True)
    )
    return f'<tr class="{escape(classes, quote=True)}">{inner}</tr>' if classes else f"<tr>{inner}</tr>"


def _boxed(cell: str) -> str:
    """Return a cell in a box of its own: a cell of a table takes no greatest width."""
    return f'<div class="lg-box">{cell}</div>'


def _class(column: Column) -> str:
    return f' class="lg-{column.kind}"' if column.kind else ""


def runbook_link(name: str) -> str:
    """Return the name of a rule as a link to its runbook; of a rule that is not ours, the name alone.

    The address is relative, so it holds behind a proxy too: every page stands at the same depth.
    """
    return f'<a href="runbook?name={name}">{name}</a>' if name in RULE else escape(name)


# evidence


EVIDENCE: Final = (
    Column("Check", "nowrap"), Column("Result", "nowrap"), Column("Happened", "nowrap"),
    Column("Known (UTC)", "nowrap"), Column("Subject", "named"), Column("Observed", "hex"), Column("Expected", "hex"),
    Column("Evidence", "prose"),
)  # fmt: skip


def evidence_html(evidence: Sequence[Mapping[str, Any]]) -> str:
    """Return what the checks said about an incident: the ``evidence`` of its document, as the exports have it."""
    known = clocks(row["known_at"] for row in evidence)
    rows = [("", _evidence_row(row, at)) for row, at in zip(evidence, known, strict=True)]
    return table_html(EVIDENCE, rows, label="Evidence")


def clocks(times: Iterable[str | None]) -> list[str]:
    """Return the clocks of a column: the first with its day, and each that is on another day than the one before."""
    shown, before = [], ""
    for time in times:
        shown.append(dated_clock(time, before) if time else NOTHING)
        before = time or before
    return shown


def _evidence_row(row: Mapping[str, Any], known: str) -> list[str]:
    where = f'<small class="lg-hex">{escape(row["where"])}</small>' if row["where"] else ""
    detail = sentence(row["detail"]) if row["detail"] else NOTHING
    return [
        escape(row["check"]),
        result_mark(row["result"]),
        escape(row["happened"]) or NOTHING,
        known,
        (escape(row["subject"]) or NOTHING) + where,
        escape(hex_text(row["observed"])) or NOTHING,
        escape(hex_text(row["expected"])) or NOTHING,
        escape(detail),
    ]


# what happened, and when we knew


STORY: Final = (
    Column("Happened", "nowrap"),
    Column("Known (UTC)", "nowrap"),
    Column("Event", "prose"),
    Column("By", "named"),
)


def story_html(told: Iterable[TimelineEntry]) -> str:
    """Return the table "What happened, and when we knew"."""
    found = list(told)[:MOST_ROWS]
    before = ["", *(entry.known_at for entry in found)]  # the first row has its day, and each that is on another
    rows = [
        ("", [_happened(e, day), dated_clock(e.known_at, day), _event(e), f"<bdi>{escape(e.who)}</bdi>"])
        for e, day in zip(found, before, strict=False)
    ]
    return table_html(STORY, rows, label="What happened, and when we knew")


def _event(entry: TimelineEntry) -> str:
    """Return our words and what others said after them, which has a direction of its own."""
    words, said = split(entry.kind, entry.text)
    rule, space, rest = words.partition(" ") if entry.kind == "alert" else ("", "", words)
    ours = f"<bdi>{runbook_link(rule)}{space}{escape(rest)}</bdi>"
    return ours + (f'<bdi class="lg-said">{escape(said)}</bdi>' if said else "")


def _happened(entry: TimelineEntry, day: str) -> str:
    timed = entry.happened == clock_text(entry.at)
    return dated_clock(entry.at, day) if timed else escape(entry.happened)


# incidents


INCIDENT_HEADS: Final = ("Run", "Verdict", "Device", "Window", "Resume", "Known (UTC)", "State", "Cost")


def incident_cells(incident: Incident, standing: str, now: str) -> list[str]:
    """Return the cells of an incident's row after its link, as HTML. ``now``: RFC 3339."""
    resume = step_text(incident.resume.step) if incident.resume and incident.resume.exists else "none"
    known = clock_text(incident.opened_at)
    if not incident.opened_at.startswith(now[:10]):
        known = f"{moment(incident.opened_at):%d %b %H:%M}"
    cells = [
        escape(incident.run),
        status_mark(incident.status),
        escape(_devices(incident.suspects)),
        escape(window_text(incident.window)),
        resume,
        known,
        escape(standing),
        cost_words(incident),
    ]
    return cells


def cost_words(incident: Incident) -> str:
    """Return the device hours that an incident has cost."""
    unit = "GPU-h" if any(has_gpu(s) for s in incident.suspects) else "device-h"
    hours = incident.cost.device_hours
    return f"{quantity_text(hours)} {unit}" if hours else "0"


def _devices(suspects: Sequence[Place]) -> str:
    if not suspects:
        return NOTHING
    return device_text(suspects[0]) if len(suspects) == 1 else f"{len(suspects)} candidates"


def attempts_text(attempt: Attempt | None, progress: ProgressData | None = None) -> str:
    """Return ``attempt 2 · step 96 · 4 ranks``."""
    if attempt is None:
        return "no attempt yet"
    step = max(attempt.last_step, progress.get("step", 0) if progress else 0)
    ranks = f"{step_text(attempt.world_size)} rank{'' if attempt.world_size == 1 else 's'}"
    return f"attempt {attempt.number} · step {step_text(step)} · {ranks}"
