"""The ledger's metrics say what is known about a run, and have no series for what is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lastgood.catalogue import exported
from lastgood.events import CHECKS
from lastgood.run_metrics import RunMetrics
from lastgood.state import (
    Attempt,
    Checkpoint,
    CheckStatus,
    Cost,
    Device,
    FailedSave,
    Finding,
    Incident,
    LastGood,
    RunState,
    Suspect,
    Unreadable,
    Window,
)  # fmt: skip

T0 = 1_795_921_082.0


def at(seconds: float) -> str:
    minutes, rest = divmod(2 + seconds, 60)
    return f"2026-11-29T02:{58 + int(minutes):02d}:{rest:09.6f}Z"


NO_GOOD = LastGood(-1, -1, "", "missing", "no checkpoint")
ATTEMPT = Attempt(
    number=2, world_size=6, places=(), parent=None, parent_known=True, parent_verified=True, from_step=50,
    started_at=at(0), last_event_at=at(60), last_step=110, last_step_at=at(60),
)  # fmt: skip
EMPTY = RunState(
    run="r", attempts=(), rounds=(), checks=(), findings=(), verdicts=(), incidents=(), checkpoints=(), failed_saves=(),
    injections=(), restarts=(), annotations=(), last_good=NO_GOOD, first_event_at="", last_event_at="", event_count=0,
    events_digest="",
)  # fmt: skip
RUNNING = replace(EMPTY, attempts=(ATTEMPT,), last_event_at=at(60))


@dataclass
class View:
    """A ledger that says what it is told."""

    states: Mapping[str, RunState]
    newest: dict[str, Any] = field(default_factory=dict)
    lag: float | None = None
    last_read_at: float | None = None
    accused: dict[int, dict[Device, int]] = field(default_factory=dict)

    def runs(self) -> Mapping[str, RunState]:
        return self.states

    def lag_seconds(self, run: str) -> float | None:
        return self.lag

    def progress(self, run: str) -> Any:
        return self.newest.get(run)

    def node_accusations(self, days: int, now: float) -> Mapping[Device, int]:
        return self.accused.get(days, {})


@pytest.fixture
def read(registry: CollectorRegistry) -> Any:
    """Return a function from a state (and what else the ledger knows) to a function from a series to its value."""

    def show(state: RunState, **knows: Any) -> Any:
        registry.register(RunMetrics(View({"r": state}, **knows), clock=lambda: T0))  # type: ignore[arg-type]
        return lambda name, **labels: registry.get_sample_value(f"lastgood_{name}", {"run": "r", **labels})

    return show


def checkpoint(step: int, trust: str, attempt: int = 2, saved: float = 0.0, seconds: float | None = 2.0) -> Checkpoint:
    return Checkpoint(
        attempt=attempt, step=step, path=f"a{attempt}-step-{step}", saved_at=at(saved), parent=None, parent_known=True,
        bytes=10, seconds=seconds, blocked_seconds=0.5, fingerprint="0", checks={}, trust=trust,  # type: ignore[arg-type]
    )  # fmt: skip


def finding(check: str, attempt: int, step: int, seconds: float = 0.0) -> Finding:
    return Finding(
        id=f"{check}{step}", check=check, attempt=attempt, step=step, state_step=step, phase="audit",  # type: ignore[arg-type]
        contained=False, ranks=(3,), places=(), tensor=None, bucket=None, observed="1", expected="2", evidence=(),
        at=at(seconds),
    )  # fmt: skip


def incident(state: str = "open", suspects: tuple[Suspect, ...] = (), **changes: Any) -> Incident:
    whole = Incident(
        id="r-3f2", aliases=(), run="r", state=state, status="attributed", scope="gpu", suspects=suspects,  # type: ignore[arg-type]
        nature="persistent", confidence="exact", check="replay", attempt=1, step=100, findings=(), verdicts=(),
        window=Window(1, 50, 1, 100, False, ""), reasons_for=(), reasons_against=(), unknown=(),
        resume=LastGood(1, 50, "a1-step-50", "trusted", ""), covered=(), opened_at=at(0), recovered_at=None,
        recovered_by=None, closed_at=None, closed_by=None, cost=Cost(0, 0.0, 0.0, True),
    )  # fmt: skip
    return replace(whole, **changes)


def status(check: str, **changes: Any) -> CheckStatus:
    whole = CheckStatus(check, True, "", 50, 100, at(0), 250, 0)  # type: ignore[arg-type]
    return replace(whole, **changes)


def test_a_running_run_says_attempt_size_step_and_last_event(read: Any) -> None:
    value = read(RUNNING)
    assert [value(f"run_{name}") for name in ("active", "attempt", "world_size", "step")] == [1, 2, 6, 110]
    assert value("run_attempt_start_step") == 50
    assert value("run_last_event_timestamp_seconds") == T0 + 60


def test_an_ended_run_is_not_active(read: Any) -> None:
    value = read(replace(RUNNING, attempts=(replace(ATTEMPT, ended_at=at(61)),)))
    assert value("run_active") == 0


def test_the_step_follows_progress_when_that_is_newer(read: Any) -> None:
    assert read(RUNNING, newest={"r": {"step": 140}})("run_step") == 140


def test_a_run_without_an_attempt_claims_no_step(read: Any) -> None:
    value = read(EMPTY)
    assert (value("run_active"), value("run_step"), value("run_last_event_timestamp_seconds")) == (0, None, None)


def test_a_check_that_runs_has_interval_last_pass_and_due_step(read: Any) -> None:
    value = read(replace(RUNNING, checks=(status("replica"),)))
    assert value("run_check_last_pass_step", check="replica") == 100
    assert value("check_interval_steps", check="replica") == 50
    assert value("check_due_step", check="replica") == 250


def test_a_check_that_is_off_is_neither_due_nor_passed(read: Any) -> None:
    off = status("replay", running=False, reason="switched off", interval_steps=None, last_pass_step=-1, due_step=None)
    value = read(replace(RUNNING, checks=(off,)))
    assert value("check_interval_steps", check="replay") is None
    assert value("check_due_step", check="replay") is None
    assert value("run_check_last_pass_step", check="replay") == -1


def test_a_check_of_every_step_is_due_by_the_cadence_of_the_progress(read: Any) -> None:
    state = replace(RUNNING, checks=(status("finite", interval_steps=1, last_pass_step=75, due_step=78),))
    value = read(state, newest={"r": {"step": 140, "step_seconds": 0.4, "passed": {"finite": 139}}})
    assert value("run_check_last_pass_step", check="finite") == 139
    assert value("check_due_step", check="finite") == 139 + 3 * 75


def test_the_share_that_checks_take_is_what_the_newest_progress_says(read: Any) -> None:
    assert read(RUNNING, newest={"r": {"check_share": 0.012}})("check_time_ratio") == 0.012


def test_a_check_of_every_step_is_not_due_before_the_first_progress(read: Any) -> None:
    value = read(replace(RUNNING, checks=(status("finite", interval_steps=1, last_pass_step=-1, due_step=53),)))
    assert value("check_interval_steps", check="finite") == 1
    assert value("check_due_step", check="finite") is None


def test_findings_are_counted_by_check_from_zero(read: Any) -> None:
    found = (finding("replay", 1, 100, 5.0), finding("replay", 2, 60, 9.0))
    value = read(replace(RUNNING, findings=found))
    assert value("findings_total", check="replay") == 2
    assert value("finding_last_step", check="replay") == 60
    assert value("finding_last_timestamp_seconds", check="replay") == T0 + 9
    assert (value("findings_total", check="finite"), value("finding_last_step", check="finite")) == (0, -1)
    assert value("finding_last_timestamp_seconds", check="finite") is None


WHAT = {"incident": "r-3f2", "check": "replay", "status": "attributed", "scope": "gpu"}


def test_an_open_incident_says_from_where_to_resume_and_who_is_named(read: Any) -> None:
    value = read(replace(RUNNING, incidents=(incident(suspects=(Suspect(3, "node-b", "GPU-8c1e", 1, "accused"),)),)))
    assert value("incident_resume_step", **WHAT, rank="3", node="node-b", gpu_uuid="GPU-8c1e") == 50
    assert value("incident_window_start_step", incident="r-3f2") == 50
    assert value("incident_window_end_step", incident="r-3f2") == 100
    assert value("incident_start_timestamp_seconds", incident="r-3f2") == T0
    assert value("incidents", status="open") == 1


def test_an_incident_that_names_nobody_still_has_a_series(read: Any) -> None:
    value = read(replace(RUNNING, incidents=(incident(resume=None, window=None),)))
    assert value("incident_resume_step", **WHAT, rank="unknown", node="unknown", gpu_uuid="unknown") == -1
    assert value("incident_window_start_step", incident="r-3f2") is None


OF_ALERTS = {f"lastgood_incident_{name}" for name in (
    "resume_step", "window_start_step", "window_end_step", "start_timestamp_seconds")}  # fmt: skip
"""Series that alerts read: there while the incident is open."""


def of_incidents(registry: CollectorRegistry) -> tuple[int, int]:
    """Return how many series alerts read, and how many facts of recent incidents there are."""
    names = [sample.name for family in registry.collect() for sample in family.samples if "incident" in sample.labels]
    alerts = sum(name in OF_ALERTS for name in names)
    return alerts, len(names) - alerts


@pytest.mark.parametrize(("state", "there"), [("open", 4), ("reopened", 4), ("recovered", 0), ("closed", 0)])
def test_series_that_alerts_read_exist_only_while_the_incident_is_open(
    registry: CollectorRegistry, read: Any, state: str, there: int
) -> None:
    value = read(replace(RUNNING, incidents=(incident(state),)))
    assert of_incidents(registry)[0] == there
    assert value("incident_info", incident="r-3f2", check="replay", status="attributed", scope="gpu",
                 nature="persistent", confidence="exact", state=state) == 1  # fmt: skip


def test_only_the_newest_incidents_have_facts_and_older_ones_while_they_are_open(
    registry: CollectorRegistry, read: Any
) -> None:
    closed = tuple(replace(incident("closed"), id=f"r-{number:03}") for number in range(400))
    read(replace(RUNNING, incidents=(*closed, incident("open"))))
    samples = [sample for family in registry.collect() for sample in family.samples]
    told = [sample.labels["incident"] for sample in samples if sample.name == "lastgood_incident_info"]
    assert told == [*(f"r-{number:03}" for number in range(8)), "r-3f2"]


def test_a_thousand_candidates_are_eight_series(registry: CollectorRegistry, read: Any) -> None:
    many = tuple(Suspect(rank, f"node-{rank}", "cpu-0", 0) for rank in range(1000))
    read(replace(RUNNING, incidents=(incident(suspects=many),)))
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert of_incidents(registry)[0] == 8 + 3
    assert sum(sample.name == "lastgood_incident_suspect_info" for sample in samples) == 8
    assert registry.get_sample_value("lastgood_incident_suspects", {"run": "r", "incident": "r-3f2"}) == 1000


def test_an_accused_node_leaves_room_for_the_alert_about_it(registry: CollectorRegistry, read: Any) -> None:
    many = tuple(Suspect(rank, "node-b", f"GPU-{rank}", rank) for rank in range(8))
    read(replace(RUNNING, incidents=(incident(suspects=many, scope="node"),)))
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert sum(sample.name == "lastgood_incident_resume_step" for sample in samples) == 7


def test_checkpoints_are_counted_by_trust_and_the_newest_are_named(read: Any) -> None:
    saves = (
        checkpoint(0, "trusted", 1), checkpoint(50, "trusted", 1, 10.0), checkpoint(75, "suspect", 1, 20.0),
        checkpoint(75, "unverified", 2, 50.0), checkpoint(100, "unverified", 2, 62.0),
    )  # fmt: skip
    good = LastGood(1, 50, "a1-step-50", "trusted", "")
    value = read(replace(RUNNING, checkpoints=saves, last_good=good))
    assert (value("checkpoint_last_step"), value("checkpoint_last_timestamp_seconds")) == (100, T0 + 62)
    assert (value("checkpoint_last_trusted_step"), value("checkpoint_last_trusted_timestamp_seconds")) == (50, T0 + 10)
    assert value("last_good_step") == 50
    assert value("checkpoint_interval_seconds") == 12
    assert [value("checkpoints", trust=trust) for trust in ("trusted", "suspect", "tainted")] == [2, 1, 0]


def test_a_run_without_a_checkpoint_has_steps_of_minus_one_and_no_times(read: Any) -> None:
    value = read(RUNNING)
    assert [value(name) for name in ("checkpoint_last_step", "checkpoint_last_trusted_step", "last_good_step")] == [
        -1
    ] * 3
    assert value("checkpoint_last_timestamp_seconds") is None
    assert value("checkpoint_last_trusted_timestamp_seconds") is None
    assert value("checkpoint_interval_seconds") is None


def test_saves_are_counted_and_a_refused_one_is_no_failure(read: Any) -> None:
    refused = (FailedSave(2, 75, "p", at(0), "integrity", {}), FailedSave(2, 75, "p", at(0), "disk full", {}))
    saves = (checkpoint(0, "trusted"), checkpoint(25, "trusted", seconds=None))
    value = read(replace(RUNNING, checkpoints=saves, failed_saves=refused))
    assert (value("checkpoint_saves_total"), value("checkpoint_failures_total")) == (2, 1)
    assert (value("checkpoint_save_seconds_count"), value("checkpoint_save_seconds_sum")) == (1, 2.0)
    assert value("checkpoint_blocked_seconds_total") == 1.0


def test_failed_saves_are_counted_from_the_last_one_that_succeeded(read: Any) -> None:
    failed = [FailedSave(2, step, f"p{step}", at(step), "disk full", {}) for step in (10, 30, 40)]
    refused = FailedSave(2, 45, "p45", at(45), "integrity", {})
    state = replace(RUNNING, checkpoints=(checkpoint(25, "trusted", saved=25.0),), failed_saves=(*failed, refused))
    assert read(state)("checkpoint_failed_saves") == 2


def test_a_restart_counts_within_its_window_by_how_the_attempt_before_ended(read: Any) -> None:
    first = replace(ATTEMPT, number=1, from_step=0, started_at=at(-100), ended_at=at(-50), end_reason="integrity",
                    last_step=80, last_step_at=at(-50), last_event_at=at(-50))  # fmt: skip
    value = read(replace(RUNNING, attempts=(first, ATTEMPT)))
    assert value("restarts_recent", window="1h") == 1
    assert [value("restarts_total", reason=reason) for reason in ("integrity", "lost")] == [1, 0]
    assert value("lost_steps_total") == 30
    assert value("run_start_timestamp_seconds") == T0 - 100
    assert value("run_attempt_start_timestamp_seconds") == T0
    assert value("run_seconds", state="stopped") == 50
    assert value("goodput_ratio", window="run") == pytest.approx(60 / 160)


def test_a_restart_of_long_ago_is_not_recent(registry: CollectorRegistry) -> None:
    view = View({"r": replace(RUNNING, attempts=(replace(ATTEMPT, number=1), ATTEMPT))})
    registry.register(RunMetrics(view, clock=lambda: T0 + 2 * 3600))  # type: ignore[arg-type]
    recent = [
        registry.get_sample_value("lastgood_restarts_recent", {"run": "r", "window": window})
        for window in ("1h", "24h")
    ]
    assert recent == [0, 1]


def test_a_device_carries_its_history_without_a_run(registry: CollectorRegistry, read: Any) -> None:
    device = Device("node-b", "GPU-8c1e")
    read(RUNNING, accused={7: {device: 1}, 90: {device: 3}})
    for window, count in (("7d", 1), ("90d", 3)):
        labels = {"node": "node-b", "gpu_uuid": "GPU-8c1e", "window": window}
        assert registry.get_sample_value("lastgood_node_accusations", labels) == count


def test_the_state_of_the_reading_itself_is_there(read: Any) -> None:
    value = read(replace(RUNNING, unreadable=(Unreadable("f", 3, "not JSON"),)), lag=2.5, last_read_at=T0)
    assert value("journal_unreadable_lines_total") == 1
    assert value("journal_lag_seconds") == 2.5
    assert value("ledger_last_read_timestamp_seconds") == T0


def test_a_lag_that_is_not_known_has_no_series(read: Any) -> None:
    value = read(RUNNING, lag=math.nan)
    assert value("journal_lag_seconds") is None
    assert value("ledger_last_read_timestamp_seconds") is None


FULL = replace(
    RUNNING,
    checks=tuple(status(check) for check in CHECKS),
    findings=tuple(finding(check, 2, 60) for check in CHECKS),
    incidents=(
        incident(
            suspects=tuple(Suspect(rank, "node-b", "", 0) for rank in range(8)),
            findings=(finding("replay", 1, 100),),
            recovered_by=2,
            recovered_at=at(9),
            closed_at=at(10),
        ),
    ),  # fmt: skip
    checkpoints=(checkpoint(0, "trusted"), checkpoint(25, "trusted", saved=5.0)),
)
KNOWS = {
    "newest": {"r": {"step": 140, "step_seconds": 0.4, "check_share": 0.012}},
    "lag": 1.0,
    "last_read_at": T0,
    "accused": {7: {Device("node-b", "cpu-0"): 1}, 90: {Device("node-b", "cpu-0"): 1}},
}


def test_every_metric_has_exactly_the_labels_of_the_catalogue(registry: CollectorRegistry, read: Any) -> None:
    read(FULL, **KNOWS)
    labels = {name: metric.labels for metric in exported("run") for name in metric.series_names}
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert {sample.name for sample in samples} == set(labels)
    assert all(tuple(sample.labels) == labels[sample.name] for sample in samples)
    assert all(value for sample in samples for value in sample.labels.values())
    assert "NaN" not in generate_latest(registry).decode()


def test_a_run_has_about_80_series_and_few_more_per_recent_incident(registry: CollectorRegistry, read: Any) -> None:
    read(FULL, **KNOWS)
    samples = [sample for family in registry.collect() for sample in family.samples if "run" in sample.labels]
    alerts, facts = of_incidents(registry)
    assert (alerts, facts) == (11, 28)
    assert len(samples) - alerts - facts <= 80
