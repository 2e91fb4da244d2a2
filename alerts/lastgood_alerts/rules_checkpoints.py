"""Rules about the checkpoints of runs that are alive."""

from __future__ import annotations

from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.queries import ALIVE
from lastgood_alerts.rule import Rule, Side
from lastgood_alerts.sides import LAST_GOOD, STEP

_TRUSTED_AT: Final = (
    "(max by (run) (lastgood_checkpoint_last_trusted_timestamp_seconds) "
    "or max by (run) (lastgood_run_start_timestamp_seconds))"
)
_STEPS_AT_RISK: Final = Side(
    name="steps",
    query=(
        "max by (run) (lastgood_run_step) - on (run) clamp_min(max by (run) (lastgood_checkpoint_last_trusted_step), 0)"
    ),
)

NO_TRUSTED_CHECKPOINT: Final = Rule(
    name="NoTrustedCheckpoint",
    unit="hours without a trusted checkpoint",
    severity="warning",
    condition=f"(time() - {_TRUSTED_AT}) / 3600 and on (run) {ALIVE}",
    operator=">",
    threshold=t.HOURS_AT_RISK,
    labels=("run",),
    meaning="Hours of work since the last trusted checkpoint, or since the start of the run, are at risk.",
    summary="Work at risk in run {run}: {value} hours without a trusted checkpoint. {last_good}",
    description=(
        "Run {run} has had no trusted checkpoint for {value} hours. Steps that would have to be trained again: "
        "{steps}. Saves may be too rare or refused, or a check that trust needs is off. {last_good}"
    ),
    link="run",
    sides=(LAST_GOOD, _STEPS_AT_RISK),
    digits=1,
    change="`HOURS_AT_RISK`: to the work that you can afford to train again.",
)

CHECKPOINT_OVERDUE: Final = Rule(
    name="CheckpointOverdue",
    unit="usual save intervals",
    severity="warning",
    condition=(
        "(time() - max by (run) (lastgood_checkpoint_last_timestamp_seconds)) / on (run) "
        f"clamp_min(max by (run) (lastgood_checkpoint_interval_seconds), {t.SHORTEST_SAVE_INTERVAL_SECONDS}) "
        f"and on (run) {ALIVE}"
    ),
    operator=">",
    threshold=t.OVERDUE_INTERVALS,
    labels=("run",),
    meaning="The run has not saved for several times its usual interval.",
    summary="Save overdue in run {run}: {value} usual intervals without one. {last_good}",
    description=(
        "The newest checkpoint of run {run} is {value} usual save intervals old; the run is at step {step}. "
        "Saving may hang, or the loop no longer reaches it. {last_good}"
    ),
    link="run",
    sides=(LAST_GOOD, STEP),
    digits=1,
    change="`OVERDUE_INTERVALS`: higher when saves are irregular by design.",
)

CHECKPOINT_SAVE_FAILING: Final = Rule(
    name="CheckpointSaveFailing",
    unit="saves that failed in a row",
    severity="warning",
    condition=f"max by (run) (lastgood_checkpoint_failed_saves) and on (run) {ALIVE}",
    operator=">=",
    threshold=t.FAILED_SAVES,
    labels=("run",),
    meaning="Saves failed in a row. A save that a check refused is a finding and does not count.",
    summary="Failed saves in a row in run {run}: {value}. {last_good}",
    description=(
        "Saves of run {run} that have failed since the last one that succeeded: {value}. The run is at step {step}. "
        "Look at space, quota and permissions of the checkpoint storage. {last_good}"
    ),
    link="run",
    sides=(LAST_GOOD, STEP),
    change="`FAILED_SAVES`: 1 when one lost save already costs too much.",
)

CHECKPOINT_RULES: Final = (NO_TRUSTED_CHECKPOINT, CHECKPOINT_OVERDUE, CHECKPOINT_SAVE_FAILING)
