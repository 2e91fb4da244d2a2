"""Draw an incident's timeline as SVG: no library, no script, the same document gives the same bytes.

Lanes run top to bottom, UTC runs left to right. The window is hatched, since a report is printed: its left edge is
dashed (that step is outside), its right edge solid (inside). Labels that would meet are dropped; the table below the
picture has them all. Coordinates have one decimal; text widths are estimated, so a label is dropped rather early.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any, Final

from lastgood import wording
from lastgood.timeline import SAID_KINDS
from lastgood_console.characters import isolated, one_line
from lastgood_console.export.document import entry_data, timeline_of
from lastgood_console.export.lane import IMPORTANCE, lowered
from lastgood_console.export.symbols import C, last_good_ring, line, num, rect, symbol
from lastgood_console.export.thinning import Save, thinned
from lastgood_console.export.tokens import BAND_OPACITY

WIDTH: Final = 690.0
LANE: Final = 21.0
LEFT: Final = 92.0
TOP: Final = 2.0
AXIS: Final = 20.0
FREE: Final = 0.09
"""Share of the width that stays free at the right, for labels of the last marks."""

NEAR: Final = 9.0
"""Marks of two alerts that are nearer than this hide each other."""
LOWER: Final = 6.5

_LETTER: Final = 6.2
"""Estimated width of a letter at 11 px."""

_SPACINGS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)

Entry = Mapping[str, Any]


@dataclass
class _Canvas:
    """The picture so far, and where its labels stand."""

    lanes: Sequence[str]
    low: datetime
    end: datetime
    high: datetime
    parts: list[str] = field(default_factory=list)
    taken: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    lower: set[int] = field(default_factory=set)  # identities of alerts that would hide another

    @property
    def bottom(self) -> float:
        return TOP + LANE * len(self.lanes)

    def x(self, time: str) -> float:
        """Return where a time lies; what people said later stands at the edge of the picture."""
        at = min(max(wording.moment(time), self.low), self.end)
        return LEFT + (at - self.low) / (self.high - self.low) * (WIDTH - LEFT)

    def y(self, lane: str) -> float:
        return TOP + LANE * (self.lanes.index(lane) + 0.5)

    def add(self, *parts: str) -> None:
        self.parts += parts

    def take(self, lane: str, low: float, high: float) -> None:
        self.taken.setdefault(lane, []).append((low, high))

    def free(self, lane: str, low: float, high: float) -> bool:
        return all(high <= a or low >= b for a, b in self.taken.get(lane, ()))

    def label(self, lane: str, x: float, text: str, *, dy: float = 4, colour: str = C["ink2"]) -> bool:
        """Write at the right of ``x`` if there is room, else at the left, else not at all; tell whether."""
        wide = width_of(text)
        for low, anchor in ((x, "start"), (x - wide - 22, "start")):
            if low >= LEFT and low + wide <= WIDTH and self.free(lane, low, low + wide):
                self.take(lane, low, low + wide)
                self.add(text_at(low, self.y(lane) + dy, text, colour, anchor))
                return True
        return False


def width_of(text: str) -> float:
    """Estimate the width of a label in pixels."""
    return len(text) * _LETTER + 2


def text_at(x: float, y: float, text: str, colour: str, anchor: str = "start", extra: str = "") -> str:
    """Return a label. A right-to-left text is isolated, so that it does not turn its surroundings round."""
    said = escape(isolated(one_line(text)))
    more = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{num(x)}" y="{num(y)}" fill="{colour}"{more}{" " + extra if extra else ""}>{said}</text>'


def timeline_svg(document: Mapping[str, Any]) -> str:
    """Return the timeline of an incident document as an SVG element."""
    told = [e for e in timeline_of(document) if e.at and e.until]
    if not told:
        return ""
    timed = [e for e in told if e.kind not in SAID_KINDS] or told
    low = min(wording.moment(e.at) for e in timed)
    end = max(wording.moment(e.until) for e in timed)
    span = max(end - low, timedelta(seconds=1)) / (1 - FREE)
    canvas = _Canvas(document["lanes"], low, end, low + span)
    shown = thinned(told, span.total_seconds() / (WIDTH - LEFT), max(e.until for e in timed), _named(document))
    entries: Sequence[Entry] = [entry_data(e) for e in (*shown, *(e for e in told if e.lane == "steps"))]
    _window(canvas, entries)
    _axis(canvas)
    _lane_names(canvas)
    for entry in entries:
        if entry["lane"] in ("alerts", "notes"):  # marks first: no label may cover the next mark
            canvas.take(entry["lane"], canvas.x(entry["at"]) - 6, canvas.x(entry["at"]) + 7)
    alerts = [e for e in entries if e["lane"] == "alerts"]
    low_ones = lowered([(canvas.x(e["at"]), e["tone"]) for e in alerts], NEAR)
    canvas.lower = {id(e) for e, is_low in zip(alerts, low_ones, strict=True) if is_low}
    for entry in sorted(entries, key=_importance):
        _DRAW.get(entry["kind"], _skip)(canvas, entry, document)
    for entry in sorted(alerts, key=lambda e: -IMPORTANCE.get(e["tone"], 0)):
        _alert_label(canvas, entry)
    now = canvas.x(end.isoformat())
    canvas.add(line(now, TOP, now, canvas.bottom, C["line2"]))
    return _frame(canvas, document)


def _named(document: Mapping[str, Any]) -> frozenset[Save]:
    """Return the saves that the report speaks of: the last good one and the one to resume from."""
    resume = document["resume"] or {}
    named = [(resume.get("attempt"), resume.get("step"))]
    named += [(save["attempt"], save["step"]) for save in document["checkpoints"] if save["last_good"]]
    return frozenset(named)


def _frame(canvas: _Canvas, document: Mapping[str, Any]) -> str:
    height = canvas.bottom + AXIS
    words = f"Timeline of incident {document['incident']['id']}: {document['words']['headline']}"
    name = escape(one_line(words), quote=True)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="timeline" role="img" aria-label="{name}" '
        f'viewBox="0 0 {num(WIDTH)} {num(height)}" width="{num(WIDTH)}" height="{num(height)}" font-size="11">'
    )
    hatch = (
        '<defs><pattern id="lg-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" stroke="{C["band"]}" stroke-width="1" '
        'stroke-opacity="0.5"/></pattern></defs>'
    )
    return "\n".join([head, hatch, *canvas.parts, "</svg>"])


def _importance(entry: Entry) -> tuple[int, int, str]:
    """Order of drawing: who is drawn first gets its label. What is grave lies on top; an alert's label comes later."""
    order = ("attempt", "ran", "not_run", "passed", "failed", "finding", "recovered", "closed", "saved", "refused")
    kind = str(entry["kind"])
    grave = IMPORTANCE.get(entry["tone"], 0) if entry["lane"] in ("alerts", "saves") else 0
    return (order.index(kind) if kind in order else len(order), grave, str(entry["at"]))


