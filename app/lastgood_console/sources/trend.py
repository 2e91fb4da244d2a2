"""Hold what a metrics server says about a suspect and its peers over time. Context only: a metric never accuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lastgood.state import Incident, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One metric of one suspect rank against the other ranks of its run, over time.

    ``times`` are unix seconds, ascending, evenly apart by ``step_seconds``; the other columns are as long. None: no
    sample at that time; NaN and infinity are values that the metrics server holds. ``unit`` is "" for a bare number,
    else as it stands after a number ("s", "°C", "W"). ``asked_at``: unix seconds when the server was asked.
    """

    metric: str  # grad_norm_local | step_seconds | temperature | power
    unit: str
    rank: int
    times: tuple[float, ...]
    suspect: tuple[float | None, ...]
    median: tuple[float | None, ...]
    p10: tuple[float | None, ...]
    p90: tuple[float | None, ...]
    step_seconds: float
    asked_at: float


TrendsOf = Callable[[RunState, Incident], tuple[Trend, ...]]
"""Return the trends around an incident; empty when there is no metrics server, or none that answers. Never raises."""


def no_trends(state: RunState, incident: Incident) -> tuple[Trend, ...]:
    """Return nothing: the console was started without a metrics server."""
    return ()
