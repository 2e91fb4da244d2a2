"""Hold PromQL against the catalogue: does it parse, and does it name only series and labels that exist?"""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser

from lastgood.catalogue import BY_NAME, Metric

METRIC_OF = {name: metric for metric in BY_NAME.values() for name in metric.series_names}
FOREIGN = re.compile(r"DCGM_FI_DEV_[A-Z0-9_]+|up|ALERTS")
"""Series of others that a query may name."""


def problems(expression: str, recorded: frozenset[str] = frozenset()) -> list[str]:
    """Return what is wrong with an expression. ``recorded``: series that recording rules of ours make."""
    try:
        parsed = promql_parser.parse(expression)
    except ValueError as error:
        return [f"does not parse: {expression} ({error})"]
    return [problem for selector in selectors(parsed) for problem in _selector_problems(selector, recorded)]


def selectors(parsed: promql_parser.Expr) -> list[promql_parser.VectorSelector]:
    """Return every selector of a parsed expression."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(parsed, pre_visit=visit)
    return found


def _selector_problems(selector: promql_parser.VectorSelector, recorded: frozenset[str]) -> Iterator[str]:
    metric = METRIC_OF.get(selector.name or "")
    if metric is None:
        if not (selector.name in recorded or FOREIGN.fullmatch(selector.name or "")):
            yield f"{selector.name} is no series of the catalogue"
        return
    for matcher in selector.matchers.matchers:
        yield from _matcher_problems(metric, matcher)


def _matcher_problems(metric: Metric, matcher: promql_parser.Matcher) -> Iterator[str]:
    if matcher.name not in (*metric.labels, "job", "instance"):
        yield f"{metric.name} has no label {matcher.name}"
    closed = metric.values.get(matcher.name)
    literal = re.fullmatch(r"[\w|-]+", matcher.value)
    if closed and literal and not set(matcher.value.split("|")) <= set(closed):
        yield f"{metric.name}: {matcher.name} is never {matcher.value}"
