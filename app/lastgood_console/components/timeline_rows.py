"""Turn the entries of an incident's timeline into the rows that its picture is drawn from. Pure.

Times are milliseconds since 1970, ``y`` is in pixels from the top. The rows say which mark stands where and how it
looks; :mod:`lastgood_console.components.timeline_chart` says how they are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lastgood.events import CHECKS
from lastgood.state import Incident, Point, RunState
from lastgood.step_clock import StepClock
from lastgood.timeline import LANES, TimelineEntry, entries_of, others
from lastgood.wording import clock_text
from lastgood_console.components.time_frame import Frame, attempts_in, stamp, unix
from lastgood_console.components.timeline_chart import LANE_HEIGHT, Picture, Row
from lastgood_console.components.timeline_labels import WIDTH, label_rows, name_rows, step_rows, untold_row
from lastgood_console.export.lane import IMPORTANCE, lowered
from lastgood_console.export.thinning import NEAR_MARKS, place, thinned
from lastgood_console.export.tokens import ThemeName, theme

LOWER: Final = 7
"""So many pixels an alert that would hide another stands lower in their lane."""

_COLOURS: Final = {
    "neutral": "ink2", "trusted": "trusted", "unverified": "unverified", "suspect": "suspect", "tainted": "tainted",
    "missing": "missing", "unreadable": "missing", "accused": "tainted", "candidate": "suspect",
    "cleared": "unverified", "confirmed": "tainted", "critical": "tainted", "warning": "suspect", "info": "ink2",
    "note": "ink2",
}  # fmt: skip
_HOLLOW: Final = frozenset({"unverified", "candidate", "cleared", "missing", "unreadable", "note", "info"})
_SHAPES: Final = {
    "suspect": "triangle-up", "tainted": "square", "unreadable": "square", "accused": "diamond",
    "candidate": "diamond", "confirmed": "diamond", "critical": "triangle-down", "warning": "triangle-down",
    "note": "square",
}  # fmt: skip
_GLYPHS: Final = {"trusted": "✓", "unverified": "?", "suspect": "!", "tainted": "✗", "cleared": "✓"}
_BAR_HEIGHTS: Final = {"attempt": 15.0, "restart": 8.0, "ran": 3.0}
_BAR_COLOURS: Final = {"attempt": "peer_t", "restart": "line2", "ran": "trusted"}
_NO_POINTS: Final = frozenset({"attempt", "step", "ran", "passed", "restart", "started", "ended"})


def picture(state: RunState, incident: Incident, clock: StepClock, frame: Frame, name: ThemeName) -> Picture:
    """Return the timeline of a time."""
    shown = attempts_in(state, frame)
    everything = [*entries_of(state, incident, shown, clock), *others(state, incident)]
    found = thinned(_around(everything, frame), frame.span / WIDTH, stamp(frame.now), _named(state, incident))
    drawn = _lanes(state, everything)
    middles = {lane: LANE_HEIGHT * (n + 0.5) for n, lane in enumerate(drawn)}
    rows = _Rows(middles, frame, theme(name))
    data: dict[str, list[Row]] = {
        "frame": [{"at": 1000 * frame.low, "until": 1000 * frame.high}],
        "now": [{"at": 1000 * frame.now, "fill": theme(name)["ink3" if state.active else "line"]}],
        "band": _band(incident, clock),
        **rows.spans(found), **rows.marks(found),
        "labels": [*label_rows(found, middles, theme(name)), *_untold(state, everything, middles, theme(name))],
        "names": name_rows(found, middles, theme(name)),
        "steps": step_rows(shown, incident, clock, frame, middles["steps"], theme(name)),
    }  # fmt: skip
    return Picture(drawn, data)


def _lanes(state: RunState, everything: Sequence[TimelineEntry]) -> tuple[str, ...]:
    """Return the lanes of a run's pictures: the same wherever one zooms, so that the picture stays the same one."""
    used = {"attempts", "steps", "findings", *CHECKS, *(e.lane for e in everything)}
    used |= {"saves"} if state.checkpoints or state.failed_saves else set()
    used |= {"restarts"} if len(state.attempts) > 1 else set()
    used |= {"saves", "alerts", "restarts"} if state.origin == "metrics" else set()
    return tuple(lane for lane in LANES if lane in used)


def _untold(
    state: RunState, everything: Sequence[TimelineEntry], middles: Mapping[str, float], colours: Mapping[str, str]
) -> list[Row]:
    """Return a label for each lane that is empty because metrics do not tell what would stand there."""
    if state.origin != "metrics":
        return []
    told = {"steps", *(e.lane for e in everything)}
    return [untold_row(y, colours["ink3"]) for lane, y in middles.items() if lane not in told]


def _around(found: Iterable[TimelineEntry], frame: Frame) -> list[TimelineEntry]:
    """Return what lies in the shown time or just beside it; what people said after the run stands at its end."""
    low, high, now = stamp(frame.low - frame.span), stamp(frame.high + frame.span), stamp(frame.now)
    return [e for e in found if max(e.until, e.known_at) >= low and min(e.at, now) <= high]


def _named(state: RunState, incident: Incident) -> frozenset[tuple[int | None, int | None]]:
    """Return the saves that the page speaks of: the last good one and the one to resume from."""
    spoken: list[Any] = [save for save in (state.last_good, incident.resume) if save is not None]
    return frozenset((save.attempt, save.step) for save in spoken)


