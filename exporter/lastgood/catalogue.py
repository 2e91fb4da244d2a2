"""List every metric that lastgood exports: the single source for exporters, rules, dashboards, console and docs.

The catalogue serves two endpoints. Each rank publishes the *rank* metrics about itself; the ledger, which outlives
the ranks, publishes the *run* metrics about runs, incidents, nodes and checkpoints. Three rules hold for all of them:

- never a step, hash, path or time as a label, so the number of series is known in advance;
- no label is ever empty: what is not known is ``unknown``;
- base units in names; counters start at 0 with every allowed label value present.

A metric with ``exported=False`` is part of the contract but no exporter publishes it yet. Not covered: the values
themselves (``rank_metrics``, ``run_metrics``) and how they are served (``endpoint``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, get_args

from prometheus_client import Metric as Family

from lastgood.events import CHECKS, Confidence, Nature, Scope, Status
from lastgood.run_time import RESTART_REASONS, TIME_STATES
from lastgood.state import IncidentState, Trust

PREFIX: Final = "lastgood_"
UNKNOWN: Final = "unknown"
"""The value of a label that is not known."""

NONFINITE_STAGES: Final = ("loss", "local", "reduced")
NORM_STAGES: Final = ("local", "reduced")
DEVICE_SENSORS: Final = ("core", "memory")
"""The temperatures of a device."""
PARTS: Final = ("check", "device", "journal", "delivery")
"""Parts of the exporter that can fail without stopping the training."""

Kind = Literal["gauge", "counter", "summary"]
Level = Literal["rank", "run"]
Unit = Literal["", "info", "steps", "seconds", "watts", "joules", "celsius", "ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    ``values`` holds the allowed values of the labels that have a closed set. ``note`` is what a reader must know
    beside ``help``.
    """

    name: str
    kind: Kind
    help: str
    unit: Unit
    labels: tuple[str, ...]
    level: Level
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    note: str = ""
    since: str = "0.1.0"
    exported: bool = True

    @property
    def series_names(self) -> tuple[str, ...]:
        """Return the names of its samples as a query sees them."""
        return (f"{self.name}_count", f"{self.name}_sum") if self.kind == "summary" else (self.name,)

    def family(self) -> Family:
        """Return an empty prometheus_client family."""
        return Family(self.name.removesuffix("_total"), self.help, self.kind)

    def add(self, family: Family, labels: Sequence[str], *values: float) -> None:
        """Add the samples of one set of label values to ``family``: one value, or a summary's count and sum."""
        named = dict(zip(self.labels, labels, strict=True))
        for name, value in zip(self.series_names, values, strict=True):
            family.add_sample(name, named, value)


def _metric(
    level: Level, base: tuple[str, ...], name: str, kind: Kind, unit: Unit, help: str,
    note: str = "", exported: bool = True, **labels: tuple[str, ...] | None,
) -> Metric:  # fmt: skip
    """Build a metric; ``labels`` come after those of its level, and ``None`` is an open set of values."""
    closed = {label: values for label, values in labels.items() if values is not None}
    return Metric(
        name=PREFIX + name, kind=kind, help=help, unit=unit, labels=(*base, *labels), level=level,
        values=closed, note=note, exported=exported,
    )  # fmt: skip


_rank = partial(_metric, "rank", ("run", "rank", "node"))
_run = partial(_metric, "run", ("run",))

_NEVER = "-1 = never."
_NONE = "-1 = none."
_OPEN = "Exists only while the incident is open."
_RECENT = "The newest 8 incidents of the run, and up to 8 older ones that are open."
_SENSOR = "Absent without a GPU, without this sensor, and when the driver no longer answers."

