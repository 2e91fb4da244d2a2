"""Turn a described panel into Grafana's, by its own foundation SDK. Needed to generate only.

House style: no title inside a chart, a legend that names every line, gaps drawn as gaps, and a text of its own where
there is nothing to show, since "no data" is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from string import ascii_uppercase
from typing import Any, Final, TypeVar

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build_dashboard
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models import prometheus as prometheus_model

from lastgood_dashboards.spec import PEER, PLAIN, Kind, Link, Panel, Place, Query, Steps

DATA_SOURCE: Final = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
_COLOURED: Final = dashboard.DynamicConfigValue("custom.cellOptions", {"type": "color-text"})

Builder = stat.Panel | timeseries.Panel | table.Panel | statetimeline.Panel | heatmap.Panel
AnyPanel = TypeVar("AnyPanel", stat.Panel, timeseries.Panel, table.Panel, statetimeline.Panel, heatmap.Panel)


def panel_of(panel: Panel, place: Place) -> Builder:
    """Return Grafana's panel."""
    return _RENDERERS[panel.kind](panel, place)


def _frame(builder: AnyPanel, panel: Panel, place: Place) -> AnyPanel:
    """Set what every panel has."""
    builder = (
        builder.id(panel.id).title(panel.title).description(panel.says).datasource(DATA_SOURCE)
        .grid_pos(dashboard.GridPos(h=place.height, w=place.width, x=place.x, y=place.y))
        .unit(panel.unit).no_value(panel.empty)
        .thresholds(_thresholds(panel.steps or ((None, PLAIN),)))
    )  # fmt: skip
    for ref_id, query in _lettered(panel):
        builder = builder.with_target(_target(ref_id, query, panel.kind))
    if panel.texts and panel.kind != "table":
        builder = builder.mappings([_mapping(panel.texts)])
    if panel.links.get(""):
        builder = builder.data_links(_links(panel.links[""]))
    if panel.points is not None:
        builder = builder.max_data_points(panel.points)
    return builder if panel.decimals is None else builder.decimals(panel.decimals)


def _lettered(panel: Panel) -> Iterator[tuple[str, Query]]:
    """Yield each query with the letter that Grafana knows it by."""
    yield from zip(ascii_uppercase[: len(panel.queries)], panel.queries, strict=True)


def _target(ref_id: str, query: Query, kind: Kind) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(ref_id).editor_mode(prometheus_model.QueryEditorMode.CODE)
    if kind == "table":
        return target.instant().format(prometheus_model.PromQueryFormat.TABLE)
    target = target.legend_format(query.legend).format(prometheus_model.PromQueryFormat.TIME_SERIES)
    return target.instant() if kind == "stat" else target.range()


def _stat(panel: Panel, place: Place) -> stat.Panel:
    last = build_common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    return (
        _frame(stat.Panel(), panel, place)
        .reduce_options(last)
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .text_mode(common.BigValueTextMode.VALUE)
    )


def _lines(panel: Panel, place: Place) -> timeseries.Panel:
    builder = (
        _frame(timeseries.Panel(), panel, place)
        .line_width(1).fill_opacity(40 if panel.stacked else 0)
        .show_points(common.VisibilityMode.AUTO).span_nulls(False)
        .legend(_legend()).tooltip(_tooltip())
    )  # fmt: skip
    if panel.steps:
        builder = builder.thresholds_style(_area())
    if panel.stacked:
        builder = builder.stacking(build_common.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if panel.low is not None:
        builder = builder.min(panel.low)
    if panel.high is not None:
        builder = builder.max(panel.high)
    for ref_id, query in _lettered(panel):
        if properties := list(_line_properties(query)):
            builder = builder.override_by_query(ref_id, properties)
    return builder


def _line_properties(query: Query) -> Iterable[dashboard.DynamicConfigValue]:
    if query.colour:
        yield dashboard.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": query.colour})
    if query.band_to:
        yield dashboard.DynamicConfigValue("custom.fillBelowTo", query.band_to)
        yield dashboard.DynamicConfigValue("custom.fillOpacity", 25)


def _states(panel: Panel, place: Place) -> statetimeline.Panel:
    by_steps = build_dashboard.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS)
    return (
        _frame(statetimeline.Panel(), panel, place)
        .color_scheme(by_steps).show_value(common.VisibilityMode.NEVER).merge_values(True)
        .row_height(0.9).line_width(0).fill_opacity(100)
        .legend(_legend()).tooltip(_tooltip())
    )  # fmt: skip


