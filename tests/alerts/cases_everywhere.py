"""What may befall any rule, in one table: each change of the world leaves every rule as it was.

For every rule, its first case that fires and its case of health are tried again under every change. What a change
does do is said in ``EXCEPTIONS``. Then every metric of a rule goes missing, and becomes NaN, one by one: a rule
that has lost one of its own metrics is silent, except where ``SPEAKS_WITHOUT`` says what it does instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tests.alerts import cases_checkpoints, cases_devices, cases_findings, cases_itself, cases_runs, cases_several
from tests.alerts.promtool_cases import Alert, Case
from tests.alerts.world import (
    NOT_A_NUMBER,
    RUN,
    World,
    dcgm,
    healthy,
    is_of_a_rank,
    metrics_in,
    own_node_on_targets,
    rank_series,
)

from lastgood_alerts.queries import written_out
from lastgood_alerts.rules import BY_NAME, RECORDED

OWN: Final = [
    *cases_findings.CASES,
    *cases_checkpoints.CASES,
    *cases_runs.CASES,
    *cases_devices.CASES,
    *cases_several.CASES,
    *cases_itself.CASES,
]


def first_firing(rule: str) -> Case:
    """Return the first case in which a rule fires."""
    return next(case for case in OWN if case.rule == rule and case.fires)


def two_ledgers(world: World) -> World:
    """Let a second ledger read the same run, a little behind."""
    twins = [one.with_labels(instance="console-2:8490") for one in world if one.labels.get("job") == "lastgood-ledger"]
    return World((*world.series, *twins))


def scraped_twice(world: World) -> World:
    """Let a second job scrape the same ranks."""
    twins = [one.with_labels(job="pods", instance=f"pod-{one.labels['rank']}") for one in world if is_of_a_rank(one)]
    return World((*world.series, *twins))


def more_labels_on_targets(world: World) -> World:
    """Let the scrape configuration add what those of Kubernetes add."""
    return World(tuple(one.with_labels(namespace="training", pod="p", container="c", cluster="eu") for one in world))


def another_run(world: World) -> World:
    """Let a healthy run train beside it."""
    return world.plus(healthy("another-run", ("node-y", "node-z")))


def older_attempt_overlaps(world: World, norm: float = 7000) -> World:
    """Let this be attempt 2, while ranks of attempt 1 are still there, on other nodes: far ahead, hung, hot, broken."""
    restarted = world.ledger("run_attempt", 2)
    newer = [one.with_labels(attempt="2") if one.name == "lastgood_rank_info" else one for one in restarted]
    older = World()
    for rank in range(4):
        ghost = rank_series(RUN, rank, f"node-{'ba'[rank // 2]}", rank % 2, 1, port=9670)
        older = older.plus(
            ghost.all_of("lastgood_step", 90_000)
            .all_of("lastgood_step_deadline_timestamp_seconds", 0)
            .all_of("lastgood_grad_norm", norm)
            .all_of("lastgood_gpu_power_watts", 60)
            .all_of("lastgood_gpu_temperature_margin_celsius", 1)
            .all_of("lastgood_gpu_ecc_uncorrected_total", 50)
        )
    return World((*newer, *older.series))


def with_dcgm(world: World) -> World:
    """Let dcgm-exporter report the same healthy GPUs, and one that no rank has."""
    for metric, value in (("POWER_USAGE", 605), ("GPU_TEMP", 60), ("ECC_DBE_VOL_TOTAL", 0)):
        world = dcgm(world, f"DCGM_FI_DEV_{metric}", dict.fromkeys(range(5), value))
    return world


def with_absurd_dcgm(world: World) -> World:
    """Let dcgm-exporter report its numbers for no reading, under the other spelling of its host label."""
    for metric, value in (("POWER_USAGE", cases_devices.SENTINEL), ("GPU_TEMP", 345), ("ECC_DBE_VOL_TOTAL", 2**63)):
        world = dcgm(world, f"DCGM_FI_DEV_{metric}", dict.fromkeys(range(5), float(value)), "hostname")
    return world


def silent_neighbour(world: World) -> World:
    """Let every gauge of one more scraped process be NaN."""
    ghost = rank_series(RUN, 0, "node-a", 7, 1, port=9870)
    kept = World(tuple(one for one in ghost if one.name != "lastgood_rank_info"))
    return World((*world.series, *(replace(one, values=NOT_A_NUMBER) for one in kept)))


CHANGES: Final[Mapping[str, Callable[[World], World]]] = {
    "two ledgers read the run": two_ledgers,
    "ranks are scraped twice": scraped_twice,
    "targets have a node label of their own": own_node_on_targets,
    "targets have more labels": more_labels_on_targets,
    "another run trains": another_run,
    "an older attempt overlaps on other nodes": older_attempt_overlaps,
    "dcgm-exporter is there": with_dcgm,
    "dcgm-exporter reports no readings": with_absurd_dcgm,
    "a process reports only NaN": silent_neighbour,
}


def _saying(rule: str, **sides: str) -> tuple[Alert, ...]:
    """Return the first alerts of a rule, with other words in the sides."""
    return tuple(replace(alert, sides={**alert.sides, **sides}) for alert in first_firing(rule).fires)


OVERLAP: Final = "an older attempt overlaps on other nodes"
EXCEPTIONS: Final[Mapping[tuple[str, str], tuple[Alert, ...]]] = {
    ("RestartStorm", OVERLAP): _saying("RestartStorm", attempt="2"),
}

ALIVE_EITHER_WAY: Final = ("lastgood_run_last_event_timestamp_seconds", "lastgood_rank_info")
NOT_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "NoTrustedCheckpoint": (*ALIVE_EITHER_WAY, "lastgood_run_start_timestamp_seconds"),
    "CheckpointOverdue": ALIVE_EITHER_WAY,
    "RunVanished": ("lastgood_run_attempt",),
    "CheckpointSaveFailing": ALIVE_EITHER_WAY,
    "ChecksStale": (*ALIVE_EITHER_WAY, "lastgood_step", "lastgood_run_step", "lastgood_run_attempt"),
    "RankSilent": ("lastgood_run_attempt_start_timestamp_seconds",),
    "GoodputLow": (*ALIVE_EITHER_WAY, "lastgood_run_start_timestamp_seconds"),
    "LedgerStale": ("lastgood_run_active", "lastgood_rank_info"),
}
"""Metrics without which a rule goes on as before: it has another way to know."""

OF_RANKS: Final = ("GradNormOutlier", "PowerDeviates", "StepStalled", "ThermalMarginLow", "UncorrectedEcc")
"""Rules about single ranks, which leave out those of older attempts."""

SPEAKS_WITHOUT: Final[Mapping[tuple[str, str], tuple[Alert, ...]]] = {
    **{
        (rule, f"{how} {metric}"): first_firing(rule).fires
        for rule, metrics in NOT_NEEDED.items()
        for metric in metrics
        for how in ("without", "with NaN as")
    },
    # the labels of rank_info say it all, and without the attempt no rank is known to be of an older one
    **{(rule, "with NaN as lastgood_rank_info"): first_firing(rule).fires for rule in OF_RANKS},
    **{(rule, "without lastgood_run_attempt"): first_firing(rule).fires for rule in OF_RANKS},
    **{(rule, "without lastgood_rank_info"): _saying(rule, worst="unknown") for rule in OF_RANKS},
    ("LedgerStale", "without lastgood_ledger_last_read_timestamp_seconds"): tuple(
        replace(alert, value=86_400) for alert in _saying("LedgerStale", read=cases_itself.UNSEEN)
    ),
}
"""What a rule still says without one of its own metrics."""


def changed_cases() -> list[Case]:
    """Return every rule under every change, firing and silent."""
    cases = []
    for rule in BY_NAME:
        firing = first_firing(rule)
        calm = Case(rule, "in health", healthy(), first_firing(rule).fires if rule == "Watchdog" else ())
        for name, change in CHANGES.items():
            fires = EXCEPTIONS.get((rule, name), firing.fires)
            cases.append(replace(firing, name=f"fires when {name}", world=change(firing.world), fires=fires))
            cases.append(replace(calm, name=f"is as in health when {name}", world=change(calm.world)))
    return cases


def missing_cases() -> list[Case]:
    """Return every rule without each of its metrics, and with each as NaN."""
    cases = []
    for rule in BY_NAME:
        firing = first_firing(rule)
        needed = metrics_in(written_out(BY_NAME[rule].condition, RECORDED))
        for metric in sorted({one.name for one in firing.world}.intersection(needed)):
            for how, world in (
                ("without", firing.world.without(metric)),
                ("with NaN as", firing.world.all_of(metric, NOT_A_NUMBER)),
            ):
                fires = SPEAKS_WITHOUT.get((rule, f"{how} {metric}"), ())
                cases.append(replace(firing, name=f"{how} {metric}", world=world, fires=fires))
    return cases


def wordless_cases() -> list[Case]:
    """Return every rule without each metric that only its texts use: they say that they do not know."""
    cases = []
    for rule in BY_NAME.values():
        firing = first_firing(rule.name)
        needed = metrics_in(written_out(rule.condition, RECORDED))
        said = {metric for side in rule.sides for metric in metrics_in(written_out(side.query, RECORDED))}
        for metric in sorted({one.name for one in firing.world}.intersection(said) - {*needed}):
            gone = [side for side in rule.sides if metric in metrics_in(written_out(side.query, RECORDED))]
            fires = _saying(rule.name, **{side.name: side.unknown for side in gone})
            cases.append(
                replace(firing, name=f"texts without {metric}", world=firing.world.without(metric), fires=fires)
            )
    return cases


def overlapping_cases() -> list[Case]:
    """Return what else must not be taken from the ranks of an older attempt, nor from another run's."""
    own = {(case.rule, case.name): case for case in OWN}
    spread = own["GradNormOutlier", "fires beyond the spread of ranks that differ"]
    dcgm_only = [
        (own["PowerDeviates", "takes the power from dcgm-exporter"], "lastgood_gpu_power_watts"),
        (own["UncorrectedEcc", "takes the count from dcgm-exporter"], "lastgood_gpu_ecc_uncorrected_total"),
    ]
    small = own["GradNormOutlier", "fires for a norm that is too small"]
    stalled = first_firing("StepStalled")
    unknown = stalled.world.without("lastgood_run_attempt").plus(healthy("another-run", ("node-y",)))
    return [
        replace(spread, name="measures the spread of the newest attempt", world=older_attempt_overlaps(spread.world)),
        replace(small, name="is not misled by older, smaller norms", world=older_attempt_overlaps(small.world, 0.0001)),
        *(
            replace(
                case,
                name="asks dcgm-exporter about the newest attempt alone",
                world=older_attempt_overlaps(case.world).without(ours),
            )
            for case, ours in dcgm_only
        ),
        replace(stalled, name="fires where only another run's attempt is known", world=unknown),
    ]


CASES: Final = [*changed_cases(), *missing_cases(), *wordless_cases(), *overlapping_cases()]
