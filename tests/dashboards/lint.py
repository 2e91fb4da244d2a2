"""Say what is wrong with a dashboard. Works on the JSON that Grafana gets, not on the code that makes it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.alerts.promql_reading import problems as problems_of_promql
from tests.dashboards.lines import most_series, parse, shape, without_macros

from lastgood_dashboards import UIDS

Board = Mapping[str, Any]
Boards = Mapping[str, Board]

MOST_CHARTS, MOST_LINES, MOST_ROWS = 5, 5, 31
UNITS = {"none", "s", "percentunit", "watt", "joule", "celsius"}
CONSOLE_PAGES = {"/": {"run"}, "/incident": {"run", "incident"}, "/nodes": {"node"}, "/checkpoints": {"run"}}
EVENTS = {"Findings", "Saves", "Restarts"}


def problems(name: str, boards: Boards) -> list[str]:
    """Return every problem of the dashboard ``name``; ``boards`` are all there are, since they link to each other."""
    return [f"{clause.__name__}: {problem}" for clause in CLAUSES for problem in clause(name, boards)]


def panels(board: Board) -> list[dict[str, Any]]:
    """Return the panels without the headings of rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def uid_is_the_stable_one(name: str, boards: Boards) -> Iterator[str]:
    if boards[name]["uid"] != UIDS[name]:
        yield f"{boards[name]['uid']} should be {UIDS[name]}"


def ids_are_unique(name: str, boards: Boards) -> Iterator[str]:
    counts = Counter(panel.get("id") for panel in boards[name]["panels"])
    yield from (f"panel id {number} is used {count} times" for number, count in counts.items() if count > 1)
    if None in counts:
        yield "a panel has no id"


def words_are_there(name: str, boards: Boards) -> Iterator[str]:
    for panel in panels(boards[name]):
        if not panel.get("title") or not panel.get("description"):
            yield f"panel {panel['id']} lacks a title or a description"
    titles = Counter(panel.get("title") for panel in panels(boards[name]))
    yield from (f"two panels are called {title}" for title, count in titles.items() if count > 1)


def units_are_set(name: str, boards: Boards) -> Iterator[str]:
    for panel in panels(boards[name]):
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in UNITS:
            yield f"panel {panel['id']} has the unit {unit}"


def absence_is_not_zero(name: str, boards: Boards) -> Iterator[str]:
    for panel in panels(boards[name]):
        text = panel["fieldConfig"]["defaults"].get("noValue", "")
        if not re.search("[A-Za-z]{2}", text):
            yield f"panel {panel['id']} says {text!r} where there is no data"


def panels_do_not_overlap(name: str, boards: Boards) -> Iterator[str]:
    for panel in boards[name]["panels"]:
        at = panel["gridPos"]
        if at["x"] < 0 or at["x"] + at["w"] > 24:
            yield f"panel {panel['id']} leaves the grid"
    for one, other in combinations(boards[name]["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        if not beside and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]:
            yield f"panels {one['id']} and {other['id']} overlap"


def few_charts_stand_beside_each_other(name: str, boards: Boards) -> Iterator[str]:
    for y in {panel["gridPos"]["y"] for panel in panels(boards[name])}:
        across = [
            p["id"] for p in panels(boards[name]) if p["gridPos"]["y"] <= y < p["gridPos"]["y"] + p["gridPos"]["h"]
        ]
        if len(across) > MOST_CHARTS:
            yield f"panels {across} stand in one row"


def data_source_is_the_variable(name: str, boards: Boards) -> Iterator[str]:
    board = boards[name]
    asked = [variable for variable in board["templating"]["list"] if variable["type"] == "query"]
    for part in (*panels(board), *board["annotations"]["list"], *asked):
        if part.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
            yield f"{part.get('title') or part.get('name')} reads from {part.get('datasource')}"


def questions_have_letters(name: str, boards: Boards) -> Iterator[str]:
    for panel in panels(boards[name]):
        letters = [target.get("refId") for target in panel["targets"]]
        if not letters or None in letters or len(set(letters)) < len(letters):
            yield f"panel {panel['id']} has the refIds {letters}"


def questions_are_promql_of_the_catalogue(name: str, boards: Boards) -> Iterator[str]:
    for where, expression in expressions(boards[name]):
        yield from (f"{where}: {problem}" for problem in problems_of_promql(without_macros(expression)))


def expressions(board: Board) -> Iterator[tuple[str, str]]:
    """Yield where each query of a dashboard stands, and its text."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield f"panel {panel['id']} {target['refId']}", target["expr"]
    for annotation in board["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]


def sound(panel: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the queries that parse and know their metrics: only of those can be said what they return."""
    return [target for target in panel["targets"] if not problems_of_promql(without_macros(target["expr"]))]


def a_moment_is_asked_for_where_one_is_shown(name: str, boards: Boards) -> Iterator[str]:
    for panel in panels(boards[name]):
        for target in panel["targets"]:
            instant = panel["type"] in ("stat", "table")
            if (target.get("instant", False), target.get("range", False)) != (instant, not instant):
                yield f"panel {panel['id']} {target['refId']} is not {'instant' if instant else 'a range'}"


def few_lines_are_drawn(name: str, boards: Boards) -> Iterator[str]:
    most = {"timeseries": MOST_LINES, "state-timeline": MOST_ROWS, "heatmap": MOST_ROWS}
    for panel in panels(boards[name]):
        if panel["type"] in most:
            count = sum(most_series(target["expr"]) for target in sound(panel))
            if count > most[panel["type"]]:
                yield f"panel {panel['id']} can draw {count} lines"


def legends_name_what_they_show(name: str, boards: Boards) -> Iterator[str]:
    for panel in panels(boards[name]):
        for target in sound(panel):
            legend = re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))
            if panel["type"] not in ("table", "stat") and not target.get("legendFormat"):
                yield f"panel {panel['id']} {target['refId']} has no legend"
            if "rank" in legend and not {"node", "gpu_uuid"} <= set(legend):
                yield f"panel {panel['id']} {target['refId']} names a rank without its node and GPU"
            if unknown := set(legend) - set(shape(parse(target["expr"])).labels):
                yield f"panel {panel['id']} {target['refId']} has no label {', '.join(sorted(unknown))}"


