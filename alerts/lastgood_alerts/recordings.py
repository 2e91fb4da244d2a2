"""What Prometheus evaluates once for several rules; for Grafana it is written out in each.

``written_out`` replaces names, so a recording is used by its bare name: no matchers, no range, at most an offset.
Each reads the series of 16,384 ranks once, and what it records of ranks and nodes is what stands out: a few.
"""

from __future__ import annotations

from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.queries import (
    ACTIVE,
    ALIVE,
    ATTEMPT_RANKS,
    NAMED_GPUS,
    NEWEST,
    OLDER_RANKS,
    SCRAPED,
    SINCE_EVENT,
    added_to,
    bridged,
    dcgm,
    dcgm_of_few,
    gpus,
    newest,
    nodes,
    outside,
    ranks,
    worst,
)
from lastgood_alerts.rule import Operator, Recording

SCRAPED_RANKS: Final = Recording(
    name=ATTEMPT_RANKS,
    query="count by (run, attempt) (group by (run, attempt, rank) (lastgood_rank_info))",
    meaning="Ranks that are scraped, of each attempt.",
)
RUN_ALIVE: Final = Recording(
    name=ALIVE,
    query=f"{ACTIVE} and on (run) ({SINCE_EVENT} < {t.ALIVE_SECONDS} or {SCRAPED})",
    meaning="Runs that are active and not silent: a recent event, or ranks that are scraped.",
)
OLDER: Final = Recording(
    name=OLDER_RANKS,
    query=f"lastgood_rank_info and on (run) lastgood_run_attempt unless on (run, attempt) {NEWEST}",
    meaning="Ranks of attempts that are not the newest: a leftover must not be measured against the new ones.",
)
RANKS_GONE: Final = Recording(
    name="lastgood:ranks_gone",
    query=nodes(
        "count_over_time(lastgood_rank_info[1h]) unless on (run, attempt, rank) lastgood_rank_info "
        f"and on (run, attempt) {NEWEST}"
    ),
    meaning="Ranks of the newest attempt that were scraped within the hour and are not now: how many times they were.",
)


def _per_node(name: str, per_rank: Recording, pick: str, meaning: str) -> Recording:
    return Recording(name=name, query=f"{pick} by (run, node) ({per_rank.name})", meaning=meaning)


def _worst(name: str, per_rank: Recording, operator: Operator) -> Recording:
    """Record who stands out, once for all texts of all alerts: looking it up in each would take minutes."""
    return Recording(name=name, query=worst(per_rank.name, operator), meaning="The worst of these ranks on each node.")


NORMS: Final = newest('lastgood_grad_norm{stage="local"} >= 0')
"""Local gradient norms; a NaN is dropped. A rank that is scraped twice is there twice: a median stays as it is."""
_MEDIAN: Final = "lastgood:grad_norm_local:median"
_MAD: Final = "lastgood:grad_norm_local:mad"

GRAD_NORM_MEDIAN: Final = Recording(
    name=_MEDIAN,
    query=f"quantile by (run) (0.5, {NORMS})",
    meaning="Median over the ranks of a run of the local gradient norm.",
)
GRAD_NORM_MAD: Final = Recording(
    name=_MAD,
    query=f"quantile by (run) (0.5, abs(({NORMS}) - on (run) group_left () {_MEDIAN}))",
    meaning="Median distance of the ranks from that median.",
)
_SPREAD: Final = "lastgood:grad_norm_local:spread"
GRAD_NORM_SPREAD: Final = Recording(
    name=_SPREAD,
    query=f"clamp_min(1.4826 * {_MAD} > {t.GRAD_NORM_FLOOR:g} * {_MEDIAN} or {t.GRAD_NORM_FLOOR:g} * {_MEDIAN}, 1e-30)",
    meaning="That distance as a robust standard deviation (1.4826 MAD), at least a share of the median.",
)
_FAR: Final = outside(
    f"({NORMS})",
    f"({_MEDIAN} - {t.GRAD_NORM_SPREADS:g} * {_SPREAD})",
    f"({_MEDIAN} + {t.GRAD_NORM_SPREADS:g} * {_SPREAD})",
)


def _deviations(norms: str) -> str:
    return f"abs({norms} - on (run) group_left () {_MEDIAN}) / on (run) group_left () {_SPREAD}"


