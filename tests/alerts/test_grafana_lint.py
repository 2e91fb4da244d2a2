"""Grafana's files hold to what Grafana reads; each clause of the lint is shown to fail on a broken copy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.alerts import grafana_lint

from lastgood_alerts import grafana_files

GENERATED = Path(__file__).parents[2] / "alerts" / "lastgood_alerts" / "generated" / "grafana" / "alerting"


@cache
def _read(name: str) -> Any:
    return yaml.safe_load((GENERATED / name).read_text(encoding="utf-8"))


def read(name: str) -> Any:
    """Return a copy of a file that a test may break."""
    return copy.deepcopy(_read(name))


def point_names() -> list[str]:
    return [point["name"] for point in read("contact-points.yaml")["contactPoints"]]


def test_the_rules_file_has_no_problem() -> None:
    assert list(grafana_lint.rules_problems(read("rules.yaml"))) == []


def test_the_rules_have_no_problem_with_another_console_and_data_source() -> None:
    text = grafana_files.rules_file(console_url="https://console.example/lastgood", datasource_uid="mimir")
    assert list(grafana_lint.rules_problems(yaml.safe_load(text), "mimir")) == []


def test_the_contact_points_have_no_problem() -> None:
    assert list(grafana_lint.contact_problems(read("contact-points.yaml"))) == []


def test_the_policies_have_no_problem() -> None:
    assert list(grafana_lint.policy_problems(read("policies.yaml"), point_names())) == []


def test_the_folder_holds_nothing_that_stops_grafana() -> None:
    """Any file there that is not YAML or JSON stops Grafana's start."""
    assert [file.name for file in GENERATED.iterdir() if file.suffix not in (".yaml", ".json")] == []


Break = Callable[[Any], object]
BROKEN_RULES: dict[str, Break] = {
    "file: Grafana does not know the key group": lambda file: file.update(group=[]),
    "file: apiVersion is 2": lambda file: file.update(apiVersion=2),
    "group lastgood-findings: Grafana does not know the key every": lambda file: group(file).update(every="1m"),
    "group lastgood-findings: interval 15s is no multiple": lambda file: group(file).update(interval="15s"),
    "group lastgood-findings: interval 0s is no multiple": lambda file: group(file).update(interval="0s"),
    "group lastgood-findings: interval fast is no multiple": lambda file: group(file).update(interval="fast"),
    "group lastgood-findings: has no rules": lambda file: group(file).update(rules=[]),
    "group lastgood-findings: the key folder is missing": lambda file: group(file).pop("folder"),
    "Grafana replaces the $ in 'a$b'": lambda file: group(file).update(folder="a$b"),
    "group lastgood/lastgood-findings stands there twice": lambda file: file["groups"].append(group(file)),
    "uid lastgood-nonfinite-gradients stands there twice": lambda file: group(file)["rules"].append(rule(file)),
    "title Other stands there twice": lambda file: [one.update(title="Other") for one in group(file)["rules"][:2]],
    "uid a.b is not 1 to 40": lambda file: rule(file).update(uid="a.b"),
    "uid xxxxx": lambda file: rule(file).update(uid="x" * 41),
    "rule: Grafana does not know the key keep_firing_for": lambda file: rule(file).update(keep_firing_for="1m"),
    "rule: the key labels is missing": lambda file: rule(file).pop("labels"),
    "rule: the key for is missing": lambda file: rule(file).pop("for"),
    "for soon is no duration": lambda file: rule(file).update({"for": "soon"}),
    "keepFiringFor 1 is no duration": lambda file: rule(file).update(keepFiringFor=1),
    "noDataState is Alerting": lambda file: rule(file).update(noDataState="Alerting"),
    "execErrState is Bad": lambda file: rule(file).update(execErrState="Bad"),
    "dashboardUid and panelId go together": lambda file: rule(file).update(panelId=1),
    "rule: Grafana replaces the $ in 'No$Gradients'": lambda file: rule(file).update(title="No$Gradients"),
    "label: Grafana replaces the $": lambda file: rule(file)["labels"].update(who="$labels.rank"),
    "label who has a template": lambda file: rule(file)["labels"].update(who="{{ .x }}"),
    "label node collides": lambda file: rule(file)["labels"].update(node="a"),
    "label rank collides": lambda file: rule(file)["labels"].update(rank="0"),
    "label job collides": lambda file: rule(file)["labels"].update(job="x"),
    "label alertname collides": lambda file: rule(file)["labels"].update(alertname="x"),
    "label __x__ collides": lambda file: rule(file)["labels"].update(__x__="x"),
    "severity page is none of": lambda file: rule(file)["labels"].update(severity="page"),
    "annotations: the key runbook_url is missing": lambda file: rule(file)["annotations"].pop("runbook_url"),
    "annotation summary: some versions": lambda file: text(file, "${HOME}"),
    "annotation summary: there is no query Z": lambda file: text(file, "{{ $values.Z.Value }}"),
    "annotation summary: $value is a sentence": lambda file: text(file, "{{ $value }}"),
    "annotation summary: a block is never closed": lambda file: text(file, "{{ if $labels.run }}x"),
    "annotation summary: a brace is never closed": lambda file: text(file, "{{ $labels.run"),
    "condition A is no expression": lambda file: rule(file).update(condition="A"),
    "condition Z is no expression": lambda file: rule(file).update(condition="Z"),
    "refId A stands there twice": lambda file: rule(file)["data"].append(rule(file)["data"][0]),
    "query A: its model is called B": lambda file: model(file).update(refId="B"),
    "query A: the key relativeTimeRange is missing": lambda file: rule(file)["data"][0].pop("relativeTimeRange"),
    "query A: relativeTimeRange {'from': 0, 'to': 0}": lambda file: window(file, 0, 0),
    "query A: relativeTimeRange {'from': 0, 'to': 60}": lambda file: window(file, 0, 60),
    "query A: Grafana does not know the key exprs": lambda file: model(file).update(exprs="up"),
    "query A: the data source is not": lambda file: rule(file)["data"][0].update(datasourceUid="other"),
    "query A: the data source is": lambda file: model(file)["datasource"].update(uid="other"),
    "query A: not an instant query": lambda file: model(file).update(instant=False),
    "query A: not an instant": lambda file: model(file).update(range=True),
    "does not parse": lambda file: model(file).update(expr="max by (run ("),
    "lastgood_stepp is no series": lambda file: model(file).update(expr="max(lastgood_stepp)"),
    "lastgood:run_alive is no series": lambda file: model(file).update(expr="lastgood:run_alive"),
    "lastgood_step has no label gpu": lambda file: model(file).update(expr='lastgood_step{gpu="0"}'),
    "expression: reduce is no threshold": lambda file: threshold(file).update(type="reduce"),
    "expression: there is no query Z": lambda file: threshold(file).update(expression="Z"),
    "expression: Grafana does not know the key reducer": lambda file: threshold(file).update(reducer="last"),
    "is no evaluator": lambda file: threshold(file)["conditions"][0].update(evaluator={"type": "above", "params": [1]}),
    "'params': []} is no evaluator": lambda file: threshold(file)["conditions"][0]["evaluator"].update(params=[]),
    "expression: a threshold has one condition": lambda file: threshold(file).update(conditions=[]),
}


