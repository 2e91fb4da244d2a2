"""Give every chart the same dress: no title, no box, hairline grid, the theme's colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import altair as alt

from lastgood_console.export.tokens import BAND_OPACITY, ThemeName, theme

FONT: Final = "Source Sans"


def colours(name: ThemeName) -> Mapping[str, str]:
    """Return the tokens of a theme."""
    return theme(name)


def dressed(layers: Sequence[Any], name: ThemeName, height: int) -> alt.LayerChart:
    """Return the layers as one chart with size, padding, background and axes of the look.

    Single marks are hidden from screen readers: the picture has words of its own, and a table beside it the numbers.
    """
    chart = alt.layer(*layers).properties(
        height=height, width="container", padding={"left": 0, "right": 4, "top": 2, "bottom": 2}
    )
    chart.config = alt.Config.from_dict(config_of(name))
    return cast(alt.LayerChart, chart)


def config_of(name: ThemeName) -> dict[str, Any]:
    """Return Vega-Lite's configuration of the look; single marks are hidden from screen readers (:func:`dressed`)."""
    t = theme(name)
    return {
        "background": t["bg"], "font": FONT, "view": {"stroke": None}, "mark": {"aria": False},
        "axis": {
            "labelColor": t["ink3"], "labelFontSize": 11, "domainColor": t["line2"], "tickColor": t["line2"],
            "gridColor": t["line"], "tickSize": 4, "labelPadding": 4, "titleColor": t["ink3"], "titleFontSize": 11,
        },
    }  # fmt: skip


def rows(values: list[dict[str, Any]]) -> alt.InlineData:
    """Return rows as inline data: no data frame, so equal states give equal charts."""
    return alt.InlineData(values=values)


def band(start: Any, end: Any, like: alt.X, kind: str, name: ThemeName) -> list[alt.Chart]:
    """Return the window: left edge dashed (outside), right edge solid (inside).

    ``like``: the x of the chart (its scale and axis); ``kind``: altair's T or Q.
    """
    t = theme(name)
    data = rows([{"from": start, "to": end}])
    x, to, x2 = like.copy(), like.copy(), alt.X2("to")
    x.shorthand, to.shorthand = f"from:{kind}", f"to:{kind}"
    fill = alt.Chart(data).mark_rect(color=t["band"], opacity=BAND_OPACITY[name], tooltip=None).encode(x=x, x2=x2)
    left = alt.Chart(data).mark_rule(color=t["edge"], strokeDash=[4, 3], strokeWidth=1.5).encode(x=x)
    right = alt.Chart(data).mark_rule(color=t["edge"], strokeWidth=1.5).encode(x=to)
    return [fill, left, right]