_DEVIATIONS: Final = _deviations(_FAR)
RANK_GRAD_NORM: Final = Recording(
    name="lastgood:grad_norm_deviations",
    query=ranks(f"{_DEVIATIONS} > {t.GRAD_NORM_SPREADS:g}"),
    written=ranks(f"{_deviations(f'({NORMS})')} > {t.GRAD_NORM_SPREADS:g}"),
    meaning="Robust standard deviations from the median, of the ranks that are too far from it.",
)
NODE_GRAD_NORM: Final = _per_node(
    "lastgood:node_grad_norm_deviations:max",
    RANK_GRAD_NORM,
    "max",
    "The largest distance of a node's ranks from the median, where it is too large.",
)
WORST_GRAD_NORM: Final = _worst("lastgood:grad_norm_deviations:worst", RANK_GRAD_NORM, ">")

LOW_MARGIN: Final = Recording(
    name="lastgood:gpu_temperature_margin_celsius:low",
    query=ranks(newest(f"lastgood_gpu_temperature_margin_celsius < {t.MARGIN_CELSIUS:g}"), pick="min"),
    meaning="Degrees left before a GPU slows itself down, of the ranks with few. dcgm-exporter has no margin.",
)
NODE_MARGIN: Final = _per_node(
    "lastgood:node_gpu_temperature_margin_celsius:min",
    LOW_MARGIN,
    "min",
    "Degrees left before the first GPU of a node slows itself down, where they are few.",
)
WORST_MARGIN: Final = _worst("lastgood:gpu_temperature_margin_celsius:worst", LOW_MARGIN, "<")

WATTS: Final = "lastgood:gpu_power_watts:avg5m"
_DCGM_WATTS: Final = "lastgood:dcgm_power_watts:avg5m"
_POWER_MEDIAN: Final = "lastgood:gpu_power_watts:median"
RANK_POWER: Final = Recording(
    name=WATTS,
    query=f"{ranks(newest('avg_over_time(lastgood_gpu_power_watts[5m])'))} >= 0",
    meaning="Power of each rank over 5 minutes, by our device series; what is not a number is dropped.",
)
DCGM_POWER: Final = Recording(
    name=_DCGM_WATTS,
    query=dcgm_of_few(
        f"{newest('lastgood_rank_info')} unless on (run, rank) {WATTS}",
        f"avg_over_time(DCGM_FI_DEV_POWER_USAGE[5m]) >= 0 < {t.PLAUSIBLE_WATTS}",
    ),
    meaning="Power over 5 minutes by dcgm-exporter, of the ranks without that series of ours.",
)
POWER_MEDIAN: Final = Recording(
    name=_POWER_MEDIAN,
    query=f"quantile by (run) (0.5, {WATTS} or {_DCGM_WATTS})",
    meaning="Median power of the GPUs of a run, over 5 minutes.",
)


def _off(watts: str) -> str:
    low, high = (f"({1 + sign * t.POWER_PERCENT / 100:g} * {_POWER_MEDIAN})" for sign in (-1, 1))
    return f"100 * abs({outside(watts, low, high)} / on (run) group_left () {_POWER_MEDIAN} - 1) > {t.POWER_PERCENT:g}"


RANK_POWER_OFF: Final = Recording(
    name="lastgood:gpu_power_deviation_percent",
    query=f"{_off(WATTS)} or {_off(_DCGM_WATTS)}",
    written=(
        f"100 * abs(({WATTS} or {_DCGM_WATTS}) / on (run) group_left () {_POWER_MEDIAN} - 1) > {t.POWER_PERCENT:g}"
    ),
    meaning="Percent by which power is off the median of the run, of the ranks that are too far off.",
)
NODE_POWER: Final = _per_node(
    "lastgood:node_gpu_power_deviation_percent:max",
    RANK_POWER_OFF,
    "max",
    "The largest distance of a node's GPUs from the run's median power, in percent, where it is too large.",
)
WORST_POWER: Final = _worst("lastgood:gpu_power_deviation_percent:worst", RANK_POWER_OFF, ">")

