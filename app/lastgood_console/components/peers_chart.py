"""Draw a suspect's metric against its peers: the difference from their median, by step. Context, never evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, isinf
from typing import Any, Final

import altair as alt

from lastgood.peers import Peers
from lastgood.state import Incident, Point, Window
from lastgood.step_clock import StepClock
from lastgood.wording import step_text, window_text
from lastgood_console.components.chart_style import band, dressed, rows
from lastgood_console.components.time_frame import Frame, unix
from lastgood_console.export.tokens import PEER_OPACITY, ThemeName, theme

HEIGHT: Final = 180
METRIC_NAMES: Final = {"grad_norm_local": "local gradient norm", "grad_norm": "local gradient norm"}
PERCENT: Final = "datum.value == 0 ? '0 %' : format(datum.value, '+d') + ' %'"
LABEL_GAP: Final = 14 / HEIGHT
MOST_PERCENT: Final = 1000.0
"""Beyond tenfold the picture would show nothing else: such a value stands on the top rail with its number."""


def metric_text(found: Peers) -> str:
    """Return the metric's name in words."""
    return METRIC_NAMES.get(found.metric, found.metric.replace("_", " "))


def within(found: Peers, clock: StepClock, frame: Frame) -> Peers | None:
    """Return what a zoom shows of it, None when that is nothing; all of it as long as nobody zoomed."""
    if not frame.zoomed:
        return found
    times = [clock.at(Point(found.attempt, step)) for step in found.steps]
    kept = [n for n, at in enumerate(times) if at is not None and frame.low <= unix(at) <= frame.high]
    if not kept:
        return None
    shown = slice(kept[0], kept[-1] + 1)
    columns = {name: getattr(found, name)[shown] for name in ("steps", "suspect", "median", "p10", "p90")}
    return replace(found, **columns)


def tone_of(rank: int, incident: Incident) -> str:
    """Return the colour token of a rank's line. Only an attributed incident blames, a cleared one nobody."""
    if incident.status == "cleared":
        return "ink2"
    accused = any(s.rank == rank and s.role == "accused" for s in incident.suspects)
    return "tainted" if accused and incident.status == "attributed" else "suspect"


def relative(value: float | None, median: float | None) -> float | None:
    """Return the difference from the median in percent; None when there is no sample or it is no finite number."""
    if value is None or median is None or not isfinite(value) or not isfinite(median) or median == 0:
        return None
    return 100.0 * (value / median - 1.0)


def series(found: Peers) -> list[dict[str, Any]]:
    """Return one row per step: the suspect and the peers' p10 and p90 as differences from the median in percent."""
    columns = zip(found.steps, found.suspect, found.median, found.p10, found.p90, strict=True)
    return [
        {"step": step, "suspect": relative(value, median), "p10": relative(p10, median), "p90": relative(p90, median)}
        for step, value, median, p10, p90 in columns
    ]


def not_numbers(found: Peers) -> list[int]:
    """Return the steps in which the suspect's value was NaN or infinite: not missing, not zero."""
    return [s for s, v in zip(found.steps, found.suspect, strict=True) if v is not None and not isfinite(v)]


def no_samples(found: Peers) -> list[tuple[int, int]]:
    """Return the stretches of steps without a sample, as (first, last)."""
    out: list[tuple[int, int]] = []
    for step, value in zip(found.steps, found.suspect, strict=True):
        if value is not None:
            continue
        if out and out[-1][1] == step - 1:
            out[-1] = (out[-1][0], step)
        else:
            out.append((step, step))
    return out


def peers_chart(found: Peers, incident: Incident, name: ThemeName) -> alt.LayerChart:
    """Return the chart, in the colours of a theme."""
    t = theme(name)
    values = series(found)
    low, high = _range(values)
    y = _y("suspect:Q", low, high)
    x = alt.X("step:Q", title=None, scale=_x_scale(found), axis=_x_axis(found))
    base = alt.Chart(rows(values)).encode(x=x)
    layers: list[alt.Chart] = _window(incident.window, found, x, name)
    layers.append(base.mark_area(color=t["peer"], opacity=PEER_OPACITY).encode(y=_y("p10:Q", low, high), y2="p90:Q"))
    middle = alt.Chart(rows([{"step": found.steps[0], "to": found.steps[-1], "zero": 0}]))
    layers.append(middle.mark_rule(color=t["peer"], strokeWidth=1.5).encode(x=x, x2="to", y=_y("zero:Q", low, high)))
    tooltip = [alt.Tooltip("step:Q"), *(alt.Tooltip(f"{k}:Q", format="+.1f") for k in ("suspect", "p10", "p90"))]
    tone = tone_of(found.rank, incident)
    layers.append(base.mark_line(color=t[tone], strokeWidth=1.5, clip=True).encode(y=y, tooltip=tooltip))
    layers += _absences(found, low, high, x, name)
    layers += _end_labels(found, values, low, high, x, tone, name)
    return dressed(layers, name, HEIGHT)


