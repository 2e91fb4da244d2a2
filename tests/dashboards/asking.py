"""Ask Prometheus what a panel asks, in Grafana's place: variables and macros replaced, one moment or a time range."""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

    url: str
    start: float
    end: float
    chosen: Mapping[str, str]

    def panel(self, board: Mapping[str, Any], panel: Mapping[str, Any]) -> dict[str, list[Series]]:
        """Return the answer to each query of ``panel`` by its letter."""
        return {target["refId"]: self._answer(board, target) for target in panel["targets"]}

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
        answer = self.get(path, **parameters)
        return [_series(found) for found in answer["result"]]

    def get(self, path: str, **parameters: object) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)["data"]


def _series(found: Mapping[str, Any]) -> Series:
    samples = found["values"] if "values" in found else [found["value"]]
    return Series(found["metric"], tuple((float(time), float(value)) for time, value in samples))