def _band(incident: Incident, clock: StepClock) -> list[Row]:
    window = incident.window
    if window is None or window.contained:
        return []
    start = clock.at(Point(window.start_attempt, window.start))
    end = clock.at(Point(window.end_attempt, window.end))
    return [{"at": 1000 * unix(start), "until": 1000 * unix(max(start, end))}] if start and end else []


def row_of(entry: TimelineEntry, at: str, until: str, y: float) -> Row:
    """Return what every mark and span has: where it stands and what its tooltip says."""
    return {
        "at": 1000 * unix(at), "until": 1000 * unix(until), "y": y, "event": entry.text, "happened": entry.happened,
        "known": f"{clock_text(entry.known_at)} UTC", "by": entry.who,
    }  # fmt: skip


class _Rows:
    """Make the rows of spans and marks. ``middles``: of the lanes, in pixels."""

    def __init__(self, middles: Mapping[str, float], frame: Frame, colours: Mapping[str, str]) -> None:
        self._middles, self._frame, self._colours = middles, frame, colours

    def spans(self, found: Sequence[TimelineEntry]) -> dict[str, list[Row]]:
        """Return bars and lines: attempts, checks, restarts, alerts, the way back from a finding into its window."""
        out: dict[str, list[Row]] = {"bars": [], "dotted": [], "dashed": [], "lines": []}
        low = self._lower(found)
        for e in found:
            if e.kind in _BAR_HEIGHTS:
                out["bars"].append(self._bar(e))
            elif e.kind == "not_run" and e.until > e.at:
                out["dotted"].append(self._line(e, e.until, "missing"))
            elif e.kind == "finding" and e.known_at > e.at:
                out["dashed"].append(self._line(e, e.known_at, _COLOURS[e.tone]))
            elif e.lane == "alerts" and e.until > e.at:
                out["lines"].append(self._line(e, e.until, _COLOURS[e.tone], LOWER * (e in low)))
        return out

    def _bar(self, e: TimelineEntry) -> Row:
        colour = self._colours[_BAR_COLOURS[e.kind]]
        half = _BAR_HEIGHTS[e.kind] / 2
        y = self._middles[e.lane]
        # neighbouring attempts are told apart by their edges; everything else is seen however short it is
        edge = self._colours["bg"] if e.kind == "attempt" else colour if e.kind == "restart" else "transparent"
        return row_of(e, e.at, e.until, y - half) | {"y2": y + half, "fill": colour, "edge": edge}

    def _line(self, e: TimelineEntry, until: str, colour: str, down: float = 0.0) -> Row:
        return row_of(e, e.at, until, self._middles[e.lane] + down) | {"fill": self._colours[colour]}

    def marks(self, found: Sequence[TimelineEntry]) -> dict[str, list[Row]]:
        """Return passes, marks and the glyphs in them, what is graver later, so it lies on top."""
        low = self._lower(found)
        out: dict[str, list[Row]] = {"ticks": [], "ghosts": [], "points": [], "glyphs": []}
        for e in sorted(found, key=lambda e: (e.kind == "finding", IMPORTANCE.get(e.tone, 0), e.tone)):
            y = self._middles[e.lane] + LOWER * (e in low)
            if e.kind == "passed":
                out["ticks"].append(row_of(e, e.at, e.at, y) | {"fill": self._colours["trusted"]})
            elif _is_point(e):
                point = row_of(e, place(e), place(e), y) | self._look(e.tone)
                out["ghosts" if e.tone in {"missing", "unreadable"} else "points"].append(point)
                if glyph := _GLYPHS.get(e.tone):
                    out["glyphs"].append(self._glyph(point, e.tone, glyph))
        return out

    def _look(self, tone: str) -> Row:
        colour, hollow = self._colours[_COLOURS[tone]], tone in _HOLLOW
        return {
            "shape": _SHAPES.get(tone, "circle"), "stroke": colour, "strokeWidth": 1.5 if hollow else 0.0,
            "fill": self._colours["bg"] if hollow else colour,
            "size": 60.0 if tone == "note" else 150.0 if tone in _GLYPHS else 110.0,
        }  # fmt: skip

    def _glyph(self, point: Row, tone: str, glyph: str) -> Row:
        ink = point["stroke"] if tone in _HOLLOW else self._colours["on"]
        down = 2.0 if tone == "suspect" else 0.5
        return {"at": point["at"], "y": point["y"], "glyph": glyph, "ink": ink, "dy": down}

    def _lower(self, found: Sequence[TimelineEntry]) -> frozenset[TimelineEntry]:
        """Return which alerts stand lower in their lane, since they would hide or be hidden."""
        alerts = [e for e in found if e.lane == "alerts"]
        pixel = self._frame.span / WIDTH
        low = lowered([(unix(e.at) / pixel, e.tone) for e in alerts], NEAR_MARKS)
        return frozenset(e for e, is_low in zip(alerts, low, strict=True) if is_low)


def _is_point(entry: TimelineEntry) -> bool:
    if entry.kind in _NO_POINTS:
        return False
    return entry.kind != "not_run" or entry.until == entry.at
