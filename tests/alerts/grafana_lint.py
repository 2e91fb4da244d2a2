"""Find what is wrong in Grafana's provisioning files before Grafana does, or before it says nothing.

Grafana drops unknown keys without a word, stops at one bad rule, and replaces ``$`` in most strings. Each function
yields sentences; none means that the file is fine. What Grafana really does with the file is not tested here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.alerts import go_templates, promql_reading

from lastgood_alerts.rule import SEVERITIES

Data = Mapping[str, Any]

EXPRESSION: Final = "__expr__"
UID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
PARAMS: Final = {"gt": 1, "gte": 1, "lt": 1, "lte": 1, "within_range": 2, "outside_range": 2}
OF_SERIES: Final = frozenset({"run", "rank", "node", "gpu_uuid", "job", "instance", "incident", "check", "status"})
RESERVED: Final = frozenset({"alertname", "grafana_folder"})

GROUP_KEYS: Final = {"orgId", "name", "folder", "interval", "rules"}
RULE_KEYS: Final = {
    "uid", "title", "condition", "data", "noDataState", "execErrState", "for", "keepFiringFor", "dashboardUid",
    "panelId", "isPaused", "annotations", "labels", "missing_series_evals_to_resolve", "notification_settings",
}  # fmt: skip
DATA_KEYS: Final = {"refId", "queryType", "relativeTimeRange", "datasourceUid", "model"}
QUERY_KEYS: Final = {"refId", "datasource", "expr", "instant", "range", "intervalMs", "maxDataPoints"}
EXPRESSION_KEYS: Final = {"refId", "datasource", "type", "expression", "conditions", "intervalMs", "maxDataPoints"}
WEBHOOK_KEYS: Final = {
    "url", "httpMethod", "maxAlerts", "authorization_scheme", "authorization_credentials", "username", "password",
    "hmacConfig", "title", "message",
}  # fmt: skip
POLICY_KEYS: Final = {
    "receiver", "group_by", "group_wait", "group_interval", "repeat_interval", "routes", "object_matchers",
    "mute_time_intervals", "active_time_intervals", "continue",
}  # fmt: skip
SECRETS: Final = ("authorization_credentials", "password", "secret")


def keys(what: str, found: Data, allowed: Iterable[str], needed: Iterable[str] = ()) -> Iterator[str]:
    """Yield the keys that Grafana would drop, and those that it needs."""
    for key in sorted(set(found) - {*allowed}):
        yield f"{what}: Grafana does not know the key {key}"
    for key in sorted({*needed} - set(found)):
        yield f"{what}: the key {key} is missing"


def seconds(text: Any) -> int | None:
    """Return a duration such as ``1m30s``; None when it is none."""
    match = DURATION.fullmatch(text) if isinstance(text, str) and text else None
    return match and sum(int(n or 0) * unit for n, unit in zip(match.groups(), (3600, 60, 1), strict=True))


def twice(what: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the names that stand there more than once."""
    yield from (f"{what} {name} stands there twice" for name, count in Counter(names).items() if count > 1)


# --- rules -----------------------------------------------------------------------------------------------------------


def rules_problems(file: Data, datasource_uid: str = "lastgood-prometheus") -> Iterator[str]:
    """Yield what is wrong in ``rules.yaml``."""
    yield from keys("file", file, {"apiVersion", "groups", "deleteRules"}, {"apiVersion", "groups"})
    if file.get("apiVersion") != 1:
        yield f"file: apiVersion is {file.get('apiVersion')}, not 1"
    groups = file.get("groups", [])
    rules = [rule for group in groups for rule in group.get("rules", [])]
    yield from twice("group", (f"{group.get('folder')}/{group.get('name')}" for group in groups))
    yield from twice("uid", (rule.get("uid", "") for rule in rules))
    yield from twice("title", (rule.get("title", "") for rule in rules))
    for group in groups:
        yield from _group_problems(group)
    for rule in rules:
        yield from (f"{rule.get('title')}: {problem}" for problem in _rule_problems(rule, datasource_uid))


def _group_problems(group: Data) -> Iterator[str]:
    what = f"group {group.get('name')}"
    yield from keys(what, group, GROUP_KEYS, GROUP_KEYS - {"orgId"})
    interval = seconds(group.get("interval"))
    if not interval or interval % 10:
        yield f"{what}: interval {group.get('interval')} is no multiple of 10 s"
    if not group.get("rules"):
        yield f"{what}: has no rules"
    yield from _dollars(what, [group.get("name"), group.get("folder")])


