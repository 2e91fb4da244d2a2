"""Rules about the progress of a run.

A run that died without a word stays active in the ledger for ever: RunVanished says so for a day, and the rules that
go by the ledger alone ask for a run that is alive. StepStalled and RankSilent ask for ranks that are scraped, which is
life enough: a run that hangs writes no events.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.queries import (
    ACTIVE,
    ALIVE,
    ATTEMPT_RANKS,
    NEWEST,
    SCRAPED,
    SINCE_EVENT,
    with_gpu,
)
from lastgood_alerts.recordings import LATEST, RANKS_GONE, STEP_LATE
from lastgood_alerts.rule import Rule, Side
from lastgood_alerts.sides import LAST_GOOD, STEP, worst_side

_RANK_ZERO: Final = (
    '(lastgood_step{rank="0"} and on (job, instance, run, rank) '
    f'(lastgood_rank_info{{rank="0"}} and on (run, attempt) {NEWEST}))'
)
_NOW_AT: Final = f"max by (run) (lastgood_run_step or {_RANK_ZERO})"
_DUE: Final = "max by (run, check) (lastgood_check_due_step)"

CHECKS_STALE: Final = Rule(
    name="ChecksStale",
    unit="steps past the due step",
    severity="warning",
    condition=f"{_NOW_AT} - on (run) group_right () {_DUE} and on (run) {ALIVE}",
    operator=">",
    threshold=0,
    labels=("run", "check"),
    for_seconds=t.CHECKS_STALE_SECONDS,
    meaning="A check that is on has not passed for three of its intervals. Silence is not health.",
    summary="The check {check} is overdue in run {run} by {value} steps. {last_good}",
    description=(
        "The check {check} of run {run} is {value} steps past the step by which it should have passed again. The "
        "newest state that passed it: step {passed}. Until it runs again, nothing is known of what it looks for. "
        "{last_good}"
    ),
    link="run",
    sides=(
        LAST_GOOD,
        Side(
            name="passed",
            query="max by (run, check) (lastgood_run_check_last_pass_step)",
            by=("run", "check"),
            none="none in this attempt",
        ),
    ),
    change="`CHECKS_STALE_SECONDS`; the due step itself follows from the check's interval.",
)

_WORLD: Final = "max by (run) (lastgood_run_world_size)"
_PRESENT: Final = f"sum by (run) ({ATTEMPT_RANKS} and on (run, attempt) {NEWEST})"
_SETTLING: Final = (
    f"(time() - max by (run) (lastgood_run_attempt_start_timestamp_seconds) < {t.ATTEMPT_SETTLES_SECONDS})"
)
_ONE_GONE: Final = Side(
    name="one",
    query=f"bottomk by (run) (1, {RANKS_GONE.name})",
    text="rank {rank} on node {node} (GPU {gpu_uuid})",
    unknown="not known: it was not scraped in the last hour",
)
"""A silent rank: of several the one that was scraped least, which is most often the first that fell silent."""

RANK_SILENT: Final = Rule(
    name="RankSilent",
    unit="ranks",
    severity="warning",
    condition=f"{_WORLD} - on (run) {_PRESENT} and on (run) {ACTIVE} unless on (run) {_SETTLING}",
    operator=">",
    threshold=t.SILENT_RANKS,
    labels=("run",),
    for_seconds=t.SILENT_SECONDS,
    meaning="Ranks of the newest attempt are not scraped while others are.",
    summary="Silent ranks in run {run}: {value}, one is {one}. {last_good}",
    description=(
        "Ranks of run {run} that are silent while others report: {value} of {world}, on {nodes} node(s) as last seen; "
        "scraped least within the hour: {one}. Dead processes, a dead node, a lost network; if training stands, "
        "restart it. {last_good}"
    ),
    link="run",
    sides=(
        LAST_GOOD,
        Side(name="world", query=_WORLD),
        Side(name="nodes", query=f"count by (run) (group by (run, node) ({RANKS_GONE.name}))"),
        _ONE_GONE,
    ),
    change="`SILENT_RANKS`: to the ranks that you do not scrape. `SILENT_SECONDS`: higher when scrapes are lost often.",
)

_LATE: Final = STEP_LATE.name

STEP_STALLED: Final = Rule(
    name="StepStalled",
    unit="seconds past the deadline",
    severity="critical",
    condition=f"(max by (run) ({_LATE}) or {SCRAPED} - 1) and on (run) {ACTIVE}",
    operator=">",
    threshold=t.STALLED_SECONDS,
    labels=("run",),
    for_seconds=t.STALLED_FOR_SECONDS,
    meaning="A step has not ended by the deadline of its process, which knows first steps, evaluations, saves.",
    summary="Training stands in run {run}: a step is {value} s past its deadline. {last_good}",
    description=(
        "The next step of run {run} should have ended {value} s ago; the last known step is {step}. Ranks past their "
        "deadline: {late}, one of them {worst}; whoever waits for a hung rank is late too. A rank that fell silent "
        "within the hour: {silent}. Look for the one that does not take part, a silent one first. {last_good}"
    ),
    link="run",
    sides=(
        LAST_GOOD,
        STEP,
        Side(name="late", query=f"count by (run) ({_LATE})"),
        worst_side(with_gpu(LATEST.name), by=("run",)),
        replace(_ONE_GONE, name="silent", unknown="none"),
    ),
    change="`STALLED_FOR_SECONDS`: higher when one scrape takes longer.",
)

_LEDGER_READS: Final = (
    f"(time() - max by (run) (lastgood_ledger_last_read_timestamp_seconds) < {t.LEDGER_READS_SECONDS})"
)

RUN_VANISHED: Final = Rule(
    name="RunVanished",
    unit="minutes since the newest event",
    severity="critical",
    condition=(
        f"({SINCE_EVENT}) / 60 < {t.FORGOTTEN_MINUTES} and on (run) {ACTIVE} and on (run) {_LEDGER_READS} "
        f"unless on (run) ({ATTEMPT_RANKS} and on (run, attempt) {NEWEST})"
    ),
    operator=">",
    threshold=t.VANISHED_MINUTES,
    labels=("run",),
    meaning="A run that never said that it ended writes no events, and no rank of its newest attempt is scraped.",
    summary="Run {run} vanished {value} minutes ago at step {step}. {last_good}",
    description=(
        "Run {run} has not said that it ended, but its newest event is {value} minutes old and no rank reports. All "
        "processes are dead or cut off; the last known step is {step}. {last_good}"
    ),
    link="run",
    sides=(LAST_GOOD, STEP),
    change="`VANISHED_MINUTES`: higher for slow shared storage. It ends by itself after `FORGOTTEN_MINUTES`.",
)

RESTART_STORM: Final = Rule(
    name="RestartStorm",
    unit="restarts within an hour",
    severity="warning",
    condition='max by (run) (lastgood_restarts_recent{window="1h"})',
    operator=">=",
    threshold=t.RESTARTS_PER_HOUR,
    labels=("run",),
    meaning="The run restarted several times within an hour.",
    summary="Restarts of run {run} within an hour: {value}. {last_good}",
    description=(
        "Restarts of run {run} within the last hour: {value}; it is in attempt {attempt} at step {step}. The same "
        "cause may come back each time: a bad node, a damaged checkpoint, a software error. {last_good}"
    ),
    link="run",
    sides=(LAST_GOOD, STEP, Side(name="attempt", query="max by (run) (lastgood_run_attempt)")),
    change="`RESTARTS_PER_HOUR`: higher at sizes where a failure an hour is normal.",
)

GOODPUT_LOW: Final = Rule(
    name="GoodputLow",
    unit="percent of the last hour",
    severity="warning",
    condition=(
        f'100 * max by (run) (lastgood_goodput_ratio{{window="1h"}}) and on (run) {ALIVE} unless on (run) '
        f"(time() - max by (run) (lastgood_run_start_timestamp_seconds) < {t.GOODPUT_RAMP_SECONDS})"
    ),
    operator="<",
    threshold=t.GOODPUT_PERCENT,
    labels=("run",),
    for_seconds=t.GOODPUT_SECONDS,
    meaning="Too little of the last hour went into steps that were kept.",
    summary="Goodput of run {run} in the last hour: {value} %. {last_good}",
    description=(
        "Of the last hour of run {run}, {value} % went into steps that were kept; the rest was lost, saving, starting "
        "or stopped. Over the whole run: {whole} %. {last_good}"
    ),
    link="run",
    sides=(
        LAST_GOOD,
        Side(name="whole", query='100 * max by (run) (lastgood_goodput_ratio{window="run"})', digits=1),
    ),
    digits=1,
    change="`GOODPUT_PERCENT`: towards what your runs reach.",
)

RUN_RULES: Final = (CHECKS_STALE, RANK_SILENT, STEP_STALLED, RUN_VANISHED, RESTART_STORM, GOODPUT_LOW)
