"""Turn the texts of a rule into the templates of Prometheus and of Grafana.

Both are Go templates with ``$labels``. They differ in values: Prometheus has ``$value`` and may query in a text;
Grafana captures the value and the labels of every query of the rule (``$values.B``) and cannot query. So a side value
is a query inside the text for the one, and a query of the rule for the other: the same PromQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from lastgood.catalogue import UNKNOWN
from lastgood_alerts.queries import written_out
from lastgood_alerts.rule import FIELD, SEVERAL, Rule, Side

SIDE_REFS: Final = "BDEFGH"
"""Names of the side queries in Grafana, in the order of the rule's sides. A is the condition, C the threshold."""


class Dialect(Protocol):
    """What the two template languages say differently."""

    def value(self) -> str:
        """Return the expression of the rule's value."""

    def side(self, rule: Rule, side: Side) -> str:
        """Return the template that prints a side."""


class PrometheusDialect:
    """Prometheus: a side is looked up by the text itself."""

    def value(self) -> str:
        """Return ``$value``."""
        return "$value"

    def side(self, rule: Rule, side: Side) -> str:
        """Return a loop over the query's results that prints the one that belongs to this alert."""
        query = side.complete(rule.condition)
        same = [f"eq .Labels.{label} $labels.{label}" for label in side.by]
        condition = same[0] if len(same) == 1 else f"and {' '.join(f'({test})' for test in same)}"
        said = _choice(side, ".Value", ".Labels")
        return f"{{{{ range query `{query}` }}}}{{{{ if {condition} }}}}{said}{{{{ end }}}}{{{{ end }}}}"


class GrafanaDialect:
    """Grafana: a side is another query of the rule, whose value and labels it captures."""

    def value(self) -> str:
        """Return the value of query A."""
        return "$values.A.Value"

    def side(self, rule: Rule, side: Side) -> str:
        """Return the template that prints the captured value and labels."""
        captured = f"$values.{side_ref(rule, side)}"
        return _choice(side, f"{captured}.Value", f"{captured}.Labels")


def side_ref(rule: Rule, side: Side) -> str:
    """Return the name of a side's query in Grafana."""
    return SIDE_REFS[rule.side_names.index(side.name)]


def side_query(rule: Rule, side: Side, recordings: Mapping[str, str]) -> str:
    """Return the query of a side for a system that records nothing."""
    return written_out(side.complete(rule.condition), recordings)


def annotations_of(rule: Rule, dialect: Dialect, console_url: str) -> dict[str, str]:
    """Return the texts and links of a rule. ``console_url`` is where a browser finds the console."""
    console = console_url.rstrip("/")
    return {
        "summary": render(rule.summary, rule, dialect),
        "description": render(rule.description, rule, dialect),
        "console_url": console + link(rule),
        "runbook_url": f"{console}/runbook?name={rule.name}",
    }


def render(text: str, rule: Rule, dialect: Dialect) -> str:
    """Return one text of a rule as a template of ``dialect``."""
    sides = {side.name: side for side in rule.sides}

    def field(name: str) -> str:
        if name == "value":
            return _number(dialect.value(), rule.digits)
        if name == "resume":
            return _resume(dialect.value())
        if name == "who":
            return _who()
        return dialect.side(rule, sides[name]) if name in sides else f"{{{{ $labels.{name} }}}}"

    return _filled(text, field)


def link(rule: Rule) -> str:
    """Return the path of the console's page about an alert, as a template both systems read."""
    run = "?run={{ $labels.run | urlquery }}"
    if rule.link == "incident":
        incident = "&incident={{ $labels.incident | urlquery }}" if "incident" in rule.labels else ""
        return f"/incident{run}{incident}"
    if rule.link == "run":
        return f"/{run}"
    if rule.link == "alerts":
        return "/alerts"
    node = "/nodes?node={{ $labels.node | urlquery }}"
    if "run" not in rule.labels:
        return node
    return f'{{{{ if eq $labels.node "{SEVERAL}" }}}}/{run}{{{{ else }}}}{node}{{{{ end }}}}'


def _choice(side: Side, value: str, labels: str) -> str:
    """Return what a side says: of -1 its ``none``, of less its ``unknown``."""

    def field(name: str) -> str:
        return _number(value, side.digits) if name == "value" else f"{{{{ {labels}.{name} }}}}"

    absent = f"{{{{ if ge {value} -1.0 }}}}{side.none}{{{{ else }}}}{side.unknown}{{{{ end }}}}"
    return f"{{{{ if ge {value} 0.0 }}}}{_filled(side.text, field)}{{{{ else }}}}{absent}{{{{ end }}}}"


def _resume(value: str) -> str:
    step = f"Resume from step {_number(value, 0)}."
    return f"{{{{ if ge {value} 0.0 }}}}{step}{{{{ else }}}}There is no checkpoint to resume from.{{{{ end }}}}"


def _who() -> str:
    named = "rank {{ $labels.rank }} on node {{ $labels.node }} (GPU {{ $labels.gpu_uuid }})"
    return f'{{{{ if eq $labels.rank "{UNKNOWN}" }}}}no rank is named{{{{ else }}}}{named}{{{{ end }}}}'


def _number(value: str, digits: int) -> str:
    return f'{{{{ printf "%.{digits}f" {value} }}}}'


def _filled(text: str, field: Callable[[str], str]) -> str:
    def one(match: re.Match[str]) -> str:
        return field(match[1])

    return FIELD.sub(one, text)