def _rule_problems(rule: Data, datasource_uid: str) -> Iterator[str]:
    needed = {"uid", "title", "condition", "data", "for", "noDataState", "execErrState", "annotations", "labels"}
    yield from keys("rule", rule, RULE_KEYS, needed)
    if not UID.fullmatch(rule.get("uid", "")):
        yield f"uid {rule.get('uid')} is not 1 to 40 of letters, digits, _ and -"
    for key in ("for", "keepFiringFor"):
        if key in rule and seconds(rule[key]) is None:
            yield f"{key} {rule[key]} is no duration"
    if rule.get("noDataState") != "OK":
        yield f"noDataState is {rule.get('noDataState')}: a rule that filters is empty in health"
    if rule.get("execErrState") not in ("Alerting", "Error", "OK", "KeepLast"):
        yield f"execErrState is {rule.get('execErrState')}"
    if ("dashboardUid" in rule) != ("panelId" in rule):
        yield "dashboardUid and panelId go together"
    yield from _dollars("rule", [rule.get("uid"), rule.get("title"), rule.get("for")])
    yield from _label_problems(rule.get("labels", {}))
    yield from _data_problems(rule.get("data", []), rule.get("condition"), datasource_uid)
    refs = {query.get("refId") for query in rule.get("data", [])}
    yield from _annotation_problems(rule.get("annotations", {}), refs)


def _dollars(what: str, texts: Iterable[Any]) -> Iterator[str]:
    """Yield the strings in which Grafana would replace an environment variable."""
    yield from (f"{what}: Grafana replaces the $ in {text!r}" for text in texts if "$" in str(text))


def _label_problems(labels: Data) -> Iterator[str]:
    yield from _dollars("label", labels.values())
    for name in labels:
        if name in OF_SERIES or name in RESERVED or name.startswith("__"):
            yield f"label {name} collides with a label of the series or of Grafana"
    yield from (f"label {name} has a template" for name, text in labels.items() if "{{" in str(text))
    if labels.get("severity") not in SEVERITIES:
        yield f"severity {labels.get('severity')} is none of {', '.join(SEVERITIES)}"


def _annotation_problems(annotations: Data, refs: set[Any]) -> Iterator[str]:
    yield from keys("annotations", annotations, annotations, {"summary", "description", "runbook_url"})
    for name, text in annotations.items():
        if "${" in text or "$$" in text:
            yield f"annotation {name}: some versions of Grafana replace ${{...}}, and none replaces $$ here"
        for ref in sorted(set(re.findall(r"\$values\.(\w+)", text)) - refs):
            yield f"annotation {name}: there is no query {ref}"
        if re.search(r"\$value\b", text):
            yield f"annotation {name}: $value is a sentence in Grafana, not a number"
        try:
            go_templates.parse(text)
        except go_templates.TemplateError as error:
            yield f"annotation {name}: {error}"


def _data_problems(data: Sequence[Data], condition: Any, datasource_uid: str) -> Iterator[str]:
    queries = {query["refId"] for query in data if query.get("datasourceUid") != EXPRESSION}
    yield from twice("refId", (query.get("refId", "") for query in data))
    if condition not in {query["refId"] for query in data} - queries:
        yield f"condition {condition} is no expression of the rule"
    for query in data:
        model = query.get("model", {})
        yield from keys(f"query {query.get('refId')}", query, DATA_KEYS, DATA_KEYS - {"queryType"})
        if query.get("refId") != model.get("refId"):
            yield f"query {query.get('refId')}: its model is called {model.get('refId')}"
        if query["datasourceUid"] == EXPRESSION:
            yield from _expression_problems(model, queries)
        else:
            yield from _query_problems(query, model, datasource_uid)


def _query_problems(query: Data, model: Data, datasource_uid: str) -> Iterator[str]:
    what = f"query {query.get('refId')}"
    yield from keys(what, model, QUERY_KEYS, {"expr", "instant", "range", "datasource"})
    if {query["datasourceUid"], model.get("datasource", {}).get("uid")} != {datasource_uid}:
        yield f"{what}: the data source is not {datasource_uid}"
    if model.get("instant") is not True or model.get("range") is not False:
        yield f"{what}: not an instant query"
    window = query.get("relativeTimeRange", {})
    if not window.get("from", 0) > window.get("to", 0):
        yield f"{what}: relativeTimeRange {dict(window)} does not go from earlier to later"
    yield from promql_reading.problems(model.get("expr", ""))


