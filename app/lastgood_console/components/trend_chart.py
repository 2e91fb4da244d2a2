"""Draw how a suspect's metric went beside those of its peers over time, as a metrics server has it. Context only.

The difference from the peers' median in the metric's own unit, so that the four absences look as they do elsewhere:
a gap with a dotted rule where there was no sample, a cross on the top rail where the value was not a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

import altair as alt

from lastgood.state import Incident
from lastgood.wording import clock_text
from lastgood_console.components.chart_style import dressed, rows
from lastgood_console.components.peers_chart import tone_of
from lastgood_console.components.time_frame import Frame
from lastgood_console.export.tokens import PEER_OPACITY, ThemeName, theme
from lastgood_console.sources.trend import Trend

HEIGHT: Final = 120
NAMES: Final = {
    "grad_norm_local": "local gradient norm", "step_seconds": "step time", "temperature": "temperature",
    "power": "power",
}  # fmt: skip
FEW_SAMPLES: Final = 60
"""So many samples of the suspect are drawn as dots too."""
_FEW_SECONDS: Final = 86_400.0


def name_of(found: Trend) -> str:
    """Return the metric's name in words."""
    return NAMES.get(found.metric, found.metric.replace("_", " "))


def series(found: Trend) -> list[dict[str, Any]]:
    """Return one row per time: the suspect and the peers' p10 and p90, less the median; None where one is missing."""
    columns = zip(found.times, found.suspect, found.median, found.p10, found.p90, strict=True)
    return [
        {"at": 1000 * at, "suspect": _less(value, median), "p10": _less(p10, median), "p90": _less(p90, median)}
        for at, value, median, p10, p90 in columns
    ]


def within(found: Trend, frame: Frame) -> Trend | None:
    """Return what a zoom shows of it, None when that is nothing; all of it as long as nobody zoomed."""
    if not frame.zoomed:
        return found
    kept = [n for n, at in enumerate(found.times) if frame.low <= at <= frame.high]
    if not kept:
        return None
    shown = slice(kept[0], kept[-1] + 1)
    columns = {name: getattr(found, name)[shown] for name in ("times", "suspect", "median", "p10", "p90")}
    return replace(found, **columns)


def _less(value: float | None, median: float | None) -> float | None:
    if value is None or median is None or not isfinite(value) or not isfinite(median):
        return None
    return value - median


def not_numbers(found: Trend) -> list[float]:
    """Return the times (unix seconds) at which the suspect's value was NaN or infinite."""
    return [at for at, v in zip(found.times, found.suspect, strict=True) if v is not None and not isfinite(v)]


def gaps(found: Trend) -> list[tuple[float, float]]:
    """Return the stretches without a sample of the suspect, as (first, last) in unix seconds."""
    out: list[tuple[float, float]] = []
    for at, value in zip(found.times, found.suspect, strict=True):
        if value is None and out and at - out[-1][1] <= 1.5 * found.step_seconds:
            out[-1] = (out[-1][0], at)
        elif value is None:
            out.append((at, at))
    return out


def trend_chart(found: Trend, incident: Incident, name: ThemeName) -> alt.LayerChart:
    """Return the chart, in the colours of a theme."""
    t, values = theme(name), series(found)
    low, high = _range(values)
    x, y = _x(found), _y(found, low, high)
    base = alt.Chart(rows(values)).encode(x=x)
    peers = base.mark_area(color=t["peer"], opacity=PEER_OPACITY).encode(y=y("p10"), y2="p90:Q")
    zero = alt.Chart(rows([{"at": 1000 * found.times[0], "to": 1000 * found.times[-1], "zero": 0}]))
    middle = zero.mark_rule(color=t["peer"], strokeWidth=1.5).encode(x=x, x2="to", y=y("zero"))
    tooltip = [alt.Tooltip("at:T", format="%H:%M:%S", title="UTC"),
               *(alt.Tooltip(f"{k}:Q", format="+.3~g") for k in ("suspect", "p10", "p90"))]  # fmt: skip
    tone = t[tone_of(found.rank, incident)]
    few = sum(value is not None for value in found.suspect) <= FEW_SAMPLES
    dots = alt.OverlayMarkDef(size=18, color=tone) if few else False  # a sample alone makes no line
    line = base.mark_line(color=tone, strokeWidth=1.5, clip=True, point=dots)
    layers = [peers, middle, line.encode(y=y("suspect"), tooltip=tooltip)]
    layers += _end_label(found, values, incident, x, y, name)
    return dressed([*layers, *_absences(found, low, high, x, y, name)], name, HEIGHT)


