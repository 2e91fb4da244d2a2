"""Build a whole dashboard: its panels, variables, annotations and links to the others.

An annotation takes its time from the *value* of its query (Grafana's ``useValueForTime``; milliseconds). Grafana asks
for annotations in steps of a hundredth of the time range, so whatever is derived from the moment at which a series
changes would stand minutes off and be missed between two steps; the ledger's timestamps hold until the next event and
are exact at any step. ``count_values`` turns the step of the event, which is no label, into one for the text; so each
event is a series of its own, and two of them are never drawn as one span.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from lastgood_dashboards import checkpoints, fleet, node, run
from lastgood_dashboards.links import CONSOLE_URL, DATA_SOURCE_UID
from lastgood_dashboards.queries import ledger
from lastgood_dashboards.render import DATA_SOURCE, panel_of
from lastgood_dashboards.spec import Board, Variable, places

VALUE_LINK: Final = ("title", "url", "targetBlank")
BOARDS: Final = (fleet.BOARD, run.BOARD, node.BOARD, checkpoints.BOARD)


def generated() -> dict[str, str]:
    """Return the text of every dashboard by its name."""
    return {board.name: text_of(built(board).build()) for board in BOARDS}


def text_of(model: dashboard.Dashboard) -> str:
    """Return a dashboard as JSON, with its annotations' switches and its links above the panels.

    The SDK puts both into a menu and leaves no choice; without ``placement`` Grafana shows them. It also gives links
    of values what only a dashboard's own links have.
    """
    content: dict[str, Any] = json.loads(JSONEncoder().encode(model))
    for shown in (*content["annotations"]["list"], *content["links"]):
        shown.pop("placement", None)
    for panel in content["panels"]:
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if "links" in defaults:
            defaults["links"] = [{key: link[key] for key in VALUE_LINK} for link in defaults["links"]]
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def built(board: Board) -> build.Dashboard:
    """Return Grafana's builder of a dashboard."""
    builder = (
        build.Dashboard(board.title).uid(board.uid).description(board.says).tags(["lastgood"])
        .timezone("utc").time(board.since, "now").refresh("1m").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(_data_source_variable())
    )  # fmt: skip
    for variable in board.variables:
        builder = builder.with_variable(_query_variable(variable))
    builder = builder.with_variable(_console_variable())
    for annotation in _annotations(board):
        builder = builder.annotation(annotation)
    for link in _links(board):
        builder = builder.link(link)
    return _with_rows(builder, board)


def _with_rows(builder: build.Dashboard, board: Board) -> build.Dashboard:
    place = places(board.rows)
    for row in board.rows:
        at = place[row.id]
        heading = build.Row(row.title).id(row.id).collapsed(False)
        builder = builder.with_row(heading.grid_pos(dashboard.GridPos(h=at.height, w=at.width, x=at.x, y=at.y)))
        for panel in row.panels:
            builder = builder.with_panel(panel_of(panel, place[panel.id]))
    return builder


def _data_source_variable() -> build.DatasourceVariable:
    chosen = dashboard.VariableOption(selected=True, text=DATA_SOURCE_UID, value=DATA_SOURCE_UID)
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus").current(chosen)


def _query_variable(variable: Variable) -> build.QueryVariable:
    builder = (
        build.QueryVariable(variable.name).label(variable.label).description(variable.says)
        .datasource(DATA_SOURCE).query(variable.query).definition(variable.query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.NATURAL_ASC)
        .allow_custom_value(True)
    )  # fmt: skip
    if not variable.many:
        return builder.multi(False).include_all(False)
    every = dashboard.VariableOption(selected=True, text="All", value="$__all")
    return builder.multi(True).include_all(True).all_value(".+").current(every)


def _console_variable() -> build.TextBoxVariable:
    chosen = dashboard.VariableOption(selected=True, text=CONSOLE_URL, value=CONSOLE_URL)
    return (
        build.TextBoxVariable("console").label("Console").description("Address of the lastgood console, for the links")
        .default_value(CONSOLE_URL).current(chosen)
    )  # fmt: skip


def _annotations(board: Board) -> Iterator[build.AnnotationQuery]:
    runs = board.runs
    one_run = "=~" not in runs  # the saves of a hundred runs would cover every chart: there they can be switched on
    yield _annotation(
        "Findings", "red", "{{check}} failed at step {{step}}", "run {{run}}",
        _event(runs, "finding_last_step", "step", "finding_last_timestamp_seconds", by="run, check"),
    )  # fmt: skip
    yield _annotation(
        "Saves", "blue", "Saved step {{step}}", "run {{run}}",
        _event(runs, "checkpoint_last_step", "step", "checkpoint_last_timestamp_seconds"), enable=one_run,
    )  # fmt: skip
    yield _annotation(
        "Restarts", "orange", "Attempt {{attempt}} started", "run {{run}}",
        _event(runs, "run_attempt", "attempt", "run_attempt_start_timestamp_seconds"),
    )  # fmt: skip


def _event(runs: str, number: str, label: str, timestamp: str, by: str = "run") -> str:
    """Return the time of the newest event in milliseconds, with its number as the label ``label``."""
    numbered = f'count_values by ({by}) ("{label}", {ledger(number, runs, by=by)} >= 0)'
    return f"0 * {numbered} + on ({by}) group_left () (1000 * {ledger(timestamp, runs, by=by)})"


def _annotation(name: str, colour: str, title: str, text: str, expr: str, enable: bool = True) -> build.AnnotationQuery:
    return (
        build.AnnotationQuery().name(name).datasource(DATA_SOURCE).enable(enable).hide(False).icon_color(colour)
        .expr(expr).title_format(title).text_format(text).tag_keys("run").use_value_for_time(True).step("10s")
    )  # fmt: skip


def _links(board: Board) -> Iterator[build.DashboardLink]:
    for other in BOARDS:
        if other.name != board.name:
            title = other.title.removeprefix("lastgood: ").capitalize()
            yield _link(title, f"/d/{other.uid}").include_vars(True).keep_time(True)
    yield _link(board.console.title, board.console.url).target_blank(True)


def _link(title: str, url: str) -> build.DashboardLink:
    return build.DashboardLink(title).type(dashboard.DashboardLinkType.LINK).icon("external link").url(url)