def events_are_annotated(name: str, boards: Boards) -> Iterator[str]:
    found = {annotation["name"]: annotation for annotation in boards[name]["annotations"]["list"]}
    if missing := EVENTS - set(found):
        yield f"no annotation for {', '.join(sorted(missing))}"
    many = next(bool(v.get("multi")) for v in boards[name]["templating"]["list"] if v["name"] == "run")
    for event, annotation in found.items():
        if annotation["enable"] == (event == "Saves" and many):  # the saves of all runs would cover every chart
            yield f"{event} is switched {'on' if annotation['enable'] else 'off'}"
        if annotation.get("hide") or "placement" in annotation:
            yield f"the switch of {event} is hidden"
        if not annotation.get("useValueForTime") or "timestamp_seconds" not in annotation["expr"]:
            yield f"{event} stands where Prometheus was asked, not where it happened"


def variables_are_there(name: str, boards: Boards) -> Iterator[str]:
    defined = {variable["name"]: variable["type"] for variable in boards[name]["templating"]["list"]}
    for variable, kind in (("datasource", "datasource"), ("console", "textbox"), ("run", "query")):
        if defined.get(variable) != kind:
            yield f"${variable} is not a {kind}"
    for where, text in (*expressions(boards[name]), *((title, url) for title, url, _ in links(boards[name]))):
        used = {word for word in re.findall(r"\$\{?(\w+)", text) if not word.startswith("__") and not word.isdigit()}
        yield from (f"{where} uses ${word}" for word in sorted(used - set(defined)))


def many_runs_are_matched_as_a_pattern(name: str, boards: Boards) -> Iterator[str]:
    """Hold that a variable with several values is a pattern, and one with a single value is not: dots are no jokers."""
    many = {variable["name"]: bool(variable.get("multi")) for variable in boards[name]["templating"]["list"]}
    for where, text in expressions(boards[name]):
        for operator, variable in re.findall(r'(=~|=)"\$(\w+)"', text):
            if (operator == "=~") != many.get(variable, operator == "=~"):
                yield f"{where} matches ${variable} with {operator}"


def links(board: Board) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """Yield title, address and panel (None: above the panels) of every link."""
    yield from ((link["title"], link["url"], None) for link in board["links"])
    for panel in panels(board):
        found = list(panel["fieldConfig"]["defaults"].get("links", []))
        for override in panel["fieldConfig"]["overrides"]:
            found += [link for prop in override["properties"] if prop["id"] == "links" for link in prop["value"]]
        yield from ((link["title"], link["url"], panel) for link in found)


def links_lead_somewhere(name: str, boards: Boards) -> Iterator[str]:
    by_uid = {board["uid"]: board for board in boards.values()}
    for title, url, panel in links(boards[name]):
        inside = re.sub(r"&?\$\{(datasource|console):queryparam\}|&\$\{__url_time_range\}", "", url)
        parts = urlsplit(inside.replace("${console}", "http://console"))
        asked = set(parse_qs(parts.query))
        if url.startswith("${console}"):
            if parts.path not in CONSOLE_PAGES or not asked <= CONSOLE_PAGES[parts.path]:
                yield f"{title}: the console has no page {parts.path} with {sorted(asked)}"
        elif (target := by_uid.get(parts.path.removeprefix("/d/"))) is None:
            yield f"{title}: no dashboard has the address {parts.path}"
        elif asked - {f"var-{variable['name']}" for variable in target["templating"]["list"]}:
            yield f"{title}: {target['uid']} has no variable {sorted(asked)}"
        yield from _unknown_values(title, url, panel)


def _unknown_values(title: str, url: str, panel: dict[str, Any] | None) -> Iterator[str]:
    """Yield the values that a link takes from a row or a line that does not have them."""
    for label in re.findall(r"\$\{__(?:data\.fields|field\.labels)\.(\w+)\}", url):
        shapes = [shape(parse(target["expr"])).labels for target in sound(panel)] if panel else []
        if not any(label in labels for labels in shapes):
            yield f"{title}: nothing here has the label {label}"


def variables_and_time_are_kept(name: str, boards: Boards) -> Iterator[str]:
    for link in boards[name]["links"]:
        if link["url"].startswith("/d/") and not (link["includeVars"] and link["keepTime"]):
            yield f"{link['title']} forgets variables or time"
    for title, url, panel in links(boards[name]):
        kept = ("${datasource:queryparam}", "${console:queryparam}", "${__url_time_range}")
        if panel and url.startswith("/d/") and not all(part in url for part in kept):
            yield f"{title} forgets the data source, the console or the time"


CLAUSES: tuple[Callable[[str, Boards], Iterator[str]], ...] = (
    uid_is_the_stable_one, ids_are_unique, words_are_there, units_are_set, absence_is_not_zero, panels_do_not_overlap,
    few_charts_stand_beside_each_other, data_source_is_the_variable, questions_have_letters,
    questions_are_promql_of_the_catalogue, a_moment_is_asked_for_where_one_is_shown, few_lines_are_drawn,
    legends_name_what_they_show, events_are_annotated, variables_are_there, many_runs_are_matched_as_a_pattern,
    links_lead_somewhere, variables_and_time_are_kept,
)  # fmt: skip
