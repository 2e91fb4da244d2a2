"""Rules about ranks and devices that stand out. Metrics never accuse: these are evidence to look at, not verdicts.

Each makes one alert per node with the worst of its ranks, for at most 7 nodes of a run; more nodes are one alert with
node="several". Power and memory errors come from our device series or, where those are off, from dcgm-exporter.
dcgm-exporter has no margin to the slowdown threshold, so ThermalMarginLow is silent without our device series.
"""

from __future__ import annotations

from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.queries import bounded, named
from lastgood_alerts.recordings import (
    NODE_GRAD_NORM,
    NODE_MARGIN,
    NODE_MEMORY_ERRORS,
    NODE_POWER,
    WORST_GRAD_NORM,
    WORST_MARGIN,
    WORST_MEMORY_ERRORS,
    WORST_POWER,
)
from lastgood_alerts.rule import Operator, Recording, Rule, Severity
from lastgood_alerts.sides import LAST_GOOD, worst_side


def _node_rule(
    name: str, severity: Severity, per_node: Recording, worst: Recording, operator: Operator, threshold: float, *,
    unit: str, summary: str, description: str, meaning: str, change: str, for_seconds: int = 0,
) -> Rule:  # fmt: skip
    """Build a rule with one instance per node beyond the threshold; ``worst`` is the rank that stands out most."""
    pick = "min" if operator.startswith("<") else "max"
    return Rule(
        name=name,
        unit=unit,
        severity=severity,
        condition=bounded(per_node.name, pick),
        operator=operator,
        threshold=threshold,
        labels=("run", "node"),
        for_seconds=for_seconds,
        keep_firing_seconds=t.KEEP_FIRING_SECONDS,
        meaning=meaning,
        summary=f"{summary} {{last_good}}",
        description=f"{description} {{last_good}}",
        link="node",
        sides=(LAST_GOOD, worst_side(named(worst.name, operator))),
        change=change,
    )


GRAD_NORM_OUTLIER: Final = _node_rule(
    "GradNormOutlier", "warning", NODE_GRAD_NORM, WORST_GRAD_NORM, ">", t.GRAD_NORM_SPREADS,
    unit="robust standard deviations from the median",
    for_seconds=t.GRAD_NORM_SECONDS,
    meaning="A rank's gradient norm is far from those of the other ranks. It accuses nobody.",
    summary="Gradient norm off in run {run}, node {node}: {worst}, {value} deviations.",
    description=(
        "In run {run} the local gradient norm of {worst} is {value} robust standard deviations from the median over "
        "the ranks (node {node}). Data can do this: nobody is accused. The next replay decides; watch this rank."
    ),
    change="`GRAD_NORM_SPREADS`: higher when batches differ much in length.",
)  # fmt: skip

THERMAL_MARGIN_LOW: Final = _node_rule(
    "ThermalMarginLow", "warning", NODE_MARGIN, WORST_MARGIN, "<", t.MARGIN_CELSIUS,
    unit="degrees Celsius left",
    for_seconds=t.MARGIN_SECONDS,
    meaning="A GPU is within a few degrees of the limit at which it slows itself down. Needs our device series.",
    summary="Hot GPU in run {run}, node {node}: {worst}, {value} °C left.",
    description=(
        "On node {node} of run {run} the hottest is {worst}: {value} °C are left before it slows itself down, by its "
        "own limit. Every rank then waits for it. Look at cooling, and at whether the whole node or rack is hot."
    ),
    change="`MARGIN_CELSIUS`: lower when the fleet runs hot by design.",
)  # fmt: skip

POWER_DEVIATES: Final = _node_rule(
    "PowerDeviates", "info", NODE_POWER, WORST_POWER, ">", t.POWER_PERCENT,
    unit="percent from the median",
    for_seconds=t.POWER_SECONDS,
    meaning="A GPU draws much more or less power than the median of its run. It accuses nobody.",
    summary="Power off in run {run}, node {node}: {worst}, {value} % off.",
    description=(
        "In run {run} the power of {worst} has been {value} % off the median of the run's ranks, over 5 minutes "
        "(node {node}). Throttling, a power cap or unequal work can be the reason; nobody is accused."
    ),
    change="`POWER_PERCENT`: higher when ranks have unequal work by design.",
)  # fmt: skip

UNCORRECTED_ECC: Final = _node_rule(
    "UncorrectedEcc", "warning", NODE_MEMORY_ERRORS, WORST_MEMORY_ERRORS, ">=", t.ECC_ERRORS,
    unit="errors within the hour",
    meaning="A GPU counted a memory error that it could not correct. A process that it killed at once was not scraped.",
    summary="Uncorrectable memory errors in run {run}, node {node}: {worst}, {value} within the hour.",
    description=(
        "Within the hour {worst} counted uncorrectable memory errors in run {run} (node {node}, most on one GPU: "
        "{value}). What was there when the rank was first scraped counts for an hour too. Drain the node and reset the "
        "GPU."
    ),
    change="Leave it.",
)  # fmt: skip

DEVICE_RULES: Final = (GRAD_NORM_OUTLIER, THERMAL_MARGIN_LOW, POWER_DEVIATES, UNCORRECTED_ECC)
