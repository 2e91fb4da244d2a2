"""Describe an alert rule once, for Prometheus and for Grafana.

A rule is *condition, operator, threshold*: Prometheus gets ``(condition) operator threshold``; Grafana gets the
condition as query A and the threshold as expression C. A condition of a run has a value in health too. One of ranks and
nodes is empty then, which Grafana calls NoData and the rule's ``noDataState`` calls OK: a value for each of 2,048 nodes
would be an instance each.

The texts use a tiny template of our own, ``{field}``:

- a label of the rule, such as ``{run}``; the rule's condition keeps exactly these labels, so none is ever missing;
- ``{value}``, the condition's value; ``{resume}``, the value as the step to resume from (a rule of findings);
- ``{who}``, the rank, node and GPU of a suspect, or that nobody is named;
- the name of a :class:`Side`: a second query, with its own wording.

A side query answers for every instance: where it knows nothing, -2 stands for "not known", beside the -1 that our
metrics use for "none". Prometheus prints an empty text for what is missing, Grafana's template breaks; so nothing may
be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

Severity = Literal["critical", "warning", "info"]
"""critical: wake somebody. warning: look in working hours. info: never notify on its own."""
Operator = Literal[">", ">=", "<", "<="]
Link = Literal["incident", "node", "run", "alerts"]
"""Which page of the console an alert leads to. Without a label incident: to the newest open one of the run."""

SEVERITIES: Final = get_args(Severity)
SEVERAL: Final = "several"
"""The node of an instance that stands for more nodes than are named one by one."""
FIELD: Final = re.compile(r"\{(\w+)\}")
WHO: Final = ("rank", "node", "gpu_uuid")
"""Labels that say who is meant; ``unknown`` where nobody is."""
_NAME: Final = re.compile(r"^[A-Z][A-Za-z]+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A value beside the condition's, looked up for the text of an alert.

    ``query`` keeps the labels ``by`` (and may keep more); each of them is a label of the rule. ``text`` may use
    ``{value}`` and the labels of the query's result; ``none`` is said of -1, ``unknown`` where there is no result.
    """

    name: str
    query: str
    by: tuple[str, ...] = ("run",)
    text: str = "{value}"
    none: str = "none"
    unknown: str = "unknown"
    digits: int = 0

    def complete(self, condition: str) -> str:
        """Return the query with -2 for each instance of ``condition`` that it knows nothing of."""
        keys = ", ".join(self.by)
        return f"({self.query}) or on ({keys}) (group by ({keys}) ({condition}) - 3)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One alert rule. Times are in seconds.

    ``unit`` is that of the condition's value, ``meaning`` is one line, ``change`` says what to change when.
    """

    name: str
    unit: str
    severity: Severity
    condition: str
    operator: Operator
    threshold: float
    labels: tuple[str, ...]
    meaning: str
    summary: str
    description: str
    link: Link
    change: str
    sides: tuple[Side, ...] = ()
    for_seconds: int = 0
    keep_firing_seconds: int = 0
    digits: int = 0
    check: str = ""

    def __post_init__(self) -> None:
        problems = [*self._problems()]
        if problems:
            raise ValueError(f"rule {self.name!r}: {'; '.join(problems)}")

    def _problems(self) -> Iterator[str]:
        if not _NAME.match(self.name):
            yield "a name is in CamelCase, letters only"
        if self.severity not in SEVERITIES:
            yield f"severity {self.severity!r} is none of {', '.join(SEVERITIES)}"
        who = {"who"} if set(WHO) <= set(self.labels) else set()
        known = {*self.labels, *self.side_names, *who, "value", "resume"}
        for text in (self.summary, self.description):
            for field in FIELD.findall(text):
                if field not in known:
                    yield f"the text uses {{{field}}}, which is no label or side of the rule"
        for side in self.sides:
            if not set(side.by) <= set(self.labels):
                yield f"side {side.name!r} is by {side.by}, which the rule does not keep"
            if side.name in self.labels or side.name in ("value", "resume"):
                yield f"side {side.name!r} has the name of another field"

    @property
    def side_names(self) -> tuple[str, ...]:
        """Return the names of its sides, in order."""
        return tuple(side.name for side in self.sides)

    @property
    def threshold_text(self) -> str:
        """Return the threshold as PromQL reads it."""
        return f"{self.threshold:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A query that Prometheus evaluates once for all rules. Where there is no Prometheus rule, it is written out.

    ``written``: what is written out instead, where that is shorter and gives at least the same series.
    """

    name: str
    query: str
    meaning: str
    written: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, every ``interval_seconds`` (a multiple of 10: Grafana takes no other)."""

    name: str
    interval_seconds: int
    rules: tuple[Rule, ...] = ()
    recordings: tuple[Recording, ...] = ()
