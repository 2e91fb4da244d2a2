"""Draw an incident's timeline with altair: lanes top to bottom, UTC along x, the steps in a lane of their own.

The entries come from :mod:`lastgood.timeline`; here is only how they look. Labels stand at the right of their marks;
one that would meet the next mark of its lane is dropped (the tooltip has them all), one that would leave the picture
stands at the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import altair as alt

from lastgood.events import CHECKS
from lastgood.state import Incident, Point, RunState
from lastgood.timeline import SAID_KINDS, StepClock, TimelineEntry, condensed, entries, lanes
from lastgood.wording import clock_text, moment, ranks_text
from lastgood_console.components.chart_style import band, dressed, rows
from lastgood_console.export.lane import IMPORTANCE, lowered
from lastgood_console.export.tokens import ThemeName, theme

LANE_HEIGHT: Final = 26
NEAR: Final = 12.0
"""Marks of two alerts that are nearer than this, in pixels, hide each other."""
LOWER: Final = 7
Lower = frozenset[TimelineEntry]
"""The alerts that stand lower in their lane."""
FREE_SHARE: Final = 0.08
"""Room beside "now" for labels, at least."""
MOST_FREE_SHARE: Final = 0.35
PLOT_WIDTH: Final = 1100.0
"""Width in pixels for which labels are kept apart."""
LETTER_WIDTH: Final = 5.6
"""Mean width in pixels of a letter of an 11 px label."""

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


@dataclass(frozen=True, slots=True)
class Domain:
    """The shown time: from ``low`` to ``high``, with ``now`` before ``high``."""

    low: datetime
    now: datetime
    high: datetime

    def pixels(self, time: str) -> float:
        """Return where a time lies, in pixels from the left."""
        return PLOT_WIDTH * ((moment(time) - self.low) / (self.high - self.low))


def timeline_chart(state: RunState, incident: Incident, name: ThemeName) -> alt.LayerChart:
    """Return the chart, in the colours of a theme."""
    found = _at_the_edge(condensed(entries(state, incident)))
    shown = lanes(found)
    domain = _domain(found)
    axis = alt.Axis(format=_format(domain), title=None, gridOpacity=0.5, tickCount=9, labelOverlap=True)
    x = alt.X("at:T", scale=alt.Scale(type="utc"), axis=axis)
    y = alt.Y("lane:N", sort=list(shown), title=None, scale=alt.Scale(domain=list(shown)),
              axis=alt.Axis(domain=False, ticks=False, grid=False, labelPadding=8, labelLimit=90))  # fmt: skip
    lower = _lower(found, domain)
    layers = [
        *_window(state, incident, x, name),
        *_spans(found, lower, x, y, name),
        *_marks(_distinct(found, domain), lower, x, y, name),
    ]
    layers += [*_labels(found, domain, x, y, name), *_now(state, domain, x, name)]
    zoom = alt.selection_interval(bind="scales", encodings=["x"])
    layers[-1] = layers[-1].add_params(zoom)
    return dressed(layers, name, LANE_HEIGHT * len(shown))


def _at_the_edge(found: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Put what people said long after everything else at the edge: it must not squeeze the rest."""
    end = max((e.until for e in found if e.kind not in SAID_KINDS), default="")
    return [replace(e, at=end, until=end) if e.kind in SAID_KINDS and e.at > end > "" else e for e in found]


def _domain(found: Sequence[TimelineEntry]) -> Domain:
    low = moment(min(e.at for e in found))
    now = moment(max(e.until for e in found))
    span = max(now - low, timedelta(seconds=1))
    return Domain(low - span * 0.01, now, now + span * _free_share(found, low, span))


def _free_share(found: Sequence[TimelineEntry], low: datetime, span: timedelta) -> float:
    """Return how much room beside "now" the labels of the last marks need."""
    wanted = FREE_SHARE
    for entry in found:
        width = LETTER_WIDTH * len(label_of(entry)) + 20
        if label_of(entry) and width < PLOT_WIDTH / 2:
            at = (moment(_anchor(entry)) - low) / span
            wanted = max(wanted, at * PLOT_WIDTH / (PLOT_WIDTH - width) - 1)
    return min(wanted, MOST_FREE_SHARE)


