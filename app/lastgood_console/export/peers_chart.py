"""Draw a suspect's metric against its peers: difference from their median in percent, by step.

Context only: a metric never accuses. A step without a sample is a gap with a dotted base; NaN and infinity are crosses
on the top rail over the gap; zero is drawn like any value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from lastgood import wording
from lastgood_console.export.svg import text_at
from lastgood_console.export.symbols import C, line, num, polygon, rect
from lastgood_console.export.tokens import BAND_OPACITY, PEER_OPACITY

WIDTH: Final = 690.0
HEIGHT: Final = 150.0
LEFT: Final = 52.0
RIGHT: Final = 575.0
TOP: Final = 8.0
BOTTOM: Final = 128.0

Percents = list[float | None]


def percents(values: Sequence[Any], median: Sequence[Any]) -> Percents:
    """Return the differences from the median in percent; None where one is missing, NaN where it is not a number."""
    return [_percent(value, middle) for value, middle in zip(values, median, strict=True)]


def _percent(value: Any, middle: Any) -> float | None:
    if value is None or middle is None:
        return None
    if isinstance(value, str) or isinstance(middle, str) or not middle:
        return math.nan
    return 100.0 * (float(value) / float(middle) - 1.0)


def peers_svg(peers: Mapping[str, Any], window: Mapping[str, Any] | None) -> str:
    """Return the chart of one suspect as an SVG element; ``peers`` and ``window`` as in the incident document."""
    steps: list[int] = peers["steps"]
    lines = {name: percents(peers[name], peers["median"]) for name in ("suspect", "p10", "p90")}
    seen = [v for values in lines.values() for v in values if v is not None and math.isfinite(v)] or [0.0]
    scale = _Scale(min(steps), max(steps), min(*seen, 0.0), max(*seen, 0.0))
    rank = wording.ranks_text([peers["rank"]])
    parts = [*_grid(scale), *_window(scale, window), *_band(scale, steps, lines["p10"], lines["p90"])]
    parts.append(line(LEFT, scale.y(0), RIGHT, scale.y(0), C["peer"], 1.4))
    parts += _gaps(scale, steps, lines["suspect"])
    parts += [_path(scale, run) for run in runs(steps, lines["suspect"])]
    parts += _names(scale, lines, rank)
    size = f'viewBox="0 0 {num(WIDTH)} {num(HEIGHT)}" width="{num(WIDTH)}" height="{num(HEIGHT)}" font-size="11"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="peers" role="img" aria-label="Gradient norm of {rank} against '
        f'its peers" {size}>'
    )
    return "\n".join([head, *parts, "</svg>"])


class _Scale:
    """Steps to x, percent to y."""

    def __init__(self, first: int, last: int, low: float, high: float) -> None:
        self.first, self.last = first, max(last, first + 1)
        margin = max(high - low, 1.0) * 0.08
        self.low, self.high = low - margin, high + margin

    def x(self, step: float) -> float:
        return LEFT + (step - self.first) / (self.last - self.first) * (RIGHT - LEFT)

    def y(self, percent: float) -> float:
        return BOTTOM - (percent - self.low) / (self.high - self.low) * (BOTTOM - TOP)


def _grid(scale: _Scale) -> Iterator[str]:
    size = _round_step((scale.high - scale.low) / 4)
    for i in range(math.ceil(scale.low / size), math.floor(scale.high / size) + 1):
        y = scale.y(i * size)
        yield line(LEFT, y, RIGHT, y, C["line"])
        sign = "+" if i > 0 else ""
        yield text_at(LEFT - 8, y + 4, f"{sign}{i * size:g} %", C["ink3"], "end")
    yield line(LEFT, BOTTOM, RIGHT, BOTTOM, C["line2"])
    stride = max(1, int(_round_step((scale.last - scale.first) / 5)))
    for step in range(-(-scale.first // stride) * stride, scale.last + 1, stride):
        yield line(scale.x(step), BOTTOM, scale.x(step), BOTTOM + 4, C["line2"])
        yield text_at(scale.x(step), BOTTOM + 17, wording.step_text(step), C["ink3"], "middle")
    yield text_at(LEFT - 8, BOTTOM + 17, "step", C["ink3"], "end")


def _round_step(size: float) -> float:
    """Return the next size of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(size, 1e-9)))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= size * 0.999)


