"""Draw the fleet map with altair: one cell for each node, by name, with marks for what is absent and who is accused.

Heat is neutral: colour is spent on blame alone, and each mark has a shape of its own. Without racks the cells stand in
the order of the names, so many in a row. A transparent cell on top of each takes the click and tells its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import altair as alt

from lastgood.wording import step_text
from lastgood_console.components.chart_style import dressed
from lastgood_console.components.node_cells import MEASURES, Measure, NodeCell
from lastgood_console.components.symbols import symbol
from lastgood_console.export.tokens import HEAT, ThemeName, theme

IN_A_ROW: Final = 64
MANY_IN_A_ROW: Final = 128
FEWEST_IN_A_ROW: Final = 16
TALLEST: Final = 400
FLATTEST: Final = 26
GAP_X: Final = 0.08
GAP_Y: Final = 0.12
"""Share of a cell's step that is the gap to the next."""
LEGEND: Final = 34
"""Of a map's height so many pixels are the legend's."""
CELLS: Final = "cells"
PICKED: Final = "picked"
"""The selection's name in the specification."""
_COUNT_BINS: Final = ((1, "0"), (2, "1"), (3, "2"), (5, "3-4"), (9, "5-8"), (17, "9-16"), (33, "17-32"), (0, "33+"))
_SEEN_BINS: Final = (
    (2, "< 2 min"), (10, "< 10 min"), (60, "< 1 h"), (360, "< 6 h"), (1440, "< 1 d"), (10080, "< 7 d"),
    (43200, "< 30 d"), (0, "older"),
)  # fmt: skip
"""Of each measure: (below this value, what the legend calls it), one for each colour of the ramp."""
Bins = Sequence[tuple[int, str]]
Spec = dict[str, Any]