def _format(domain: Domain) -> str:
    span = domain.high - domain.low
    return "%H:%M:%S" if span < timedelta(minutes=12) else "%H:%M" if span < timedelta(days=1) else "%d %b %H:%M"


def _utc(time: datetime) -> alt.DateTime:
    return alt.DateTime(utc=True, year=time.year, month=time.month, date=time.day, hours=time.hour,
                        minutes=time.minute, seconds=time.second, milliseconds=time.microsecond // 1000)  # fmt: skip


def _row(entry: TimelineEntry) -> dict[str, Any]:
    return {
        "lane": entry.lane,
        "at": entry.at,
        "until": entry.until,
        "event": entry.text,
        "happened": entry.happened,
        "known": f"{clock_text(entry.known_at)} UTC",
        "by": entry.who,
    }


_TOOLTIP: Final = [alt.Tooltip(f"{name}:N") for name in ("event", "happened", "known", "by")]


def _window(state: RunState, incident: Incident, x: alt.X, name: ThemeName) -> list[alt.Chart]:
    window = incident.window
    if window is None or window.contained:
        return []
    clock = StepClock(state)
    start = clock.at(Point(window.start_attempt, window.start))
    end = clock.at(Point(window.end_attempt, window.end))
    return band(start, max(start, end), x, "T", name) if start and end else []


# spans: attempts, per-step checks, checks not run, restarts, alerts, the way from a window's start to its finding


def _spans(found: Sequence[TimelineEntry], lower: Lower, x: alt.X, y: alt.Y, name: ThemeName) -> list[alt.Chart]:
    t = theme(name)
    styles: tuple[tuple[set[str], dict[str, Any]], ...] = (
        ({"attempt"}, {"height": 15, "color": t["peer_t"]}),
        ({"restart"}, {"height": 8, "color": t["line2"]}),
        ({"ran"}, {"height": 3, "color": t["trusted"]}),
    )
    out = [_bars([e for e in found if e.kind in kinds], x, y, style) for kinds, style in styles]
    off = [e for e in found if e.kind == "not_run" and e.until > e.at]
    out.append(_rules(off, x, y, {"color": t["missing"], "strokeDash": [1, 3], "strokeWidth": 1.5}))
    back = [e for e in found if e.kind == "finding" and e.known_at > e.at]
    colour = t["tainted"] if any(e.tone in {"accused", "confirmed"} for e in back) else t["suspect"]
    out.append(_rules(back, x, y, {"color": colour, "strokeDash": [2, 3], "strokeWidth": 1.5}))
    for tone in ("info", "warning", "critical"):
        alerts = [e for e in found if e.lane == "alerts" and e.tone == tone and e.until > e.at]
        for style, same in _by_height(alerts, lower):
            out.append(_rules(same, x, y, {"color": t[_COLOURS[tone]], "strokeWidth": 1.5} | style))
    return [layer for layer in out if layer is not None]


def _bars(found: Sequence[TimelineEntry], x: alt.X, y: alt.Y, style: dict[str, Any]) -> Any:
    if not found:
        return None
    base = alt.Chart(rows([_row(e) for e in found])).mark_bar(**style)
    return base.encode(x=x, x2=alt.X2("until"), y=y, tooltip=_TOOLTIP)


def _rules(found: Sequence[TimelineEntry], x: alt.X, y: alt.Y, style: dict[str, Any]) -> Any:
    if not found:
        return None
    values = [_row(e) | {"until": e.known_at if e.kind == "finding" else e.until} for e in found]
    return alt.Chart(rows(values)).mark_rule(**style).encode(x=x, x2=alt.X2("until"), y=y, tooltip=_TOOLTIP)


# marks


def _lower(found: Sequence[TimelineEntry], domain: Domain) -> Lower:
    """Return which alerts stand lower in their lane, since they would hide or be hidden."""
    alerts = [e for e in found if e.lane == "alerts"]
    low = lowered([(domain.pixels(e.at), e.tone) for e in alerts], NEAR)
    return frozenset(e for e, is_low in zip(alerts, low, strict=True) if is_low)


def _by_height(found: Sequence[TimelineEntry], lower: Lower) -> Iterator[tuple[dict[str, Any], list[TimelineEntry]]]:
    """Yield the entries of the lane's middle, and those that stand lower, each with its place."""
    yield {}, [e for e in found if e not in lower]
    yield {"yOffset": LOWER}, [e for e in found if e in lower]


def _marks(found: Sequence[TimelineEntry], lower: Lower, x: alt.X, y: alt.Y, name: ThemeName) -> list[alt.Chart]:
    t = theme(name)
    out = []
    ticks = [e for e in found if e.kind == "passed"]
    if ticks:
        data = rows([_row(e) for e in ticks])
        out.append(alt.Chart(data).mark_tick(orient="vertical", thickness=3, size=11, opacity=1, color=t["trusted"])
                   .encode(x=x, y=y, tooltip=_TOOLTIP))  # fmt: skip
    points = [e for e in found if _is_point(e)]
    for tone in sorted({e.tone for e in points}, key=lambda tone: (IMPORTANCE.get(tone, 0), tone)):
        for place, same in _by_height([e for e in points if e.tone == tone], lower):
            if same:
                out += _points([_point(e) for e in same], tone, place, x, y, t)
    return out


def _distinct(found: Sequence[TimelineEntry], domain: Domain) -> list[TimelineEntry]:
    """Leave out a verdict that would lie on its finding; the table has both."""
    known = [domain.pixels(e.known_at) for e in found if e.kind == "finding"]
    near = [e for e in found if e.kind == "verdict" and any(abs(domain.pixels(e.at) - x) < 24 for x in known)]
    return [e for e in found if e not in near]


def _is_point(entry: TimelineEntry) -> bool:
    if entry.kind in {"attempt", "step", "ran", "passed", "restart", "started", "ended"}:
        return False
    return entry.kind != "not_run" or entry.until == entry.at


def _point(entry: TimelineEntry) -> dict[str, Any]:
    """A finding stands where it became known, everything else where it happened."""
    return _row(entry) | ({"at": entry.known_at} if entry.kind == "finding" else {})


def _points(
    values: list[dict[str, Any]], tone: str, place: dict[str, Any], x: alt.X, y: alt.Y, t: dict[str, str]
) -> list[alt.Chart]:
    colour, glyph = t[_COLOURS[tone]], _GLYPHS.get(tone)
    hollow = tone in _HOLLOW
    size = 60 if tone == "note" else 150 if glyph else 110
    style: dict[str, Any] = {"shape": _SHAPES.get(tone, "circle"), "size": size, "opacity": 1, "stroke": colour} | place
    style |= {"fill": t["bg"], "strokeWidth": 1.5} if hollow else {"fill": colour, "strokeWidth": 0}
    if tone in {"missing", "unreadable"}:
        style["strokeDash"] = [3, 2]
    base = alt.Chart(rows(values)).encode(x=x, y=y, tooltip=_TOOLTIP)
    layers = [base.mark_point(**style)]
    if glyph:
        ink = colour if hollow else t["on"]
        down = 2 if tone == "suspect" else 0.5
        layers.append(base.mark_text(text=glyph, color=ink, fontSize=10, fontWeight="bold", dy=down, **place))
    return layers


# labels


def _labels(found: Sequence[TimelineEntry], domain: Domain, x: alt.X, y: alt.Y, name: ThemeName) -> list[alt.Chart]:
    t = theme(name)
    right, left = _placed(found, domain)
    inside = [_row(e) | {"label": e.text} for e in found if e.kind == "attempt" and _fits(e, domain)]
    steps = [_row(e) | {"label": e.text} for e in _apart([e for e in found if e.kind == "step"], domain)]
    styles: tuple[tuple[list[dict[str, Any]], dict[str, Any]], ...] = (
        (inside, {"align": "left", "dx": 6, "color": t["ink"]}),
        (steps, {"align": "left", "dx": 3, "color": t["ink3"]}),
        ([row for row in right if row["lane"] != "alerts"], {"align": "left", "dx": 11, "color": t["ink2"]}),
        ([row for row in left if row["lane"] != "alerts"], {"align": "right", "dx": -11, "color": t["ink2"]}),
        # an alert lasts: its label stands above its line
        ([row for row in right if row["lane"] == "alerts"], {"align": "left", "dx": 9, "dy": -7, "color": t["ink2"]}),
        ([row for row in left if row["lane"] == "alerts"], {"align": "right", "dx": -9, "dy": -7, "color": t["ink2"]}),
    )
    return [
        alt.Chart(rows(values)).mark_text(baseline="middle", fontSize=11, **style).encode(x=x, y=y, text="label:N")
        for values, style in styles
        if values
    ]


def label_of(entry: TimelineEntry) -> str:
    """Return the short label beside a mark; empty when the mark says it."""
    match entry.kind:
        case "finding":
            return f"{_subject(entry.text)} · known {clock_text(entry.known_at)}"
        case "alert" if entry.text.endswith(" resolved"):
            return ""
        case "note" | "action" | "restart":
            return entry.text
        case "alert":
            return entry.text.split(":")[0].split(" fired about ")[0]  # step and severity are drawn
        case "excursion" | "recovered" | "closed" | "refused" | "failed_save":
            return entry.text.split(":")[0]
        case "not_run" if entry.lane in CHECKS and entry.until > entry.at:
            return "not run"
        case _:
            return ""


def _subject(text: str) -> str:
    """Shorten ``Replay failed: rank 3, layers.2.mlp.up`` to ``replay · rank 3``."""
    what, _, who = text.partition(": ")
    return " · ".join([what.split(" failed")[0].lower(), *([who.split(",")[0]] if who else [])])


def _placed(found: Sequence[TimelineEntry], domain: Domain) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the labels that stand right of their mark and those left of it; the others are dropped."""
    right: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    for lane in {e.lane for e in found}:
        marks = sorted((e for e in found if e.lane == lane and e.kind != "verdict"), key=_in_turn)
        free_from = 0.0
        for entry, after in zip(marks, [*marks[1:], None], strict=True):
            limit = domain.pixels(_mark_start(after)) if after else PLOT_WIDTH
            label, start = label_of(entry), domain.pixels(_anchor(entry))
            width = LETTER_WIDTH * len(label) + 14
            row = _row(entry) | {"label": label}
            if label and start + width <= limit:
                right.append(row | {"at": _anchor(entry)})
                free_from = start + width
                continue
            if label and domain.pixels(_mark_start(entry)) - width >= free_from and entry.kind != "finding":
                left.append(row | {"at": _mark_start(entry)})
            free_from = start + 10
    return right, left


def _in_turn(entry: TimelineEntry) -> tuple[str, int]:
    """Of two marks at the same place the right label is the second one's, and the more important one's."""
    return _anchor(entry), IMPORTANCE.get(entry.tone, 0)


def _anchor(entry: TimelineEntry) -> str:
    if entry.kind == "alert":
        return entry.at
    return entry.known_at if entry.kind == "finding" else entry.until


def _mark_start(entry: TimelineEntry) -> str:
    return entry.known_at if entry.kind == "finding" else entry.at


def _fits(entry: TimelineEntry, domain: Domain) -> bool:
    return domain.pixels(entry.until) - domain.pixels(entry.at) >= LETTER_WIDTH * len(entry.text) + 10


def _apart(steps: Sequence[TimelineEntry], domain: Domain) -> list[TimelineEntry]:
    """Return the step numbers that do not meet."""
    kept: list[TimelineEntry] = []
    for entry in sorted(steps, key=lambda e: e.at):
        if not kept or domain.pixels(entry.at) - domain.pixels(kept[-1].at) >= LETTER_WIDTH * len(kept[-1].text) + 12:
            kept.append(entry)
    return kept


def _now(state: RunState, domain: Domain, x: alt.X, name: ThemeName) -> list[alt.Chart]:
    t = theme(name)
    data = rows([{"at": domain.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}])
    colour = t["ink3"] if state.active else t["line"]
    # the shown time is said in one layer: several that say it are told to be in conflict
    framed = x.scale(alt.Scale(type="utc", domain=[_utc(domain.low), _utc(domain.high)], nice=False))
    return [alt.Chart(data).mark_rule(color=colour, strokeWidth=1).encode(x=framed)]


def spoken(state: RunState, incident: Incident) -> str:
    """Return what the picture is, for those who do not see it; the table below it has the same entries."""
    ranks = ranks_text(s.rank for s in incident.suspects) if incident.suspects else "no rank named"
    return f"Timeline of incident {incident.id} of run {state.run}: {ranks}. The table below lists the same events."