# what is behind the marks


def _window(canvas: _Canvas, entries: Sequence[Entry]) -> None:
    open_ones = [e for e in entries if e["kind"] == "finding" and e["at"] < e["until"]]
    if not open_ones:
        return
    left, right = canvas.x(min(e["at"] for e in open_ones)), canvas.x(max(e["until"] for e in open_ones))
    tall = canvas.bottom - TOP
    canvas.add(
        rect(left, TOP, right - left, tall, C["band"], f'fill-opacity="{BAND_OPACITY["light"]}"'),
        rect(left, TOP, right - left, tall, "url(#lg-hatch)"),
        line(left, TOP, left, canvas.bottom, C["edge"], 1.2, 'stroke-dasharray="4 3"'),
        line(right, TOP, right, canvas.bottom, C["edge"], 1.2),
    )


def _axis(canvas: _Canvas) -> None:
    for time, text in ticks(canvas.low, canvas.high):
        x = LEFT + (time - canvas.low) / (canvas.high - canvas.low) * (WIDTH - LEFT)
        canvas.add(line(x, TOP, x, canvas.bottom, C["line"], 1, 'stroke-opacity="0.6"'))
        if LEFT + 14 < x < WIDTH - 14:
            canvas.add(text_at(x, canvas.bottom + 14, text, C["ink3"], "middle"))
    canvas.add(line(LEFT - 6, canvas.bottom, WIDTH, canvas.bottom, C["line2"]))