def _expression_problems(model: Data, queries: set[str]) -> Iterator[str]:
    yield from keys("expression", model, EXPRESSION_KEYS, {"type", "expression", "conditions", "datasource"})
    if model.get("type") != "threshold":
        yield f"expression: {model.get('type')} is no threshold"
    if model.get("expression") not in queries:
        yield f"expression: there is no query {model.get('expression')}"
    for condition in model.get("conditions", []):
        evaluator = condition.get("evaluator", {})
        if len(evaluator.get("params", [])) != PARAMS.get(evaluator.get("type"), -1):
            yield f"expression: {evaluator} is no evaluator"
    if len(model.get("conditions", [])) != 1:
        yield "expression: a threshold has one condition"


# --- contact points and policies -------------------------------------------------------------------------------------


def contact_problems(file: Data) -> Iterator[str]:
    """Yield what is wrong in ``contact-points.yaml``."""
    yield from keys(
        "file", file, {"apiVersion", "contactPoints", "deleteContactPoints"}, {"apiVersion", "contactPoints"}
    )
    points = file.get("contactPoints", [])
    yield from twice("uid", (receiver.get("uid", "") for point in points for receiver in point.get("receivers", [])))
    for point in points:
        yield from keys(
            f"contact point {point.get('name')}", point, {"orgId", "name", "receivers"}, {"name", "receivers"}
        )
        for receiver in point.get("receivers", []):
            yield from _receiver_problems(receiver)


def _receiver_problems(receiver: Data) -> Iterator[str]:
    what = f"receiver {receiver.get('uid')}"
    allowed = {"uid", "type", "disableResolveMessage", "settings"}
    yield from keys(what, receiver, allowed, {"uid", "type", "settings"})
    if not UID.fullmatch(receiver.get("uid", "")):
        yield f"{what}: the uid is not 1 to 40 of letters, digits, _ and -"
    settings = receiver.get("settings", {})
    if receiver.get("type") != "webhook":
        yield f"{what}: type {receiver.get('type')} is not the webhook of the console"
    yield from keys(what, settings, WEBHOOK_KEYS, {"url", "httpMethod"})
    yield from keys(what, settings.get("hmacConfig", {}), {"secret", "header", "timestampHeader"})
    for name, value in {**settings, **settings.get("hmacConfig", {})}.items():
        if name in SECRETS and not re.fullmatch(r"\$\{[A-Z][A-Z0-9_]*\}", str(value)):
            yield f"{what}: {name} is not taken from the environment"
        if name not in SECRETS and name != "hmacConfig":
            yield from _dollars(what, [value])


def policy_problems(file: Data, contact_points: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong in ``policies.yaml``. ``contact_points``: the names that exist."""
    yield from keys("file", file, {"apiVersion", "policies", "resetPolicies"}, {"apiVersion", "policies"})
    known = {*contact_points}
    for policy in file.get("policies", []):
        yield from keys("policy", policy, POLICY_KEYS | {"orgId"}, {"receiver", "group_by"})
        yield from _route_problems("policy", policy, known)


def _route_problems(what: str, route: Data, known: set[str]) -> Iterator[str]:
    if route.get("receiver") not in known:
        yield f"{what}: there is no contact point {route.get('receiver')}"
    if "..." in route.get("group_by", []):
        yield f"{what}: grouped by everything, thousands of ranks would be thousands of messages"
    for key in ("group_wait", "group_interval", "repeat_interval"):
        if key in route and seconds(route[key]) is None:
            yield f"{what}: {key} {route[key]} is no duration"
    for matcher in route.get("object_matchers", []):
        if len(matcher) != 3 or matcher[1] not in ("=", "!=", "=~", "!~"):
            yield f"{what}: {matcher} is no matcher"
        if matcher[:2] == ["severity", "="] and matcher[2] not in SEVERITIES:
            yield f"{what}: no rule has severity {matcher[2]}"
    for number, child in enumerate(route.get("routes", [])):
        yield from keys(f"route {number}", child, POLICY_KEYS, {"receiver"})
        yield from _route_problems(f"route {number}", child, known)
