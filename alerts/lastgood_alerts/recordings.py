"""What Prometheus evaluates once for several rules; for Grafana it is written out in each.

``written_out`` replaces names, so a recording is used by its bare name: no matchers, no range.
"""

from __future__ import annotations

from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.queries import ACTIVE, ALIVE, NEWEST_RANKS, SCRAPED, SINCE_EVENT, added, dcgm, nodes, ranks, worst
from lastgood_alerts.rule import Operator, Recording

RUN_ALIVE: Final = Recording(
    name=ALIVE,
    query=f"{ACTIVE} and on (run) ({SINCE_EVENT} < {t.ALIVE_SECONDS} or {SCRAPED})",
    meaning="Runs that are active and not silent: a recent event, or ranks that are scraped.",
)


def _worst(name: str, per_rank: str, per_node: Recording, operator: Operator, threshold: float) -> Recording:
    """Record who stands out, once for all texts of all alerts: looking it up in each would take minutes."""
    query = worst(per_rank, operator, threshold, on_nodes=f"{per_node.name} {operator} {threshold:g}")
    return Recording(name=name, query=query, meaning="Of each node beyond the threshold the worst rank and its GPU.")


NORMS: Final = ranks('lastgood_grad_norm{stage="local"} >= 0')
"""Local gradient norms by run, node and rank; a NaN is dropped."""
_MEDIAN: Final = "lastgood:grad_norm_local:median"
_MAD: Final = "lastgood:grad_norm_local:mad"

GRAD_NORM_MEDIAN: Final = Recording(
    name=_MEDIAN,
    query=f"quantile by (run) (0.5, {NORMS})",
    meaning="Median over the ranks of a run of the local gradient norm.",
)
GRAD_NORM_MAD: Final = Recording(
    name=_MAD,
    query=f"quantile by (run) (0.5, abs({NORMS} - on (run) group_left () {_MEDIAN}))",
    meaning="Median distance of the ranks from that median.",
)
GRAD_NORM_DEVIATIONS: Final = "lastgood:grad_norm_deviations"
RANK_GRAD_NORM: Final = Recording(
    name=GRAD_NORM_DEVIATIONS,
    query=(
        f"abs({NORMS} - on (run) group_left () {_MEDIAN}) / on (run) group_left () "
        f"clamp_min(1.4826 * {_MAD} > {t.GRAD_NORM_FLOOR:g} * {_MEDIAN} or {t.GRAD_NORM_FLOOR:g} * {_MEDIAN}, 1e-30)"
    ),
    meaning="Distance of each rank from that median in robust standard deviations (1.4826 MAD, with a floor).",
)
NODE_GRAD_NORM: Final = Recording(
    name="lastgood:node_grad_norm_deviations:max",
    query=f"max by (run, node) ({GRAD_NORM_DEVIATIONS})",
    meaning="The largest distance of a node's ranks from the median, in robust standard deviations.",
)
WORST_GRAD_NORM: Final = _worst(
    "lastgood:grad_norm_deviations:worst", GRAD_NORM_DEVIATIONS, NODE_GRAD_NORM, ">", t.GRAD_NORM_SPREADS
)

MARGIN: Final = "lastgood_gpu_temperature_margin_celsius"
MARGINS: Final = ranks(MARGIN, pick="min")
"""Degrees left by run, node and rank. dcgm-exporter has no margin: without our device series there is none."""
NODE_MARGIN: Final = Recording(
    name="lastgood:node_gpu_temperature_margin_celsius:min",
    query=f"min by (run, node) ({nodes(MARGIN)})",
    meaning="Degrees left before the first GPU of a node slows itself down.",
)
WORST_MARGIN: Final = _worst(
    "lastgood:gpu_temperature_margin_celsius:worst", MARGINS, NODE_MARGIN, "<", t.MARGIN_CELSIUS
)