def ticks(low: datetime, high: datetime) -> Iterator[tuple[datetime, str]]:
    """Yield five to ten round times between two times, with their labels."""
    seconds = (high - low).total_seconds()
    days = -(-seconds // (86_400 * 9)) or 1
    spacing = next((s for s in _SPACINGS if seconds / s <= 9), int(days) * 86_400)
    form = (
        "%H:%M:%S" if spacing < 60 else "%H:%M" if spacing < 43_200 else "%m-%d %H:%M" if spacing < 86_400 else "%m-%d"
    )
    at = -(-low.timestamp() // spacing) * spacing
    while at <= high.timestamp():
        time = datetime.fromtimestamp(at, UTC)
        yield time, time.strftime(form)
        at += spacing


def _lane_names(canvas: _Canvas) -> None:
    for lane in canvas.lanes:
        canvas.add(text_at(LEFT - 14, canvas.y(lane) + 4, lane, C["ink2"], "end"))


# the marks


def _skip(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    """Draw nothing: the table has it."""


def _attempt(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x1, x2, y = canvas.x(entry["at"]), canvas.x(entry["until"]), canvas.y("attempts")
    canvas.add(rect(x1, y - 7.5, x2 - x1, 15, C["peer_t"]))
    for text in (entry["text"], str(entry["text"]).partition(" · ")[0]):
        if width_of(text) + 8 <= x2 - x1:
            canvas.add(text_at(x1 + 5, y + 4, text, C["ink"]))
            return


def _step(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    wide = width_of(entry["text"])
    x = max(canvas.x(entry["at"]), LEFT - 8 + wide / 2)  # clear of the lane's name
    if canvas.free("steps", x - wide / 2 - 3, x + wide / 2 + 3):
        canvas.take("steps", x - wide / 2 - 3, x + wide / 2 + 3)
        canvas.add(text_at(x, canvas.y("steps") + 4, entry["text"], C["ink3"], "middle"))


def _ran(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x1, x2 = canvas.x(entry["at"]), canvas.x(entry["until"])
    canvas.add(rect(x1, canvas.y(entry["lane"]) - 1.5, x2 - x1, 3, C["trusted"]))


def _passed(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    canvas.add(rect(canvas.x(entry["at"]) - 1.5, canvas.y(entry["lane"]) - 5, 3, 10, C["trusted"]))


def _not_run(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x1, x2, y = canvas.x(entry["at"]), canvas.x(entry["until"]), canvas.y(entry["lane"])
    canvas.add(line(x1, y, max(x2, x1 + 6), y, C["missing"], 1.4, 'stroke-dasharray="1.4 3"'))
    canvas.take(entry["lane"], x1, x2)
    last = all(e["at"] <= entry["at"] for e in document["timeline"] if e["lane"] == entry["lane"])
    if last:
        canvas.label(entry["lane"], max(x2, x1 + 6) + 4, "not run", colour=C["ink3"])


def _failed(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    canvas.add(symbol("accused", canvas.x(entry["at"]), canvas.y(entry["lane"])))


def _finding(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x1, x2, y = canvas.x(entry["at"]), canvas.x(entry["until"]), canvas.y("findings")
    if x1 < x2 - 1:
        canvas.add(line(x1, y, x2, y, C["tainted"], 1.6, 'stroke-dasharray="1.8 2.6"'))
    canvas.add(symbol(entry["tone"], x2, y))
    canvas.take("findings", x1, x2 + 9)
    what, _, about = str(entry["text"]).partition(": ")
    who = what if what[0].isdecimal() else about.partition(",")[0]  # several findings are counted
    said = f"{who}, known {wording.clock_text(entry['known_at'])}"
    if not canvas.label("findings", x2 + 11, said, colour=C["ink"]):
        canvas.add(text_at(x2 - 11, y - 3.5, said, C["ink"], "end"))


def _outcome(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x = canvas.x(entry["at"])
    if canvas.free("findings", x - 8, x + 8):
        canvas.take("findings", x - 8, x + 8)
        canvas.add(symbol(entry["tone"], x, canvas.y("findings")))
        canvas.label("findings", x + 11, entry["kind"])


def _saved(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x, y = canvas.x(entry["at"]), canvas.y("saves")
    last_good = any(
        save["last_good"] and (save["attempt"], save["step"]) == (entry["attempt"], entry["step"])
        for save in document["checkpoints"]
    )
    canvas.add(symbol(entry["tone"], x, y), *([last_good_ring(x, y)] if last_good else []))


def _alert(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x1, x2, y = canvas.x(entry["at"]), canvas.x(entry["until"]), canvas.y("alerts")
    y += LOWER if id(entry) in canvas.lower else 0
    colour = {"critical": C["tainted"], "warning": C["suspect"]}.get(entry["tone"], C["ink2"])
    canvas.add(line(x1, y, x2, y, colour, 1.4), symbol(entry["tone"], x1, y))


def _alert_label(canvas: _Canvas, entry: Entry) -> None:
    said = str(entry["text"]).partition(": ")[0].partition(" fired about ")[0]  # step and severity are drawn
    if not said.endswith(" resolved"):  # the mark at the line's end says it
        canvas.label("alerts", canvas.x(entry["at"]) + 11, said, dy=-3.5)


def _restart(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x1, x2 = canvas.x(entry["at"]), canvas.x(entry["until"])
    canvas.add(rect(x1, canvas.y("restarts") - 4, x2 - x1, 8, C["line2"]))
    canvas.take("restarts", x1, x2)
    canvas.label("restarts", x2 + 5, str(entry["text"]).removeprefix("Restarted in "))


def _note(canvas: _Canvas, entry: Entry, document: Mapping[str, Any]) -> None:
    x, said = canvas.x(entry["at"]), f"{entry['who']}: {str(entry['text']).removeprefix('Note: ')}"
    canvas.add(symbol("note", x, canvas.y("notes")))
    canvas.label("notes", x + 9, said if len(said) <= 44 else f"{said[:43]}…")


_DRAW: Final = {
    "attempt": _attempt,
    "step": _step,
    "ran": _ran,
    "passed": _passed,
    "not_run": _not_run,
    "failed": _failed,
    "finding": _finding,
    "recovered": _outcome,
    "closed": _outcome,
    "saved": _saved,
    "refused": _saved,
    "failed_save": _saved,
    "alert": _alert,
    "excursion": _alert,
    "restart": _restart,
    "note": _note,
    "action": _note,
}