RANK_METRICS: Final = (
    _rank("rank_info", "gauge", "info", "Place of this rank, always 1",
          "Join on (job, instance, run, rank): two attempts can overlap.",
          local_rank=None, gpu_uuid=None, pci_bus_id=None, attempt=None, version=None),
    _rank("step", "gauge", "steps", "Last optimizer step that ended, counted from the start of the run"),
    _rank("step_timestamp_seconds", "gauge", "seconds", "Unix time when the last step ended",
          "Until the first step of an attempt: when the rank began to watch."),
    _rank("step_deadline_timestamp_seconds", "gauge", "seconds", "Unix time by which the next step must have ended",
          "+Inf = none known. The process knows a first step, an evaluation and a save."),
    _rank("step_duration_seconds", "summary", "seconds", "Time from the end of one step to the end of the next"),
    _rank("grad_norm", "gauge", "", "Gradient norm of the last step, before (local) and after (reduced) the averaging",
          "NaN = no value or not finite: filter with x == x. Sampled by the scrape; the journal has the spikes.",
          stage=NORM_STAGES),
    _rank("nonfinite_steps_total", "counter", "steps", "Steps in which this rank saw a NaN or an infinity",
          stage=NONFINITE_STAGES),
    _rank("check_runs_total", "counter", "", "Times a check ran on this rank",
          "A round that was not run is not counted.", check=CHECKS),
    _rank("check_failures_total", "counter", "", "Times a check failed and this rank was the minority or a candidate",
          check=CHECKS),
    _rank("check_last_pass_step", "gauge", "steps", "Step of the newest state that passed a check on this rank", _NEVER,
          check=CHECKS),
    _rank("gpu_power_watts", "gauge", "watts", "Power draw of the GPU", _SENSOR),
    _rank("gpu_energy_joules_total", "counter", "joules", "Energy the GPU used since its driver was loaded", _SENSOR),
    _rank("gpu_temperature_celsius", "gauge", "celsius", "Temperature of the GPU", _SENSOR, sensor=DEVICE_SENSORS),
    _rank("gpu_temperature_margin_celsius", "gauge", "celsius", "Degrees left before the GPU slows itself down",
          f"{_SENSOR} A device that says 0 or less has no such sensor."),
    _rank("gpu_ecc_uncorrected_total", "counter", "", "Uncorrectable memory errors of the GPU since this rank began "
          "to watch it", f"{_SENSOR} What its driver had counted before is not among them."),
    _rank("exporter_errors_total", "counter", "", "Failures of lastgood itself; training went on", part=PARTS),
)  # fmt: skip

