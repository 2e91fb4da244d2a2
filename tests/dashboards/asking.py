"""Ask Prometheus what a panel asks, in Grafana's place: variables and macros replaced, one moment or a time range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.dashboards.lint import panels
from tests.e2e.real_servers import Prometheus

STEP_SECONDS = 1
RATE_SECONDS = 5
"""What Grafana makes of ``$__rate_interval`` when the data source scrapes every second."""


@dataclass(frozen=True)
class Series:
    """Labels, and (Unix seconds, value) pairs."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def known(self) -> bool:
        """Whether at least one sample is a number that can be drawn."""
        return any(math.isfinite(value) for _, value in self.samples)


@dataclass(frozen=True)
class View:
    """What a person looks at: a Prometheus, a time range in Unix seconds, and what the selectors say."""

    prometheus: Prometheus
    start: float
    end: float
    chosen: Mapping[str, str]

    def panel(self, board: Mapping[str, Any], panel: Mapping[str, Any]) -> dict[str, list[Series]]:
        """Return the answer to each query of ``panel`` by its letter."""
        return {target["refId"]: self._answer(board, target) for target in panel["targets"]}

    def titled(self, board: Mapping[str, Any], title: str) -> dict[str, list[Series]]:
        """Return the answer to each query of the panel with this title."""
        return self.panel(board, next(panel for panel in panels(board) if panel["title"] == title))

    def offered(self, board: Mapping[str, Any], variable: Mapping[str, Any]) -> list[str]:
        """Return what a selector offers that is filled by ``label_values(series, label)``."""
        inner = self.text(board, variable["query"]).removeprefix("label_values(").removesuffix(")")
        selector, _, label = inner.rpartition(", ")
        span = {"match[]": selector, "start": self.start, "end": self.end}
        found: list[str] = self.prometheus.get(f"label/{label}/values", **span)
        return found

    def _answer(self, board: Mapping[str, Any], target: Mapping[str, Any]) -> list[Series]:
        expression = self.text(board, target["expr"])
        if target.get("instant"):
            return self.ask("query", query=expression, time=self.end)
        return self.over_time(expression)

    def over_time(self, expression: str) -> list[Series]:
        return self.ask("query_range", query=expression, start=self.start, end=self.end, step=STEP_SECONDS)

    def text(self, board: Mapping[str, Any], expression: str) -> str:
        """Return the query as it leaves Grafana."""
        expression = expression.replace("$__range", f"{math.ceil(self.end - self.start)}s")
        expression = expression.replace("$__rate_interval", f"{RATE_SECONDS}s")
        for variable in board["templating"]["list"]:
            value = variable["allValue"] if variable.get("includeAll") else self.chosen.get(variable["name"], "")
            expression = expression.replace(f"${variable['name']}", value)
        return expression

    def ask(self, path: str, **parameters: object) -> list[Series]:
        return [_series(found) for found in self.prometheus.get(path, **parameters)["result"]]


def _series(found: Mapping[str, Any]) -> Series:
    samples = found["values"] if "values" in found else [found["value"]]
    return Series(found["metric"], tuple((float(time), float(value)) for time, value in samples))
