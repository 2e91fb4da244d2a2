"""Say from the text of a query how many series it can return at most, and by which labels.

Known from the catalogue: how many values a label has. Known from the house: a device runs one rank, so on one node a
rank has one GPU. A ``topk`` bounds a chart only when it chooses the same series at every step, which is when all it
reads is taken ``@ end()``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import promql_parser as promql

from lastgood.catalogue import BY_NAME

METRIC_OF = {name: metric for metric in BY_NAME.values() for name in metric.series_names}
OF_A_RANK = {"gpu_uuid", "local_rank"}
"""Labels that have one value for a rank on a node."""


@dataclass(frozen=True)
class Shape:
    """Labels of a result with how many values each can have, and groups of labels with how many combinations."""

    labels: Mapping[str, float]
    groups: tuple[tuple[frozenset[str], float], ...] = ()

    @property
    def count(self) -> float:
        """How many series there are at most."""
        return min(
            combinations * _product(self.labels, frozenset(self.labels) - _settled(group))
            for group, combinations in ((frozenset(), 1.0), *self.groups)
        )

    def by(self, labels: Iterable[str]) -> Shape:
        """Return what is left when series are told apart by ``labels`` alone."""
        kept = {label: self.labels.get(label, 1.0) for label in labels}
        return Shape(kept, tuple((group & frozenset(kept), most) for group, most in self.groups))

    def at_most(self, count: float, labels: Iterable[str]) -> Shape:
        return Shape(self.labels, (*self.groups, (frozenset(labels), count)))


def _product(counts: Mapping[str, float], labels: Iterable[str]) -> float:
    return math.prod(counts[label] for label in labels)


def _settled(group: frozenset[str]) -> frozenset[str]:
    """Return the labels whose values follow from those of ``group``."""
    return group | (OF_A_RANK if {"rank", "node"} <= group else set())


def most_series(expression: str) -> float:
    return shape(parse(expression)).count


def parse(expression: str) -> promql.Expr:
    return promql.parse(without_macros(expression))


def without_macros(expression: str) -> str:
    return re.sub(r"\$__(range|rate_interval|interval)\b", "5m", expression)


def shape(node: promql.Expr) -> Shape:
    match node:
        case promql.NumberLiteral() | promql.StringLiteral():
            return Shape({})
        case promql.ParenExpr() | promql.UnaryExpr():
            return shape(node.expr)
        case promql.VectorSelector():
            return _of_selector(node)
        case promql.MatrixSelector():
            return _of_selector(node.vector_selector)
        case promql.Call() if node.func.name == "scalar":
            return Shape({})
        case promql.Call():
            vectors = [argument for argument in node.args if not isinstance(argument, promql.NumberLiteral)]
            return shape(vectors[0]) if vectors else Shape({})
        case promql.AggregateExpr():
            return _of_aggregate(node)
        case promql.BinaryExpr():
            return _of_binary(node)
    raise AssertionError(f"no rule for {type(node).__name__}")


def _of_selector(selector: promql.VectorSelector) -> Shape:
    metric = METRIC_OF[selector.name]
    counts = {label: float(len(metric.values.get(label, ())) or math.inf) for label in (*metric.labels, "instance")}
    for matcher in selector.matchers.matchers:
        counts[matcher.name] = min(counts[matcher.name], _values(matcher))
    return Shape(counts)


def _values(matcher: promql.Matcher) -> float:
    if matcher.op == promql.MatchOp.Equal:
        return 1.0
    plain = str(matcher.op).endswith("Re") and re.fullmatch(r"[\w|]+", matcher.value)
    return float(len(matcher.value.split("|"))) if plain else math.inf


def _of_aggregate(node: promql.AggregateExpr) -> Shape:
    inner = shape(node.expr)
    by = [] if node.modifier is None else node.modifier.labels
    if str(node.op) in ("topk", "bottomk"):
        steady = node.param.val * inner.by(by).count if at_the_end(node.expr) else math.inf
        return inner.at_most(steady, inner.labels)
    kept = inner.by(by)
    if str(node.op) == "count_values":
        return Shape({**kept.labels, node.param.val: _distinct(node.expr)}, kept.groups)
    return kept


def _distinct(values: promql.Expr) -> float:
    """Return how many values ``clamp_max(round(x, a), b)`` of an x >= 0 can have."""
    if isinstance(values, promql.Call) and values.func.name == "clamp_max":
        inner, highest = values.args
        if isinstance(inner, promql.Call) and inner.func.name == "round":
            return highest.val / inner.args[1].val + 1
    return math.inf


def at_the_end(node: promql.Expr) -> bool:
    """Tell whether all that ``node`` reads is taken at the end of the time range."""
    ends: list[bool] = []

    def visit(part: promql.Expr) -> bool:
        if isinstance(part, promql.VectorSelector):
            ends.append(part.at is not None and str(part.at.type).endswith("End"))
        return True

    promql.walk(node, pre_visit=visit)
    return bool(ends) and all(ends)


def _of_binary(node: promql.BinaryExpr) -> Shape:
    left, right = shape(node.lhs), shape(node.rhs)
    matching = node.modifier.matching if node.modifier else None
    on = None if matching is None else list(matching.labels)
    match str(node.op):
        case "or":
            names = left.labels.keys() | right.labels.keys()
            both = {name: left.labels.get(name, 1.0) + right.labels.get(name, 1.0) for name in names}
            return Shape(both).at_most(left.count + right.count, both)
        case "unless":
            return left
        case "and":
            common = left.labels if on is None else on
            return left.at_most(right.by(common).count, common)
    return _of_arithmetic(node.modifier, left, right, on)


def _of_arithmetic(modifier: promql.BinModifier | None, left: Shape, right: Shape, on: list[str] | None) -> Shape:
    if on is None and not (left.labels and right.labels):  # a number, or what time() says
        return left if left.labels else right
    card = str(modifier.card) if modifier else ""
    many, one = (right, left) if card.endswith("OneToMany") else (left, right)
    if on is not None and card.endswith("OneToOne"):
        return many.by(on)
    extra = {label: one.labels.get(label, 1.0) for label in (modifier.group_labels or [] if modifier else [])}
    return Shape({**many.labels, **extra}, many.groups)