def _range(values: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the shown range in percent: all of the peers and the suspect, at least ±5, at most tenfold."""
    seen = [v for row in values for v in (row["suspect"], row["p10"], row["p90"]) if v is not None]
    low, high = min([-5.0, *seen]), max([5.0, *seen])
    low, high = max(low, -100.0), min(high, MOST_PERCENT)
    pad = 0.1 * (high - low)
    return low - pad, high + pad


def _y(field: str, low: float, high: float) -> alt.Y:
    axis = alt.Axis(title=None, domain=False, ticks=False, tickCount=5, labelExpr=PERCENT)
    return alt.Y(field, scale=alt.Scale(domain=[low, high], nice=False, zero=False), axis=axis)


def _x_axis(found: Peers) -> alt.Axis:
    """Return an axis with about eight round steps, none of them in the room for labels."""
    first, last = found.steps[0], found.steps[-1]
    stride = next(n * 10**e for e in range(12) for n in (1, 2, 5) if (last - first) / (n * 10**e) <= 8)
    values = [first, *(s for s in range(first - first % stride, last + 1, stride) if s - first >= stride / 2)]
    names = f"datum.value == {first} ? 'step ' + datum.value : '' + datum.value"
    return alt.Axis(grid=False, values=values, labelExpr=names)


def _x_scale(found: Peers) -> alt.Scale:
    first, last = found.steps[0], found.steps[-1]
    return alt.Scale(domain=[first, last + max(1.0, 0.13 * (last - first))], nice=False, zero=False)


def _window(window: Window | None, found: Peers, x: alt.X, name: ThemeName) -> list[alt.Chart]:
    """Return the window as far as it lies within the shown steps (of the attempt of the finding)."""
    if window is None or window.contained or window.start_attempt != window.end_attempt:
        return []
    start, end = max(window.start, found.steps[0]), min(window.end, found.steps[-1])
    if end <= start:
        return []
    fill, left, right = band(start, end, x, "Q", name)
    return [fill, *([left] if start == window.start else []), *([right] if end == window.end else [])]


def _absences(found: Peers, low: float, high: float, x: alt.X, name: ThemeName) -> list[alt.Chart]:
    t = theme(name)
    out = []
    odd = not_numbers(found)
    if odd:
        word = "infinite" if any(isinf(v) for v in found.suspect if v is not None) else "NaN"
        marks = [{"step": s, "y": high, "label": ""} for s in odd]
        marks[-1]["label"] = f"{word}, {len(odd)} step{'' if len(odd) == 1 else 's'}"
        data = alt.Chart(rows(marks)).encode(x=x, y=_y("y:Q", low, high))
        out.append(data.mark_text(text="×", fontSize=14, fontWeight="bold", color=t["tainted"], dy=6))
        out.append(data.mark_text(align="left", dx=9, dy=6, fontSize=11, color=t["ink3"]).encode(text="label:N"))
    gaps = [{"step": a, "to": b, "y": low, "label": "no sample"} for a, b in no_samples(found)]
    if gaps:
        data = alt.Chart(rows(gaps)).encode(x=x, y=_y("y:Q", low, high))
        out.append(data.mark_rule(strokeDash=[1, 3], strokeWidth=1.5, color=t["missing"]).encode(x2="to"))
        out.append(data.mark_text(align="left", dy=-8, fontSize=11, color=t["ink3"]).encode(text="label:N"))
    return out


def _end_labels(
    found: Peers, values: list[dict[str, Any]], low: float, high: float, x: alt.X, tone: str, name: ThemeName
) -> list[alt.Chart]:
    t = theme(name)
    last = found.steps[-1]
    suspect = next((r["suspect"] for r in reversed(values) if r["suspect"] is not None), None)
    p90 = next((r["p90"] for r in reversed(values) if r["p90"] is not None), None)
    peers = [("median of the peers", 0.0, "ink3"), ("p10 to p90", p90, "ink3")]
    wanted = [*peers, (f"rank {found.rank}", suspect, tone)]
    known = [(text, min(max(at, low), high), tone) for text, at, tone in wanted if at is not None]
    placed = spread(known, LABEL_GAP * (high - low))
    return [
        alt.Chart(rows([{"step": last, "y": at, "label": text}]))
        .mark_text(align="left", dx=8, fontSize=11, color=t[tone], fontWeight="normal" if tone == "ink3" else "bold")
        .encode(x=x, y=_y("y:Q", low, high), text="label:N")
        for text, at, tone in placed
    ]


def spread(labels: Sequence[tuple[str, float, str]], gap: float) -> list[tuple[str, float, str]]:
    """Return the labels moved apart, from the bottom up, so that none meets another."""
    out: list[tuple[str, float, str]] = []
    for text, at, tone in sorted(labels, key=lambda label: label[1]):
        floor = out[-1][1] + gap if out else at
        out.append((text, max(at, floor), tone))
    return out


def spoken(found: Peers, incident: Incident) -> str:
    """Return what the picture is, for those who do not see it."""
    steps = f"steps {step_text(found.steps[0])} to {step_text(found.steps[-1])}"
    window = f"; window {window_text(incident.window)}" if incident.window else ""
    return f"{metric_text(found)} of rank {found.rank} as difference from the median of its peers, {steps}{window}"


def numbers(found: Peers) -> list[list[str]]:
    """Return the same numbers as rows of words: step, suspect, median, p10, p90."""
    columns = zip(found.steps, found.suspect, found.median, found.p10, found.p90, strict=True)
    return [[step_text(step), *(_number(v) for v in rest)] for step, *rest in columns]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.5g}" if isfinite(value) else "× infinite" if isinf(value) else "× NaN"