WATTS: Final = "lastgood:gpu_power_watts:avg5m"
RANK_POWER: Final = Recording(
    name=WATTS,
    query=(
        f"({ranks('avg_over_time(lastgood_gpu_power_watts[5m])')} or "
        f"{dcgm(f'avg_over_time(DCGM_FI_DEV_POWER_USAGE[5m]) < {t.PLAUSIBLE_WATTS}')}) >= 0"
    ),
    meaning="Power of each rank over 5 minutes: ours, else that of dcgm-exporter; what is not a number is dropped.",
)
_POWER_MEDIAN: Final = "lastgood:gpu_power_watts:median"
POWER_MEDIAN: Final = Recording(
    name=_POWER_MEDIAN,
    query=f"quantile by (run) (0.5, {WATTS})",
    meaning="Median power of the GPUs of a run, over 5 minutes.",
)
POWER_DEVIATIONS: Final = f"(100 * abs({WATTS} / on (run) group_left () {_POWER_MEDIAN} - 1))"
"""Percent by which the power of each rank is off the median of its run."""
NODE_POWER: Final = Recording(
    name="lastgood:node_gpu_power_deviation_percent:max",
    query=f"max by (run, node) ({POWER_DEVIATIONS})",
    meaning="The largest distance of a node's GPUs from the run's median power, in percent.",
)
WORST_POWER: Final = _worst(
    "lastgood:gpu_power_deviation_percent:worst", POWER_DEVIATIONS, NODE_POWER, ">", t.POWER_PERCENT
)

_DCGM_ERRORS: Final = added("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "1h")
_OUR_ERRORS: Final = "lastgood_gpu_ecc_uncorrected_total"
MEMORY_ERRORS: Final = "lastgood:gpu_ecc_uncorrected:1h"
RANK_MEMORY_ERRORS: Final = Recording(
    name=MEMORY_ERRORS,
    query=(
        f"{ranks(added(_OUR_ERRORS, '1h'))} or "
        f"{dcgm(f'({_DCGM_ERRORS} < {t.PLAUSIBLE_ERRORS})')} unless on (run, rank) {_OUR_ERRORS}"
    ),
    meaning="Uncorrectable memory errors of each rank within the hour: ours, else those of dcgm-exporter.",
)
NODE_MEMORY_ERRORS: Final = Recording(
    name="lastgood:node_gpu_ecc_uncorrected_1h:max",
    query=f"max by (run, node) ({MEMORY_ERRORS})",
    meaning="Uncorrectable memory errors of a node's worst GPU within the hour.",
)
WORST_MEMORY_ERRORS: Final = _worst(
    "lastgood:gpu_ecc_uncorrected_1h:worst", MEMORY_ERRORS, NODE_MEMORY_ERRORS, ">=", t.ECC_ERRORS
)

_LATE: Final = f"time() - lastgood_step_deadline_timestamp_seconds and on (job, instance, run, rank) {NEWEST_RANKS}"
STEP_LATE: Final = Recording(
    name="lastgood:step_late_seconds",
    query=f"{ranks(_LATE)} > {t.STALLED_SECONDS}",
    meaning="Seconds past the deadline of their step, of the ranks of the newest attempt that are past it.",
)

EXPORTER_FAILURES: Final = Recording(
    name="lastgood:exporter_errors:15m",
    query=f"max by (run, part, node, rank) ({nodes(added('lastgood_exporter_errors_total', '15m'))}) > 0",
    meaning="Failures of lastgood itself within 15 minutes, of the ranks that had any.",
)

RECORDINGS: Final = (
    RUN_ALIVE,
    GRAD_NORM_MEDIAN,
    GRAD_NORM_MAD,
    RANK_GRAD_NORM,
    NODE_GRAD_NORM,
    WORST_GRAD_NORM,
    NODE_MARGIN,
    WORST_MARGIN,
    RANK_POWER,
    POWER_MEDIAN,
    NODE_POWER,
    WORST_POWER,
    RANK_MEMORY_ERRORS,
    NODE_MEMORY_ERRORS,
    WORST_MEMORY_ERRORS,
    STEP_LATE,
    EXPORTER_FAILURES,
)