def _window(scale: _Scale, window: Mapping[str, Any] | None) -> Iterator[str]:
    if window is None or window["contained"] or window["start_attempt"] != window["end_attempt"]:
        return
    left, right = (scale.x(min(max(window[side], scale.first), scale.last)) for side in ("start", "end"))
    yield rect(left, TOP, right - left, BOTTOM - TOP, C["band"], f'fill-opacity="{BAND_OPACITY["light"]}"')
    yield line(left, TOP, left, BOTTOM, C["edge"], 1.2, 'stroke-dasharray="4 3"')
    yield line(right, TOP, right, BOTTOM, C["edge"], 1.2)


def _band(scale: _Scale, steps: Sequence[int], low: Percents, high: Percents) -> Iterator[str]:
    upper = [(s, v) for s, v in zip(steps, high, strict=True) if v is not None and math.isfinite(v)]
    lower = [(s, v) for s, v in zip(steps, low, strict=True) if v is not None and math.isfinite(v)]
    if len(upper) > 1 and len(lower) > 1:
        points = [(scale.x(s), scale.y(v)) for s, v in [*upper, *reversed(lower)]]
        yield polygon(points, f'fill="{C["peer"]}" fill-opacity="{PEER_OPACITY}"')


def runs(steps: Sequence[int], values: Percents) -> Iterator[list[tuple[int, float]]]:
    """Yield the stretches without a gap."""
    run: list[tuple[int, float]] = []
    for step, value in zip(steps, values, strict=True):
        if value is not None and math.isfinite(value):
            run.append((step, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _path(scale: _Scale, run: Sequence[tuple[int, float]]) -> str:
    points = " ".join(f"{num(scale.x(s))},{num(scale.y(v))}" for s, v in run)
    return f'<polyline points="{points}" fill="none" stroke="{C["tainted"]}" stroke-width="1.6"/>'


def _gaps(scale: _Scale, steps: Sequence[int], values: Percents) -> Iterator[str]:
    """Mark what is absent: a dotted base where there is no sample, crosses on the top rail where it is no number."""
    half = (scale.x(scale.first + 1) - scale.x(scale.first)) / 2
    kinds = [
        (s, "none" if v is None else "" if math.isfinite(v) else "nan") for s, v in zip(steps, values, strict=True)
    ]
    for kind, group in groupby(kinds, key=lambda pair: pair[1]):
        run = [step for step, _ in group]
        left, right = scale.x(run[0]), scale.x(run[-1])
        if kind == "none":
            dots = 'stroke-dasharray="1.4 2.4"'
            yield line(left - half, BOTTOM - 2, right + half, BOTTOM - 2, C["missing"], 1.4, dots)
            yield text_at((left + right) / 2, BOTTOM - 6, "no sample", C["ink3"], "middle")
        elif kind == "nan":
            yield from (text_at(scale.x(step), TOP + 7, "×", C["ink"], "middle") for step in run)
            count = f", {len(run)} steps" if len(run) > 1 else ""
            yield text_at(right + 6, TOP + 7, f"NaN{count}", C["ink3"])


def _names(scale: _Scale, lines: Mapping[str, Percents], rank: str) -> Iterator[str]:
    """Label the lines at their end, apart from each other."""
    wanted = [("median of peers", 0.0, C["ink2"]), ("p10 to p90", _last(lines["p90"]), C["ink3"])]
    wanted.append((rank, _last(lines["suspect"]), C["tainted"]))
    y = TOP - 8.0
    for name, value, colour in sorted(wanted, key=lambda w: -w[1]):
        y = max(y + 13, scale.y(value) + 4)
        yield text_at(RIGHT + 8, y, name, colour)


def _last(values: Percents) -> float:
    return next((v for v in reversed(values) if v is not None and math.isfinite(v)), 0.0)
