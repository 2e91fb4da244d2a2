"""Breakages of rules that change nothing in any world that can be, each with the reason."""

from __future__ import annotations

import re
from typing import Final

EQUIVALENT: Final = (
    (r"step_late_seconds: .*< time\(\) - ': '0' became '-1'", "the rule holds the boundary too"),
    (r"named_gpus: .*': '1' became '2'", "needs one rank at two GPUs of one node at the same time"),
    (r"named_gpus: .*became 'by \(run, node\)'", "the one rank that is named is the first of its node in every case"),
    (r"grad_norm_deviations: .*older_attempts\)\) ': '[<>]' became '[<>]='", "at the limit the rule's threshold holds"),
    (r"grad_norm_deviations: at 81 .*': '>=' became '>'", "a norm of 0 is never above the upper limit"),
    (
        r"unless ': 'on \(job, instance, run, rank\)' became "
        r"'on \((instance, run, rank|job, instance, rank|job, instance, run)\)'",
        "two processes at one address are not of two jobs, runs or ranks at the same time",
    ),
    (r"instance, run, rank\) \(lastgood_rank_info': '\{rank=\"0\"\}' became '\{\}'", "the join keeps rank 0 anyway"),
    (r"\(lastgood_step': '\{rank=\"0\"\}' became '\{\}'", "the join keeps rank 0 anyway"),
    (r"lastgood_step\{rank=\"0\"\} and ': .* became 'on \(job, instance, run\)'", "both sides are rank 0 alone"),
    (r"step_late_seconds\)': without or", "a value in health, which Grafana alone wants"),
    (r"step_late_seconds\) or group ': .* became 'by \(\)'", "a value in health, which Grafana alone wants"),
    (
        r"(_total|offset \w+|_total\[10m\]\)|offset \w+\)) ': '>' became '>='",
        "a counter at 0 adds nothing; left out to save time",
    ),
    (
        r"(_total|offset \w+|_total\[10m\]\)|offset \w+\)) > ': '0' became '-1'",
        "a counter is never negative; 0 is left out to save time",
    ),
    (
        r"(exporter_errors_total|ECC_DBE_VOL_TOTAL|journal_unreadable_lines_total)\[': '10m' became '40m'",
        "a longer bridge over a failed scrape: to a count that lingers nothing is added",
    ),
    (r"exporter_errors:15m\)\) >= ': '1' became '0'", "only ranks with failures are there"),
    (r"last_read_timestamp_seconds\[': '1d' became '4d'", "how long a gone ledger is remembered; no case lasts a day"),
    (
        r"\(lastgood:attempt_ranks\) \* (0 \+ time\(\) - )?': '(0' became '-?1|86400' became '(129600|43200))'",
        "where no ledger was seen the text says so and no age: any that is beyond the threshold will do",
    ),
    (r"grad_norm.*\{stage=\"local\"\} >= ': '0' became '-1'", "a norm is never negative"),
    (r"gpu_power_watts:avg5m: .*\)\) >= ': '0' became '-1'", "power is never negative"),
    (r"DCGM_FI_DEV_POWER_USAGE\[5m\]\) >= ': '0' became '-1'", "power is never negative"),
    (r"_power_watts:avg5m ': '([<>])' became '\1='$", "deviations at the boundary are left out after"),
    (r"avg5m > .*'1\.25' became '0\.25'", "smaller deviations are left out after; here to save time"),
    (r"avg5m < .*'0\.75' became '1\.75'", "smaller deviations are left out after; here to save time"),
    (r"gpu_power_watts:median - 1\) ': '>' became '>='", "ranks at the boundary are left out before"),
    (r"gpu_power_watts:median - 1\) > ': '25' became '12\.5'", "ranks within the boundary are left out before"),
    (r"1\.4826 \* lastgood:grad_norm_local:mad ': '>' became '>='", "at equality both sides are the same"),
    (r"\{stage=\"local\"\} >= 0\) ': '([<>])' became '\1='", "deviations at the boundary are left out after"),
    (r"grad_norm_local:median [+-] ': '8' became '4'", "smaller deviations are left out after; here to save time"),
    (r"grad_norm_local:spread ': '>' became '>='", "ranks at the boundary are left out before"),
    (r"grad_norm_local:spread > ': '8' became '4'", "ranks within the boundary are left out before"),
    (r"abs\(\(\(lastgood_grad_norm\{stage=\"local\"\} ': '>=' became '>'", "a norm of 0 is never too large"),
    (r"\"several\", \"run\", \"\.\*\"\)\) ': '([<>])' became '\1='$", "what is recorded is beyond the threshold"),
    (
        r"\"several\", \"run\", \"\.\*\"\)\) [<>]=? ': '(8' became '4|5' became '7\.5|25' became '12\.5|1' became '0)'",
        "what is recorded is beyond the threshold",
    ),
    (r"_DBE_VOL_TOTAL\[10m\]\) (> )?': '(>|0)' became '(>=|-1)'", "a counter at 0 adds nothing; left out to save time"),
    (r"dcgm_ecc_uncorrected:1h: .*_uncorrected\) (> )?': '(>|0)' became '(>=|-1)'", "the next recording leaves 0 out"),
    (
        r"lastgood_gpu_ecc_uncorrected_total( and ': 'on .*|': without and)",
        "few ranks are asked for; saves comparing all",
    ),
    (r"lastgood:attempt_ranks\) - ': '1' became '2'", "a value in health, which Grafana alone wants"),
    (r"step_deadline_timestamp_seconds (< time\(\) - )?': '(<|0)' became '(<=|-1)'", "the rule holds the boundary too"),
    (
        r"named_gpus: .*_rank_info( and ': 'on .*|': without and)$",
        "saves looking up the GPUs of ranks that no text names",
    ),
    (r"\(vector.*('>' became '>='|'1' became '2'|'0' became '-1')$", "the watchdog's value is a constant"),
)
"""(what a mutation says of itself, why no case can notice it)."""


def reason_for(what: str) -> str:
    """Return why a breakage changes nothing; empty when it should have been noticed."""
    return next((reason for pattern, reason in EQUIVALENT if re.search(pattern, what)), "")
