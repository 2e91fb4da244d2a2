"""Evaluate Grafana's rule file against a Prometheus HTTP API.

This tests our file, not Grafana's engine: it does what Grafana documents for the few things that our file uses
(instant queries, one threshold expression, values of several queries, templates in annotations) and takes anything
else for an error. Where versions of Grafana differ it takes the strictest reading.
"""

from __future__ import annotations

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from tests.alerts import go_templates

EXPRESSION = "__expr__"
Labels = Mapping[str, str]


class GrafanaFileError(ValueError):
    """The file says something that Grafana, or this reader, does not take."""


@dataclass(frozen=True)
class Sample:
    """One series of an instant query."""

    labels: Labels
    value: float


Query = Callable[[str], list[Sample]]


@dataclass(frozen=True)
class Threshold:
    """The expression that decides whether an instance fires."""

    expression: str
    kind: str
    params: tuple[float, ...]

    def fires(self, value: float) -> bool:
        """Tell whether ``value`` is beyond it. Grafana's versions disagree about NaN, so there must be none."""
        if math.isnan(value):
            raise GrafanaFileError("a condition is NaN: it fires in some versions of Grafana and not in others")
        return THRESHOLDS[self.kind](value, *self.params)


THRESHOLDS: dict[str, Callable[..., bool]] = {
    "gt": lambda value, limit: value > limit,
    "lt": lambda value, limit: value < limit,
    "gte": lambda value, limit: value >= limit,
    "lte": lambda value, limit: value <= limit,
    "within_range": lambda value, low, high: low < value < high,
    "outside_range": lambda value, low, high: value < low or value > high,
}


@dataclass(frozen=True)
class GrafanaRule:
    """A rule as Grafana holds it after reading the file."""

    title: str
    folder: str
    queries: Mapping[str, str]
    condition: str
    threshold: Threshold
    labels: Labels
    annotations: Labels
    no_data_state: str


@dataclass(frozen=True)
class Instance:
    """One label set of a rule: an alert when it fires."""

    labels: Labels
    value: float
    firing: bool
    annotations: Labels


def interpolated(text: str, environ: Mapping[str, str]) -> str:
    """Replace ``$X`` and ``${X}``, as Grafana does to most strings of a file; ``$$`` is a dollar."""
    parts = text.split("$$")
    return "$".join(re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: environ.get(m[1] or m[2], ""), part) for part in parts)


def load(text: str, environ: Mapping[str, str] | None = None) -> list[GrafanaRule]:
    """Return the rules of a provisioning file. Annotations and queries are not interpolated."""
    return [
        _rule(rule, interpolated(group["folder"], environ or {}), environ or {})
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
    ]


def _rule(rule: Mapping[str, Any], folder: str, environ: Mapping[str, str]) -> GrafanaRule:
    models = {query["refId"]: query for query in rule["data"]}
    condition = models[rule["condition"]]
    if condition["datasourceUid"] != EXPRESSION:
        raise GrafanaFileError(f"{rule['title']}: the condition {rule['condition']} is no expression")
    return GrafanaRule(
        title=interpolated(rule["title"], environ),
        folder=folder,
        queries={ref: _expr(query) for ref, query in models.items() if query["datasourceUid"] != EXPRESSION},
        condition=rule["condition"],
        threshold=_threshold(condition["model"]),
        labels={name: interpolated(value, environ) for name, value in rule.get("labels", {}).items()},
        annotations=dict(rule.get("annotations", {})),
        no_data_state=rule.get("noDataState", "NoData"),
    )


def _expr(query: Mapping[str, Any]) -> str:
    model = query["model"]
    if not model.get("instant") or model.get("range"):
        raise GrafanaFileError(f"query {query['refId']} is no instant query: it would need a reduction")
    return str(model["expr"])


def _threshold(model: Mapping[str, Any]) -> Threshold:
    if model["type"] != "threshold" or len(model["conditions"]) != 1:
        raise GrafanaFileError(f"the condition is {model['type']}, not one threshold")
    evaluator = model["conditions"][0]["evaluator"]
    return Threshold(model["expression"], evaluator["type"], tuple(map(float, evaluator["params"])))


def evaluate(rule: GrafanaRule, query: Query) -> list[Instance]:
    """Return every instance of a rule, healthy ones too; texts are made for those that fire."""
    results = {ref: query(expr) for ref, expr in rule.queries.items()}
    if named := [sample for sample in results[rule.threshold.expression] if "__name__" in sample.labels]:
        raise GrafanaFileError(f"{rule.title}: a metric's name would be a label of the alert: {named[0].labels}")
    return [_instance(rule, sample, results) for sample in results[rule.threshold.expression]]


def firing(rule: GrafanaRule, query: Query) -> list[Instance]:
    """Return the instances that fire. No data at all is healthy only where the rule says so."""
    instances = evaluate(rule, query)
    if not instances and rule.no_data_state != "OK":
        raise GrafanaFileError(f"{rule.title} has no data, and its state for that is {rule.no_data_state}")
    return [instance for instance in instances if instance.firing]


def _instance(rule: GrafanaRule, sample: Sample, results: Mapping[str, list[Sample]]) -> Instance:
    fires = rule.threshold.fires(sample.value)
    labels = {**sample.labels, **rule.labels, "alertname": rule.title, "grafana_folder": rule.folder}
    texts: dict[str, str] = {}
    if fires:
        captured = {**captures(sample.labels, results), rule.condition: _capture(Sample(sample.labels, 1.0))}
        data = {"labels": labels, "values": captured}
        texts = {name: _text(rule, text, data) for name, text in rule.annotations.items()}
    return Instance(labels, sample.value, fires, texts)


def _text(rule: GrafanaRule, template: str, data: Mapping[str, Any]) -> str:
    if "${" in template:
        raise GrafanaFileError(f"{rule.title}: new versions of Grafana replace ${{...}} in annotations: {template}")
    try:
        return go_templates.render(template, data)
    except go_templates.TemplateError as error:
        raise GrafanaFileError(f"{rule.title}: {error} in {template}") from None


def captures(labels: Labels, results: Mapping[str, list[Sample]]) -> dict[str, dict[str, Any]]:
    """Return ``$values`` of an instance: of each query the sample whose labels equal, contain or are in its own.

    Several such samples are an error: which one Grafana takes is left to chance.
    """
    found = {}
    for ref, samples in results.items():
        matching = [s for s in samples if s.labels.items() <= labels.items() or labels.items() <= s.labels.items()]
        if len(matching) > 1:
            raise GrafanaFileError(f"query {ref} has {len(matching)} samples for {dict(labels)}")
        if matching:
            found[ref] = _capture(matching[0])
    return found


def _capture(sample: Sample) -> dict[str, Any]:
    return {"Value": float(sample.value), "Labels": dict(sample.labels)}


def prometheus_query(url: str, at: float) -> Query:
    """Return a function that runs instant queries at the Unix time ``at``."""

    def query(expression: str) -> list[Sample]:
        form = urllib.parse.urlencode({"query": expression, "time": f"{at:.3f}"}).encode()
        with urllib.request.urlopen(f"{url}/api/v1/query", data=form, timeout=60) as answer:
            data = json.load(answer)["data"]
        return list(_samples(data))

    return query


def _samples(data: Mapping[str, Any]) -> Iterator[Sample]:
    if data["resultType"] == "scalar":
        yield Sample({}, float(data["result"][1]))
        return
    for series in data["result"]:
        yield Sample(series["metric"], float(series["value"][1]))