def group(file: Any) -> Any:
    return file["groups"][0]


def rule(file: Any) -> Any:
    return group(file)["rules"][0]


def model(file: Any) -> Any:
    return rule(file)["data"][0]["model"]


def threshold(file: Any) -> Any:
    return next(query["model"] for query in rule(file)["data"] if query["datasourceUid"] == "__expr__")


def window(file: Any, begin: int, end: int) -> None:
    rule(file)["data"][0]["relativeTimeRange"] = {"from": begin, "to": end}


def text(file: Any, words: str) -> None:
    rule(file)["annotations"]["summary"] = words


@pytest.mark.parametrize("problem", BROKEN_RULES)
def test_a_rules_file_that_is_broken_is_found(problem: str) -> None:
    broken = read("rules.yaml")
    BROKEN_RULES[problem](broken)
    assert any(problem in found for found in grafana_lint.rules_problems(broken))


def receiver(file: Any) -> Any:
    return file["contactPoints"][0]["receivers"][0]


BROKEN_CONTACTS: dict[str, Break] = {
    "file: Grafana does not know the key points": lambda file: file.update(points=[]),
    "file: the key contactPoints is missing": lambda file: file.pop("contactPoints"),
    "Grafana does not know the key org": lambda file: file["contactPoints"][0].update(org=1),
    "the key uid is missing": lambda file: receiver(file).pop("uid"),
    "the uid is not 1 to 40": lambda file: receiver(file).update(uid="a b"),
    "uid lastgood-console stands there twice": lambda file: file["contactPoints"].append(file["contactPoints"][0]),
    "type slack is not the webhook": lambda file: receiver(file).update(type="slack"),
    "Grafana does not know the key max_alerts": lambda file: receiver(file)["settings"].update(max_alerts=1),
    "the key url is missing": lambda file: receiver(file)["settings"].pop("url"),
    "Grafana does not know the key time": lambda file: receiver(file)["settings"].update(hmacConfig={"time": "x"}),
    "authorization_credentials is not taken from": lambda file: receiver(file)["settings"].update(
        authorization_credentials="hunter2"
    ),
    "secret is not taken from": lambda file: receiver(file)["settings"].update(hmacConfig={"secret": "hunter2"}),
    "Grafana replaces the $ in 'http://$HOST'": lambda file: receiver(file)["settings"].update(url="http://$HOST"),
}


@pytest.mark.parametrize("problem", BROKEN_CONTACTS)
def test_a_contact_point_that_is_broken_is_found(problem: str) -> None:
    broken = read("contact-points.yaml")
    BROKEN_CONTACTS[problem](broken)
    assert any(problem in found for found in grafana_lint.contact_problems(broken))


def policy(file: Any) -> Any:
    return file["policies"][0]


BROKEN_POLICIES: dict[str, Break] = {
    "file: Grafana does not know the key policy": lambda file: file.update(policy=[]),
    "policy: Grafana does not know the key groupBy": lambda file: policy(file).update(groupBy=[]),
    "policy: the key receiver is missing": lambda file: policy(file).pop("receiver"),
    "policy: there is no contact point pager": lambda file: policy(file).update(receiver="pager"),
    "policy: grouped by everything": lambda file: policy(file).update(group_by=["..."]),
    "policy: group_wait soon is no duration": lambda file: policy(file).update(group_wait="soon"),
    "route 0: there is no contact point pager": lambda file: policy(file)["routes"][0].update(receiver="pager"),
    "route 0: Grafana does not know the key match": lambda file: policy(file)["routes"][0].update(match={}),
    "is no matcher": lambda file: policy(file)["routes"][0].update(object_matchers=[["severity", "==", "critical"]]),
    "no rule has severity page": lambda file: policy(file)["routes"][0].update(
        object_matchers=[["severity", "=", "page"]]
    ),
}


@pytest.mark.parametrize("problem", BROKEN_POLICIES)
def test_a_policy_that_is_broken_is_found(problem: str) -> None:
    broken = read("policies.yaml")
    BROKEN_POLICIES[problem](broken)
    assert any(problem in found for found in grafana_lint.policy_problems(broken, point_names()))