RUN_METRICS: Final = (
    _run("run_active", "gauge", "", "1 while the newest attempt has started and has not said that it ended"),
    _run("run_attempt", "gauge", "", "Number of the newest attempt"),
    _run("run_world_size", "gauge", "", "Ranks in the newest attempt"),
    _run("run_step", "gauge", "steps", "Last step known from the journal"),
    _run("run_start_timestamp_seconds", "gauge", "seconds", "Unix time when the first attempt started"),
    _run("run_attempt_start_timestamp_seconds", "gauge", "seconds", "Unix time when the newest attempt started"),
    _run("run_attempt_start_step", "gauge", "steps", "Step that the newest attempt went on from"),
    _run("run_last_event_timestamp_seconds", "gauge", "seconds", "Unix time of the newest event",
         "Lines of progress count: a run that trains writes one every 30 s."),
    _run("check_due_step", "gauge", "steps", "Step by which a check should have passed again",
         "Three cadences after the last pass, the start of the attempt or a change of the cadence. A check of every "
         "step is known to the ledger by the progress lines: its cadence is theirs. Absent when the check is off or "
         "cannot run.",
         check=CHECKS),
    _run("check_interval_steps", "gauge", "steps", "Steps between two runs of a check",
         "The cadence in force: with a budget it changes. Absent when the check is off or cannot run.", check=CHECKS),
    _run("check_time_ratio", "gauge", "ratio", "Share of step time that the checks take at the cadences in force",
         "As the newest line of progress says it, measured in the last steps. Without the checks of saves."),
    _run("run_check_last_pass_step", "gauge", "steps", "Newest state of the newest attempt that passed a check",
         _NEVER, check=CHECKS),
    _run("findings_total", "counter", "", "Findings of the run", check=CHECKS),
    _run("finding_last_step", "gauge", "steps", "Step of the newest finding", _NONE, check=CHECKS),
    _run("finding_last_timestamp_seconds", "gauge", "seconds", "Unix time of the newest finding",
         "Absent without a finding.", check=CHECKS),
    _run("incident_resume_step", "gauge", "steps", "Step to resume from, one series per suspect of an open incident",
         f"{_NONE} {_OPEN} At most 8 suspects (7 of an accused node, which has an alert of its own); without one, "
         "rank, node and gpu_uuid are unknown.",
         incident=None, check=CHECKS, status=get_args(Status), scope=get_args(Scope),
         rank=None, node=None, gpu_uuid=None),
    _run("incident_window_start_step", "gauge", "steps", "Last step before the corruption can have begun", _OPEN,
         incident=None),
    _run("incident_window_end_step", "gauge", "steps", "Last step in which the corruption can have begun", _OPEN,
         incident=None),
    _run("incident_start_timestamp_seconds", "gauge", "seconds", "Unix time of the first finding of an incident", _OPEN,
         incident=None),
    _run("incident_info", "gauge", "info", "What a recent incident is, always 1", _RECENT,
         incident=None, check=CHECKS, status=get_args(Status), scope=get_args(Scope), nature=get_args(Nature),
         confidence=get_args(Confidence), state=get_args(IncidentState)),
    _run("incident_suspect_info", "gauge", "info", "A device that a recent incident names, always 1",
         f"{_RECENT} At most 8 per incident.",
         incident=None, role=("accused", "candidate"), rank=None, node=None, gpu_uuid=None, slot=None),
    _run("incident_suspects", "gauge", "", "Devices that a recent incident names", _RECENT, incident=None),
    _run("incident_findings", "gauge", "", "Findings of a recent incident by check",
         f"{_RECENT} Absent for a check that found nothing.", incident=None, check=CHECKS),
    _run("incident_finding_attempt", "gauge", "", "Attempt of the first finding of a recent incident", _RECENT,
         incident=None),
    _run("incident_finding_step", "gauge", "steps", "Step of the first finding of a recent incident", _RECENT,
         incident=None),
    _run("incident_other_nodes", "gauge", "", "1 while nodes that a recent incident does not name were there too",
         _RECENT, incident=None),
    _run("incident_onset_attempt", "gauge", "", "Attempt in which the window of a recent incident starts or ends",
         f"{_RECENT} Absent without a window.", incident=None, edge=("start", "end")),
    _run("incident_onset_step", "gauge", "steps", "Window of a recent incident: the corruption began after start, by "
         "end", f"{_RECENT} Absent without a window.", incident=None, edge=("start", "end")),
    _run("incident_contained", "gauge", "", "1 when the wrong value of a recent incident was kept out of the weights",
         f"{_RECENT} Absent without a window.", incident=None),
    _run("incident_timestamp_seconds", "gauge", "seconds", "Unix time when a recent incident was opened, recovered or "
         "closed", f"{_RECENT} Absent for what has not happened.",
         incident=None, moment=("opened", "recovered", "closed")),
    _run("incident_recovery_attempt", "gauge", "", "Attempt that recovered from a recent incident",
         f"{_RECENT} Absent before that.", incident=None),
    _run("incident_last_good_attempt", "gauge", "", "Attempt of the checkpoint that a recent incident says to resume "
         "from", f"{_NONE} {_RECENT} Absent where nothing has to be resumed.", incident=None, trust=get_args(Trust)),
    _run("incident_last_good_step", "gauge", "steps", "Step of the checkpoint that a recent incident says to resume "
         "from", f"{_NONE} {_RECENT} Absent where nothing has to be resumed.", incident=None, trust=get_args(Trust)),
    _run("incident_lost_steps", "gauge", "steps", "Steps that a recent incident has cost", _RECENT, incident=None),
    _run("incident_lost_seconds", "gauge", "seconds", "Time that a recent incident has cost", _RECENT, incident=None),
    _run("incident_lost_device_seconds", "gauge", "seconds", "Time of all devices that a recent incident has cost",
         _RECENT, incident=None),
    _run("incidents", "gauge", "", "Incidents of the run by their state", status=get_args(IncidentState)),
    _run("checkpoint_last_step", "gauge", "steps", "Step of the newest checkpoint", _NONE),
    _run("checkpoint_last_timestamp_seconds", "gauge", "seconds", "Unix time of the newest checkpoint",
         "Absent without a checkpoint."),
    _run("checkpoint_last_trusted_step", "gauge", "steps", "Step of the newest trusted checkpoint", _NONE),
    _run("checkpoint_last_trusted_timestamp_seconds", "gauge", "seconds", "Unix time of the newest trusted checkpoint",
         "Absent without a trusted checkpoint."),
    _run("last_good_step", "gauge", "steps", "Step of the checkpoint a person should resume from", _NONE),
    _run("last_good_attempt", "gauge", "", "Attempt of the checkpoint a person should resume from", _NONE,
         trust=get_args(Trust)),
    _run("checkpoint_interval_seconds", "gauge", "seconds", "Median time between the last saves of the newest attempt",
         "Absent before the second save."),
    _run("checkpoints", "gauge", "", "Checkpoints of the run by how far they can be trusted", trust=get_args(Trust)),
    _run("checkpoint_saves_total", "counter", "", "Checkpoints saved"),
    _run("checkpoint_failures_total", "counter", "", "Saves that failed",
         "A save that a check refused is a finding, not a failure."),
    _run("checkpoint_failed_saves", "gauge", "", "Saves that failed since the last one that succeeded",
         "A save that a check refused is a finding, not a failure."),
    _run("checkpoint_save_seconds", "summary", "seconds", "Time to save a checkpoint"),
    _run("checkpoint_blocked_seconds_total", "counter", "seconds", "Time that training waited for saves"),
    _run("run_seconds", "gauge", "seconds", "Time of the run by what it was spent on",
         "A gauge: steps turn from productive to lost when the run resumes before them.", state=TIME_STATES),
    _run("goodput_ratio", "gauge", "ratio", "Share of the time that went into steps that were kept",
         "Over the last hour or the whole run. Absent without an attempt.", window=("1h", "run")),
    _run("restarts_total", "counter", "", "Restarts of the run by how the attempt before ended",
         "lost = it died without a word.", reason=RESTART_REASONS),
    _run("restarts_recent", "gauge", "", "Restarts of the run within the window", window=("1h", "24h")),
    _run("lost_steps_total", "counter", "steps", "Steps that had to be trained again"),
    _metric("run", (), "node_accusations", "gauge", "", "Incidents that named a device, over all runs",
            "Has no run label.", node=None, gpu_uuid=None, window=("7d", "90d")),
    _run("journal_unreadable_lines_total", "counter", "", "Places in the run directory that could not be read"),
    _run("journal_lag_seconds", "gauge", "seconds", "Age of the newest event when the ledger read it"),
    _run("ledger_last_read_timestamp_seconds", "gauge", "seconds", "Unix time when the ledger last read the journals"),
)  # fmt: skip

METRICS: Final = RANK_METRICS + RUN_METRICS
BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}


def exported(level: Level) -> tuple[Metric, ...]:
    """Return the metrics of one level that an exporter publishes, in the order of the catalogue."""
    return tuple(metric for metric in METRICS if metric.level == level and metric.exported)


def label_value(value: object) -> str:
    """Return ``value`` as a label value: never empty."""
    return UNKNOWN if value is None else str(value) or UNKNOWN