_COUNTED: Final = "lastgood:gpu_ecc_uncorrected"
_DCGM_COUNTED: Final = "lastgood:dcgm_ecc_uncorrected"
COUNTED_ERRORS: Final = Recording(
    name=_COUNTED,
    query=ranks(newest(f"{bridged('lastgood_gpu_ecc_uncorrected_total')} > 0")),
    meaning="Uncorrectable memory errors that a rank's GPU has counted, where it has any.",
)
DCGM_COUNTED_ERRORS: Final = Recording(
    name=_DCGM_COUNTED,
    query=f"max by (UUID) ({bridged('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')} > 0 < {t.PLAUSIBLE_ERRORS})",
    meaning="The same by dcgm-exporter, of each GPU that has any.",
)
_OURS: Final = "lastgood_gpu_ecc_uncorrected_total"
_DCGM_ERRORS: Final = "lastgood:dcgm_ecc_uncorrected:1h"
DCGM_RANK_ERRORS: Final = Recording(
    name=_DCGM_ERRORS,
    query=dcgm(newest("lastgood_rank_info"), f"({added_to(_DCGM_COUNTED, '1h')} > 0)"),
    meaning="Those within the hour by dcgm-exporter, of the ranks whose GPU has any.",
)
RANK_MEMORY_ERRORS: Final = Recording(
    name="lastgood:gpu_ecc_uncorrected:1h",
    query=(
        f"({added_to(_COUNTED, '1h')} or {_DCGM_ERRORS} unless on (run, rank) "
        f"({_OURS} and on (run, rank) {_DCGM_ERRORS})) >= {t.ECC_ERRORS:g}"
    ),
    meaning="Uncorrectable memory errors within the hour, of the ranks with enough: ours, else those of dcgm-exporter.",
)
NODE_MEMORY_ERRORS: Final = _per_node(
    "lastgood:node_gpu_ecc_uncorrected_1h:max",
    RANK_MEMORY_ERRORS,
    "max",
    "Uncorrectable memory errors of a node's worst GPU within the hour.",
)
WORST_MEMORY_ERRORS: Final = _worst("lastgood:gpu_ecc_uncorrected_1h:worst", RANK_MEMORY_ERRORS, ">=")

_LATE: Final = f"time() - (lastgood_step_deadline_timestamp_seconds < time() - {t.STALLED_SECONDS})"
STEP_LATE: Final = Recording(
    name="lastgood:step_late_seconds",
    query=ranks(newest(_LATE)),
    meaning="Seconds past the deadline of their step, of the ranks of the newest attempt that are past it.",
)
LATEST: Final = Recording(
    name="lastgood:step_late_seconds:worst",
    query=f"topk by (run) (1, {STEP_LATE.name})",
    meaning="The latest of these ranks.",
)

_EXPORTER_COUNTED: Final = "lastgood:exporter_errors"
EXPORTER_COUNTED: Final = Recording(
    name=_EXPORTER_COUNTED,
    query=f"max by (run, part, node, rank) ({nodes(bridged('lastgood_exporter_errors_total') + ' > 0')})",
    meaning="Failures of lastgood itself that a rank has counted, where it has any.",
)
EXPORTER_FAILURES: Final = Recording(
    name="lastgood:exporter_errors:15m",
    query=f"{added_to(_EXPORTER_COUNTED, '15m')} > 0",
    meaning="Failures of lastgood itself within 15 minutes, of the ranks that had any.",
)
WORST_FAILURES: Final = Recording(
    name="lastgood:exporter_errors_15m:worst",
    query=f"topk by (run, part) (1, {EXPORTER_FAILURES.name})",
    meaning="The rank with the most of them, for each part of lastgood.",
)

_NAMED: Final = (WORST_GRAD_NORM, WORST_MARGIN, WORST_POWER, WORST_MEMORY_ERRORS, LATEST, WORST_FAILURES)
GPUS: Final = Recording(
    name=NAMED_GPUS,
    query=gpus(f"lastgood_rank_info and on (run, rank) ({' or '.join(recording.name for recording in _NAMED)})"),
    written=gpus("lastgood_rank_info"),
    meaning="The GPUs of the ranks that a text may name.",
)

RECORDINGS: Final = (
    SCRAPED_RANKS,
    RUN_ALIVE,
    OLDER,
    RANKS_GONE,
    GRAD_NORM_MEDIAN,
    GRAD_NORM_MAD,
    GRAD_NORM_SPREAD,
    RANK_GRAD_NORM,
    NODE_GRAD_NORM,
    WORST_GRAD_NORM,
    LOW_MARGIN,
    NODE_MARGIN,
    WORST_MARGIN,
    RANK_POWER,
    DCGM_POWER,
    POWER_MEDIAN,
    RANK_POWER_OFF,
    NODE_POWER,
    WORST_POWER,
    COUNTED_ERRORS,
    DCGM_COUNTED_ERRORS,
    DCGM_RANK_ERRORS,
    RANK_MEMORY_ERRORS,
    NODE_MEMORY_ERRORS,
    WORST_MEMORY_ERRORS,
    STEP_LATE,
    LATEST,
    EXPORTER_COUNTED,
    EXPORTER_FAILURES,
    WORST_FAILURES,
    GPUS,
)
