"""Draw an incident's timeline with Vega-Lite: lanes top to bottom, UTC along x, the steps in a lane of their own.

The specification says nothing about the incident but which lanes it has: whatever changes stands in named data sets.
So a live refresh sends rows alone, and the browser keeps the zoom of a reader. Which marks are drawn is decided for
the shown time (:mod:`lastgood_console.export.thinning`); which labels, by the browser, which alone knows the width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastgood.state import Incident, RunState
from lastgood.wording import ranks_text
from lastgood_console.components.chart_style import config_of
from lastgood_console.export.tokens import BAND_OPACITY, ThemeName, theme

LANE_HEIGHT: Final = 26
ZOOM: Final = "zoom"
"""Name of the selection that is the zoom; it holds ``at``: [from, to] in milliseconds since 1970."""
TOOLTIP: Final = ("event", "happened", "known", "by")
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]
Spec = dict[str, Any]

_X: Final = {"field": "at", "type": "temporal"}
_CLOCKS: Final = {
    "milliseconds": "%H:%M:%S.%L", "seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M", "date": "%d %b",
    "day": "%d %b", "week": "%d %b", "month": "%d %b", "quarter": "%b %Y", "year": "%b %Y",
}  # fmt: skip
_FRAME: Final = "[data('frame')[0].at, data('frame')[0].until]"

# where a label may stand: right of its mark, up to the next one and the edge; else left of it, down to the label before
_AT: Final = "max(scale('x', datum.at), 0)"
_SEEN: Final = "scale('x', datum.until) >= 0 && scale('x', datum.at) <= width"
_RIGHT: Final = f"{_SEEN} && min(scale('x', datum.after), width) - {_AT} >= datum.w"
_LEFT: Final = (
    "scale('x', datum.start) <= width && "
    "scale('x', datum.start) - max(scale('x', datum.before) + datum.before_w, 0) >= datum.w"
)
_INSIDE: Final = f"min(scale('x', datum.until), width) - {_AT}"


@dataclass(frozen=True, slots=True)
class Picture:
    """A timeline to draw. ``rows``: the named data sets, whatever the lanes."""

    lanes: Sequence[str]
    rows: Rows


def timeline_spec(lanes: Sequence[str], name: ThemeName) -> Spec:
    """Return the specification of a timeline with these lanes, in the colours of a theme, without its data."""
    height = LANE_HEIGHT * len(lanes)
    y = _y(lanes, height)
    layers = [*_band(height, name), *_spans(y), *_marks(y), *_labels(y, name), _now(name), _frame(height)]
    return {
        "height": height, "width": "container", "padding": {"left": 0, "right": 4, "top": 2, "bottom": 2},
        "layer": layers, "config": config_of(name),
    }  # fmt: skip


def _y(lanes: Sequence[str], height: int) -> Spec:
    middles = [LANE_HEIGHT * (n + 0.5) for n in range(len(lanes))]
    axis = {"values": middles, "labelExpr": f"{list(lanes)}[floor(datum.value / {LANE_HEIGHT})]", "domain": False,
            "ticks": False, "grid": False, "labelPadding": 8, "labelLimit": 90, "title": None, "minExtent": 84,
            "maxExtent": 84}  # fmt: skip
    scale = {"domain": [0, height], "nice": False, "zero": False, "reverse": True}
    return {"field": "y", "type": "quantitative", "scale": scale, "axis": axis}


def _layer(data: str, mark: str, encoding: Spec, **style: Any) -> Spec:
    return {"data": {"name": data}, "mark": {"type": mark, "clip": True, **style}, "encoding": encoding}


def _own(field: str, kind: str = "nominal") -> Spec:
    """Return an encoding that takes a value as the row has it."""
    return {"field": field, "type": kind, "scale": None, "legend": None}


def _tooltip() -> list[Spec]:
    return [{"field": field, "type": "nominal"} for field in TOOLTIP]


# layers, from the back to the front


def _band(height: int, name: ThemeName) -> list[Spec]:
    """Return the window: left edge dashed (outside), right edge solid (inside)."""
    t = theme(name)
    edge: Spec = {"color": t["edge"], "strokeWidth": 1.5}
    x2 = {"field": "until"}
    return [
        _layer("band", "rect", {"x": _X, "x2": x2}, color=t["band"], opacity=BAND_OPACITY[name], tooltip=None),
        _layer("band", "rule", {"x": _X}, strokeDash=[4, 3], **edge),
        _layer("band", "rule", {"x": {**_X, "field": "until"}}, **edge),
    ]


def _spans(y: Spec) -> list[Spec]:
    across = {"x": _X, "x2": {"field": "until"}, "y": y, "tooltip": _tooltip()}
    tall = {**across, "y2": {"field": "y2"}, "fill": _own("fill"), "stroke": _own("edge")}
    line = {**across, "stroke": _own("fill")}
    return [
        _layer("bars", "rect", tall, strokeWidth=1),
        _layer("dotted", "rule", line, strokeDash=[1, 3], strokeWidth=1.5),
        _layer("dashed", "rule", line, strokeDash=[2, 3], strokeWidth=1.5),
        _layer("lines", "rule", line, strokeWidth=1.5),
    ]


def _marks(y: Spec) -> list[Spec]:
    on = {"x": _X, "y": y, "tooltip": _tooltip()}
    point = on | {name: _own(name) for name in ("shape", "fill", "stroke")}
    point |= {name: _own(name, "quantitative") for name in ("size", "strokeWidth")}
    return [
        _layer("ticks", "tick", on | {"fill": _own("fill")}, orient="vertical", thickness=3, size=11, opacity=1),
        _layer("ghosts", "point", point, opacity=1, strokeDash=[3, 2]),
        _layer("points", "point", point, opacity=1),
        _layer(
            "glyphs", "text", {"x": _X, "y": y, "text": {"field": "glyph", "type": "nominal"}, "color": _own("ink")},
            fontSize=10, fontWeight="bold", dy={"expr": "datum.dy"}, tooltip=None,
        ),
    ]  # fmt: skip


def _labels(y: Spec, name: ThemeName) -> list[Spec]:
    """Return the texts. What stands beside a mark has a rim of the ground around it, or lines would strike it out."""
    said: Spec = {"baseline": "middle", "fontSize": 11, "tooltip": None}
    colour = {"y": y, "color": _own("ink")}
    right, left = f"{_RIGHT} ? datum.label : ''", f"!({_RIGHT}) && {_LEFT} ? datum.label : ''"
    inside = f"{_INSIDE} >= datum.w ? datum.label : {_INSIDE} >= datum.short_w ? datum.short : ''"
    at_right = said | {"align": "left", "dx": {"expr": "datum.dx"}, "dy": {"expr": "datum.dy"}}
    at_left = said | {"align": "right", "dx": {"expr": "-datum.dx"}, "dy": {"expr": "datum.left_dy"}}
    ground = theme(name)["bg"]
    rim: Spec = {"color": ground, "stroke": ground, "strokeWidth": 3, "strokeOpacity": 0.8, "strokeJoin": "round"}
    sides = ((right, _AT, at_right), (left, "scale('x', datum.start)", at_left))
    return [
        _text("names", inside, _AT, colour, said | {"align": "left", "dx": 6}),
        *(_text("labels", text, x, {"y": y}, style | rim) for text, x, style in sides),
        *(_text("labels", text, x, colour, style) for text, x, style in sides),
        _text("steps", f"{_RIGHT} ? datum.label : ''", _AT, colour, said | {"align": "left", "dx": 3}),
    ]


def _text(data: str, text: str, x: str, encoding: Spec, style: Spec) -> Spec:
    return _layer(data, "text", encoding, **style, text={"expr": text}, x={"expr": x})


def _now(name: ThemeName) -> Spec:
    return _layer("now", "rule", {"x": _X, "color": _own("fill")}, strokeWidth=1)


def _frame(height: int) -> Spec:
    """Return the layer that says which time is shown: one alone, several would be told to be in conflict."""
    axis = {"format": _CLOCKS, "title": None, "gridOpacity": 0.5, "tickCount": {"expr": "max(3, floor(width / 120))"},
            "labelOverlap": True}  # fmt: skip
    scale = {"type": "utc", "domain": {"expr": _FRAME}, "nice": False}
    drawn = {"data": {"name": "frame"}, "mark": {"type": "rule", "opacity": 0, "tooltip": None},
             "encoding": {"x": {**_X, "scale": scale, "axis": axis}}}  # fmt: skip
    # with Ctrl (a pinch on a touchpad is the same to a browser), since the wheel alone is how one gets down the page
    select = {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.ctrlKey || event.metaKey]"}
    return {**drawn, "params": [{"name": ZOOM, "select": select, "bind": "scales"}]}


def spoken(state: RunState, incident: Incident) -> str:
    """Return what the picture is, for those who do not see it; the table below it has the same entries."""
    ranks = ranks_text(s.rank for s in incident.suspects) if incident.suspects else "no rank named"
    return f"Timeline of incident {incident.id} of run {state.run}: {ranks}. The table below lists the same events."