def _end_label(
    found: Trend, values: Sequence[dict[str, Any]], incident: Incident, x: alt.X, y: Any, name: ThemeName
) -> list[alt.Chart]:
    last = next((row for row in reversed(values) if row["suspect"] is not None), None)
    if last is None:
        return []
    data = rows([{"at": last["at"], "y": last["suspect"], "label": f"rank {found.rank}"}])
    mark = alt.Chart(data).mark_text(
        align="left", dx=8, fontSize=11, fontWeight="bold", color=theme(name)[tone_of(found.rank, incident)]
    )
    return [mark.encode(x=x, y=y("y"), text="label:N")]


def _range(values: Sequence[dict[str, Any]]) -> tuple[float, float]:
    seen = [v for row in values for v in (row["suspect"], row["p10"], row["p90"]) if v is not None]
    low, high = min([0.0, *seen]), max([0.0, *seen])
    pad = 0.12 * (high - low) or 1.0
    return low - pad, high + pad


def _x(found: Trend) -> alt.X:
    span = found.times[-1] - found.times[0]
    form = "%H:%M:%S" if span < 720 else "%H:%M" if span < _FEW_SECONDS else "%d %b %H:%M"
    domain = [1000 * found.times[0], 1000 * (found.times[-1] + 0.13 * max(span, 1.0))]
    scale = alt.Scale(type="utc", domain=domain, nice=False)
    return alt.X(
        "at:T", title=None, scale=scale, axis=alt.Axis(format=form, grid=False, tickCount=8, labelOverlap=True)
    )


def _y(found: Trend, low: float, high: float) -> Any:
    unit = f" {found.unit}" if found.unit else ""
    words = f"datum.value == 0 ? 'median' : format(datum.value, '+.3~g') + '{unit}'"
    axis = alt.Axis(title=None, domain=False, ticks=False, tickCount=4, labelExpr=words)
    return lambda column: alt.Y(f"{column}:Q", scale=alt.Scale(domain=[low, high], nice=False, zero=False), axis=axis)


def _absences(found: Trend, low: float, high: float, x: alt.X, y: Any, name: ThemeName) -> list[alt.Chart]:
    t, out = theme(name), []
    if odd := not_numbers(found):
        marks = [{"at": 1000 * at, "y": high, "label": ""} for at in odd]
        marks[-1]["label"] = f"not a number, {len(odd)} sample{'' if len(odd) == 1 else 's'}"
        data = alt.Chart(rows(marks)).encode(x=x, y=y("y"))
        out.append(data.mark_text(text="×", fontSize=14, fontWeight="bold", color=t["ink"], dy=6))
        out.append(data.mark_text(align="left", dx=9, dy=6, fontSize=11, color=t["ink3"]).encode(text="label:N"))
    if missing := [{"at": 1000 * a, "to": 1000 * b, "y": low, "label": "no sample"} for a, b in gaps(found)]:
        data = alt.Chart(rows(missing)).encode(x=x, y=y("y"))
        out.append(data.mark_rule(strokeDash=[1, 3], strokeWidth=1.5, color=t["missing"]).encode(x2="to"))
        first = alt.Chart(rows(missing[:1])).encode(x=x, y=y("y"))
        out.append(first.mark_text(align="left", dy=-8, fontSize=11, color=t["ink3"]).encode(text="label:N"))
    return out


def spoken(found: Trend) -> str:
    """Return what the picture is, for those who do not see it; the table beside it has the numbers."""
    first, last = (_utc(at) for at in (found.times[0], found.times[-1]))
    return f"{name_of(found)} of rank {found.rank} less the median of its peers, from {first} to {last} UTC"


def _utc(at: float) -> str:
    return clock_text(datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


def numbers(found: Trend) -> list[list[str]]:
    """Return the same numbers as rows of words: time in UTC, suspect, median, p10, p90."""
    columns = zip(found.times, found.suspect, found.median, found.p10, found.p90, strict=True)
    return [[_utc(at), *(_number(v) for v in rest)] for at, *rest in columns]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.5g}" if isfinite(value) else "× not a number"
