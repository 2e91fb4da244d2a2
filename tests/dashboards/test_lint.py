"""The dashboards keep the rules of the house, and each rule can be broken."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.dashboards.lines import most_series
from tests.dashboards.lint import CLAUSES, Boards, panels, problems

from lastgood_dashboards import NAMES, dashboard

Json = dict[str, Any]


@pytest.fixture(scope="module")
def boards() -> Boards:
    return {name: dashboard(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_has_no_problem(name: str, boards: Boards) -> None:
    assert problems(name, boards) == []


def _panel(board: Json, number: int) -> Json:
    return next(panel for panel in panels(board) if panel["id"] == number)


def _expr(board: Json, number: int, old: str, new: str) -> None:
    target = _panel(board, number)["targets"][0]
    assert old in target["expr"]
    target["expr"] = target["expr"].replace(old, new)


def _defaults(board: Json, number: int) -> Json:
    found: Json = _panel(board, number)["fieldConfig"]["defaults"]
    return found


def _variable(board: Json, name: str) -> Json:
    return next(variable for variable in board["templating"]["list"] if variable["name"] == name)


def _no_all(board: Json) -> None:
    _variable(board, "node")["multi"] = False


def _one_more_chart(board: Json) -> None:
    """Squeeze the five of the first row and put a sixth beside them."""
    sixth = copy.deepcopy(_panel(board, 1)) | {"id": 99, "title": "One more"}
    for index, panel in enumerate([*(_panel(board, number) for number in range(1, 6)), sixth]):
        panel["gridPos"] |= {"x": 4 * index, "w": 4}
    board["panels"].append(sixth)


Break = Callable[[Json], object]

BROKEN: dict[str, tuple[str, Break]] = {
    "another uid": ("uid_is_the_stable_one", lambda b: b.update(uid="lastgood-other")),
    "an id twice": ("ids_are_unique", lambda b: _panel(b, 2).update(id=1)),
    "no id": ("ids_are_unique", lambda b: b["panels"][0].pop("id")),
    "no description": ("words_are_there", lambda b: _panel(b, 1).pop("description")),
    "a title twice": ("words_are_there", lambda b: _panel(b, 1).update(title=_panel(b, 2)["title"])),
    "no unit": ("units_are_set", lambda b: _defaults(b, 1).pop("unit")),
    "an unknown unit": ("units_are_set", lambda b: _defaults(b, 1).update(unit="unitt")),
    "absence as zero": ("absence_is_not_zero", lambda b: _defaults(b, 1).update(noValue="0")),
    "absence unsaid": ("absence_is_not_zero", lambda b: _defaults(b, 1).pop("noValue")),
    "an overlap": ("panels_do_not_overlap", lambda b: _panel(b, 2)["gridPos"].update(x=4)),
    "beyond the grid": ("panels_do_not_overlap", lambda b: _panel(b, 5)["gridPos"].update(w=5)),
    "six charts": ("few_charts_stand_beside_each_other", _one_more_chart),
    "a fixed data source": ("data_source_is_the_variable", lambda b: _panel(b, 1).update(datasource={"uid": "prom"})),
    "a variable's data source": ("data_source_is_the_variable", lambda b: _variable(b, "run").pop("datasource")),
    "a letter twice": ("questions_have_letters", lambda b: _panel(b, 11)["targets"][1].update(refId="A")),
    "no PromQL": ("questions_are_promql_of_the_catalogue", lambda b: _expr(b, 1, "max by (run)", "max by (run")),
    "an unknown metric": ("questions_are_promql_of_the_catalogue", lambda b: _expr(b, 1, "last_good", "first_good")),
    "a range for a number": (
        "a_moment_is_asked_for_where_one_is_shown", lambda b: _panel(b, 1)["targets"][0].update(instant=False),
    ),
    "lines of all ranks": (
        "few_lines_are_drawn",
        lambda b: _panel(b, 11)["targets"][0].update(expr='max by (run, rank) (lastgood_grad_norm{run="$run"})'),
    ),
    "other lines at every step": ("few_lines_are_drawn", lambda b: _expr(b, 13, " @ end()", "")),
    "a rank alone": (
        "legends_name_what_they_show", lambda b: _panel(b, 13)["targets"][0].update(legendFormat="rank {{rank}}"),
    ),
    "a label that is not there": (
        "legends_name_what_they_show", lambda b: _panel(b, 9)["targets"][0].update(legendFormat="{{chek}}"),
    ),
    "no legend": ("legends_name_what_they_show", lambda b: _panel(b, 9)["targets"][0].pop("legendFormat")),
    "no findings": ("events_are_annotated", lambda b: b["annotations"]["list"].pop(0)),
    "findings switched off": ("events_are_annotated", lambda b: b["annotations"]["list"][0].update(enable=False)),
    "hidden switches": (
        "events_are_annotated", lambda b: b["annotations"]["list"][0].update(placement="inControlsMenu"),
    ),
    "the time of asking": ("events_are_annotated", lambda b: b["annotations"]["list"][0].pop("useValueForTime")),
    "no console": ("variables_are_there", lambda b: b["templating"]["list"].remove(_variable(b, "console"))),
    "an unknown variable": ("variables_are_there", lambda b: _expr(b, 1, "$run", "$rnu")),
    "a dot as a joker": ("many_runs_are_matched_as_a_pattern", lambda b: _expr(b, 1, 'run="', 'run=~"')),
    "many as one": ("many_runs_are_matched_as_a_pattern", _no_all),
    "a dead link": ("links_lead_somewhere", lambda b: b["links"][0].update(url="/d/lastgood-flet")),
    "a console page that is not": ("links_lead_somewhere", lambda b: b["links"][-1].update(url="${console}/runs")),
    "a variable that is not": (
        "links_lead_somewhere",
        lambda b: _defaults(b, 13)["links"][0].update(url="/d/lastgood-node?var-nod=${__field.labels.node}"),
    ),
    "a value that is not there": (
        "links_lead_somewhere",
        lambda b: _defaults(b, 13)["links"][0].update(url="${console}/nodes?node=${__field.labels.host}"),
    ),
    "a forgotten time": ("variables_and_time_are_kept", lambda b: b["links"][0].update(keepTime=False)),
    "a forgotten console": (
        "variables_and_time_are_kept",
        lambda b: _defaults(b, 13)["links"][0].update(url="/d/lastgood-node?var-node=${__field.labels.node}"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_dashboard_is_named(what: str, boards: Boards) -> None:
    clause, do = BROKEN[what]
    broken = copy.deepcopy(dict(boards))
    do(broken["run"])  # type: ignore[arg-type]
    assert {problem.partition(":")[0] for problem in problems("run", broken)} >= {clause}


def test_every_clause_is_shown_to_fail() -> None:
    assert {clause for clause, _ in BROKEN.values()} == {clause.__name__ for clause in CLAUSES}


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("sum (lastgood_step)", 1),
        ("sum by (check) (lastgood_check_runs_total)", 5),
        ('sum by (trust) (lastgood_checkpoints{trust=~"suspect|tainted"})', 2),
        ("max by (run, rank) (lastgood_grad_norm)", float("inf")),
        ("topk(5, lastgood_step)", float("inf")),
        ("topk(5, lastgood_step @ end())", 5),
        ("max by (run) (lastgood_step) and topk(5, max by (run) (lastgood_step @ end()))", 5),
        ("lastgood_step and on (run) topk(5, max by (run) (lastgood_step @ end()))", float("inf")),
        ("sum by (stage) (lastgood_grad_norm) or sum by (stage) (lastgood_nonfinite_steps_total)", 5),
        ('count_values ("x", clamp_max(round(lastgood_grad_norm, 0.5), 2))', 5),
        ('count_values ("x", lastgood_step)', float("inf")),
    ],
)
def test_the_number_of_lines_follows_from_the_query(query: str, most: float) -> None:
    assert most_series(query) == most
