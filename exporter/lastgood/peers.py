"""Read a suspect's metric against the other ranks' from the evidence of its findings.

Context only: a metric never accuses. Evidence of kind ``peers`` carries the numbers of the steps around a finding, so
an incident can show them after every process has gone. Non-finite values are spelled "NaN" and "Infinity", since
JSON has none. An item that cannot be read is left out: it proves nothing and must not hide the incident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lastgood.state import Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """A suspect's metric against the other ranks', step by step. None: no sample; NaN and infinity are values.

    ``attempt``: the attempt that ran the steps.
    """

    metric: str
    rank: int
    attempt: int
    steps: tuple[int, ...]
    suspect: tuple[float | None, ...]
    median: tuple[float | None, ...]
    p10: tuple[float | None, ...]
    p90: tuple[float | None, ...]


def peers(incident: Incident) -> tuple[Peers, ...]:
    """Return the suspects' metrics against their peers, as the findings carry them; context, never an accusation."""
    found: dict[tuple[str, int], Peers] = {}
    for finding in incident.findings:
        for item in finding.evidence:
            parsed = _peers(item, finding.attempt) if item.get("kind") == "peers" else None
            if parsed is not None:
                found.setdefault((parsed.metric, parsed.rank), parsed)
    return tuple(found[key] for key in sorted(found))


def _peers(item: Mapping[str, Any], attempt: int) -> Peers | None:
    try:
        steps = [int(step) for step in item["steps"]]
        rank = int(item["rank"])
        series = {name: [_number(v) for v in item.get(name, ())] for name in ("suspect", "median", "p10", "p90")}
    except (KeyError, TypeError, ValueError):
        return None
    if not steps or not series["suspect"]:
        return None
    fitted = {name: tuple((values + [None] * len(steps))[: len(steps)]) for name, values in series.items()}
    metric = str(item.get("metric", "grad_norm_local"))
    return Peers(metric=metric, rank=rank, attempt=attempt, steps=tuple(steps), **fitted)


def _number(value: Any) -> float | None:
    """Read a number; "NaN", "Infinity" and "-Infinity" are spelled as JSON cannot."""
    return None if value is None or value == "" else float(value)
