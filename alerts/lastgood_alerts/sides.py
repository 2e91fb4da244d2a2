"""The side values that several rules name in their texts."""

from __future__ import annotations

from typing import Final

from lastgood_alerts.rule import Side

LAST_GOOD: Final = Side(
    name="last_good",
    query="max by (run) (lastgood_last_good_step)",
    text="Last good checkpoint to resume from: step {value}.",
    none="There is no good checkpoint to resume from yet.",
    unknown="Which checkpoint to resume from is not known.",
)
"""A sentence: where a person would resume from, for rules whose value is something else."""

STEP: Final = Side(name="step", query="max by (run) (lastgood_run_step)")
"""The last step known from the journal."""


def window_side(edge: str) -> Side:
    """Return the first or the last step of an incident's window: ``start`` or ``end``."""
    keys = ("run", "incident")
    return Side(
        name=edge,
        query=f"max by ({', '.join(keys)}) (lastgood_incident_window_{edge}_step)",
        by=keys,
        none="-1",
        unknown="?",
    )


def worst_side(query: str, by: tuple[str, ...] = ("run", "node")) -> Side:
    """Return who stands out most: rank, node and GPU. ``query``: see :func:`lastgood_alerts.queries.with_gpu`."""
    return Side(name="worst", query=query, by=by, text="rank {rank} on node {worst_node} (GPU {gpu_uuid})")