def node_map(found: Sequence[NodeCell], measure: Measure, name: ThemeName, *, picked: str = "") -> Spec:
    """Return the map of the page of nodes as Vega-Lite. ``picked``: the node whose cell has a frame."""
    wide = max(FEWEST_IN_A_ROW, min(IN_A_ROW, len(found)))
    tall = -(-len(found) // wide)
    bins: Bins = _SEEN_BINS if measure == "seen" else _COUNT_BINS
    x, y = _grid(wide, tall, [cell.node for cell in found[::wide]])
    scale = alt.Scale(domain=[words for _, words in bins], range=list(HEAT[name]))
    valued = _where("datum.overlay === 'none'").mark_rect(tooltip=None)
    base = valued.encode(x=x, y=y, color=alt.Color("bin:O", scale=scale, legend=_legend(MEASURES[measure], name)))
    height = min(TALLEST, LEGEND + (13 if tall > 4 else 28) * tall)
    chart = dressed([base, *_marks(x, y, name), _frame(x, y, name), _top(x, y, name)], name, height)
    told = [_told(cell, number, wide, measure, bins, picked) for number, cell in enumerate(found)]
    return chart.to_dict(validate=False) | {"datasets": {CELLS: told}}


def fleet_map(found: Sequence[NodeCell], name: ThemeName) -> Spec:
    """Return the small map of the overview, in the order of the runs: who is accused and what is absent, no measure."""
    ordered = sorted(found, key=lambda cell: (not cell.run, cell.run, cell.node))
    wide = max(FEWEST_IN_A_ROW, min(IN_A_ROW if len(ordered) <= 8 * IN_A_ROW else MANY_IN_A_ROW, len(ordered)))
    tall = -(-len(ordered) // wide)
    x, y = _grid(wide, tall, [])
    base = _where("datum.overlay === 'none'").mark_rect(color=theme(name)["peer_t"], tooltip=None).encode(x=x, y=y)
    chart = dressed(
        [base, *_marks(x, y, name), _top(x, y, name, pick=False)], name, max(FLATTEST, tall * (15 if tall <= 8 else 9))
    )
    told = [_told(cell, number, wide, "unhealthy", _COUNT_BINS, "") for number, cell in enumerate(ordered)]
    return chart.to_dict(validate=False) | {"datasets": {CELLS: told}}


def _where(condition: str) -> alt.Chart:
    """Return a layer of the cells for which a Vega expression holds; all layers share one data set."""
    return alt.Chart(alt.NamedData(name=CELLS)).transform_filter(condition)


def _told(cell: NodeCell, number: int, wide: int, measure: Measure, bins: Bins, picked: str) -> dict[str, Any]:
    overlay, value = cell.overlay(measure), cell.values[measure]
    role = f"accused by {cell.accused}" if cell.accused else "candidate" if cell.candidate else "not accused"
    return {
        "x": number % wide, "y": number // wide, "node": cell.node, "overlay": overlay or "none",
        "bin": _bin(value, bins) if overlay is None and value is not None else "", "words": cell.words(measure),
        "mark": role.split()[0], "role": role, "run": cell.run or "no active run", "picked": cell.node == picked,
    }  # fmt: skip


def _grid(wide: int, tall: int, names: Sequence[str]) -> tuple[alt.X, alt.Y]:
    """Return the axes; each fourth row is named by its first node."""
    step = 1 if tall <= 4 else 4
    axis = alt.Axis(
        title=None, domain=False, ticks=False, grid=False, values=list(range(0, tall, step)), labelLimit=110,
        labelExpr=_lookup([_short(name) for name in names]),
    )  # fmt: skip
    x = alt.X("x:O", axis=None, scale=alt.Scale(domain=list(range(wide)), paddingInner=GAP_X, paddingOuter=0))
    scale = alt.Scale(domain=list(range(tall)), paddingInner=GAP_Y, paddingOuter=0)
    return x, alt.Y("y:O", axis=axis if names else None, scale=scale)


def _lookup(names: Sequence[str]) -> str:
    """Return a Vega expression that gives a row's name; quotes of names cannot end its texts."""
    listed = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in names)
    return f"[{listed}][datum.value]"


def _short(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)[:40]


def _bin(value: float, bins: Bins) -> str:
    return next((name for edge, name in bins if value < edge), bins[-1][1])


def _legend(title: str, name: ThemeName) -> alt.Legend:
    t = theme(name)
    return alt.Legend(
        title=title, orient="top", direction="horizontal", offset=6, symbolType="square", symbolSize=140,
        symbolStrokeWidth=0, columnPadding=12, labelColor=t["ink3"], titleColor=t["ink3"], labelFontSize=11,
        titleFontSize=11, titleFontWeight="normal", titleOrient="left",
    )  # fmt: skip


def _marks(x: alt.X, y: alt.Y, name: ThemeName) -> list[alt.Chart]:
    """Return what stands over the values, in the order of importance: the last is drawn on top."""
    t = theme(name)
    stale, missing, nan = (
        _where(f"datum.overlay === '{kind}'").encode(x=x, y=y) for kind in ("stale", "missing", "nan")
    )
    candidate, accused = (_where(f"datum.mark === '{kind}'").encode(x=x, y=y) for kind in ("candidate", "accused"))
    return [
        stale.mark_rect(color=t["peer_t"], opacity=0.45, tooltip=None),
        stale.mark_text(text="–", color=t["ink"], fontSize=11, tooltip=None),
        missing.mark_rect(filled=True, fill=t["bg"], stroke=t["missing"], strokeWidth=1, tooltip=None),
        nan.mark_text(text="×", color=t["ink"], fontSize=12, fontWeight=700, tooltip=None),
        candidate.mark_point(
            shape="diamond", size=70, stroke=t["suspect"], strokeWidth=2, fill=t["bg"], opacity=1, tooltip=None),
        accused.mark_point(
            shape="diamond", size=90, stroke=t["bg"], strokeWidth=1, fill=t["tainted"], opacity=1, tooltip=None),
    ]  # fmt: skip


def _frame(x: alt.X, y: alt.Y, name: ThemeName) -> alt.Chart:
    frame = _where("datum.picked").mark_rect(filled=False, stroke=theme(name)["act"], strokeWidth=2.5, tooltip=None)
    return cast(alt.Chart, frame.encode(x=x, y=y))


def _top(x: alt.X, y: alt.Y, name: ThemeName, *, pick: bool = True) -> alt.Chart:
    """Return transparent cells that tell their words. Those that take a click reach over the gaps between cells."""
    tooltip = [alt.Tooltip(f"{key}:N", title=title) for key, title in
               (("node", "Node"), ("words", "Value"), ("role", "Incidents"), ("run", "Run"))]  # fmt: skip
    chart = alt.Chart(alt.NamedData(name=CELLS)).mark_rect(
        color=theme(name)["bg"], opacity=0, cursor="pointer" if pick else "default",
        width=alt.RelativeBandSize(1 / (1 - GAP_X) if pick else 1),
        height=alt.RelativeBandSize(1 / (1 - GAP_Y) if pick else 1),
    )  # fmt: skip
    drawn = chart.encode(x=x, y=y, tooltip=tooltip)
    drawn = drawn.add_params(alt.selection_point(name=PICKED, fields=["node"], on="click")) if pick else drawn
    return cast(alt.Chart, drawn)


def key_html(found: Sequence[NodeCell], measure: Measure) -> str:
    """Return the key of the marks that are there."""
    overlays = {cell.overlay(measure) for cell in found}
    items = [f'<span class="lg-word">{symbol("accused")}accused</span>'] if any(c.accused for c in found) else []
    if any(c.candidate for c in found):
        items.append(f'<span class="lg-word">{symbol("candidate")}candidate</span>')
    if "stale" in overlays:
        items.append(
            '<span class="lg-word"><span class="lg-cell lg-cell-stale">–</span>stale: its run is silent</span>'
        )
    if "missing" in overlays:
        items.append(
            '<span class="lg-word"><span class="lg-cell lg-cell-missing"></span>missing: no active rank</span>'
        )
    if "nan" in overlays:
        items.append('<span class="lg-word"><span class="lg-cell">×</span>not a number</span>')
    return f'<div class="lg-key">{"".join(items)}</div>'


def spoken(found: Sequence[NodeCell], measure: Measure) -> str:
    """Return the map in words, for those who do not see it."""
    named = [cell.node for cell in found if cell.accused or cell.candidate][:8]
    worst = f"; named by incidents: {', '.join(named)}" if named else "; no node is accused"
    return f"Map of {step_text(len(found))} nodes, {MEASURES[measure]}{worst}"