def _heat(panel: Panel, place: Place) -> heatmap.Panel:
    """Return a heat map whose rows are the series themselves; greys, since it blames nobody."""
    colours = (
        heatmap.HeatmapColorOptions().mode(heatmap_model.HeatmapColorMode.OPACITY).fill(PEER)
        .scale(heatmap_model.HeatmapColorScale.EXPONENTIAL).exponent(0.5).steps(64)
    )  # fmt: skip
    return (
        _frame(heatmap.Panel(), panel, place)
        .calculate(False).color(colours).cell_gap(1)
        .cell_values(heatmap.CellValues().unit(panel.unit))
        .rows_frame(heatmap.RowsHeatmapOptions().layout(common.HeatmapCellLayout.UNKNOWN))
        .y_axis(heatmap.YAxisConfig().unit("none"))
    )  # fmt: skip


def _table(panel: Panel, place: Place) -> table.Panel:
    """Return a table with one line per set of labels: the queries' values stand side by side."""
    builder = _frame(table.Panel(), panel, place).show_header(True).filterable(True)
    if panel.texts:
        builder = builder.mappings([_mapping(panel.texts)])
        builder = builder.override_by_field_type("string", [_COLOURED])
    builder = builder.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    builder = builder.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=_columns(panel)))
    if panel.highest_first:
        builder = builder.sort_by([build_common.TableSortByFieldState().display_name(panel.highest_first).desc(True)])
    for label, links in panel.links.items():
        shown = [{"title": link.title, "url": link.url, "targetBlank": link.outside} for link in links]
        builder = builder.override_by_name(_header(label), [dashboard.DynamicConfigValue("links", shown)])
    for query in panel.queries:
        if properties := list(_column_properties(query)):
            builder = builder.override_by_name(query.legend, properties)
    return builder


def _columns(panel: Panel) -> Mapping[str, Any]:
    """Return the order and the headers: labels first, each value under its query's legend."""
    renamed = {_value_name(panel, ref_id): query.legend for ref_id, query in _lettered(panel)}
    order = {name: index for index, name in enumerate([*panel.labels, *renamed])}
    renamed["Value"] = panel.queries[0].legend  # what Grafana calls it when only one query has an answer
    renamed |= {label: _header(label) for label in panel.labels if _header(label) != label}
    hidden = {"Time": True} | ({} if "run" in panel.labels else {"run": True})
    return {"excludeByName": hidden, "indexByName": order, "renameByName": renamed, "includeByName": {}}


def _value_name(panel: Panel, ref_id: str) -> str:
    """Return what Grafana calls the value of a query in a table: with its letter where there are several."""
    return f"Value #{ref_id}" if len(panel.queries) > 1 else "Value"


def _header(label: str) -> str:
    return {"gpu_uuid": "GPU"}.get(label, label)


def _column_properties(query: Query) -> Iterable[dashboard.DynamicConfigValue]:
    if query.unit:
        yield dashboard.DynamicConfigValue("unit", query.unit)
    if query.texts:
        yield dashboard.DynamicConfigValue("mappings", [_mapping(query.texts)])
    if query.steps:
        yield dashboard.DynamicConfigValue("thresholds", _thresholds(query.steps).build())
    if query.steps or query.texts:
        yield _COLOURED


def _mapping(texts: Mapping[str, tuple[str, str]]) -> dashboard.ValueMapping:
    shown = {
        value: dashboard.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(texts.items())
    }
    return dashboard.ValueMap(options=shown)


def _thresholds(steps: Steps) -> build_dashboard.ThresholdsConfig:
    built = [dashboard.Threshold(value=value, color=colour) for value, colour in steps]
    return build_dashboard.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(built)


def _area() -> build_common.GraphThresholdsStyleConfig:
    return build_common.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.AREA)


def _links(links: Iterable[Link]) -> list[Any]:
    return [build_dashboard.DashboardLink(link.title).url(link.url).target_blank(link.outside) for link in links]


def _legend() -> build_common.VizLegendOptions:
    return (
        build_common.VizLegendOptions().show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST).placement(common.LegendPlacement.BOTTOM)
    )  # fmt: skip


def _tooltip() -> build_common.VizTooltipOptions:
    return build_common.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)


_RENDERERS: Final[Mapping[Kind, Callable[[Panel, Place], Builder]]] = {
    "stat": _stat, "lines": _lines, "table": _table, "states": _states, "heat": _heat,
}  # fmt: skip
