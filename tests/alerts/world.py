"""Build the series that promtool replays: a healthy run of two nodes with two ranks each, and what may befall it.

promtool's clock starts at 0, so what happened earlier has a negative time. One sample every 30 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from lastgood.events import CHECKS

STEP_SECONDS: Final = 30
SAMPLES: Final = 160
RUN: Final = "llama-7b"
NODES: Final = ("node-a", "node-b")
INCIDENT: Final = "i-3f2"
NOT_A_NUMBER: Final = " ".join(["NaN"] * SAMPLES)

Values = str | float
Labels = Mapping[str, str]


def values_text(value: Values) -> str:
    """Return promtool's notation: a number is repeated, a text stands as it is."""
    return value if isinstance(value, str) else f"{value:g}+0x{SAMPLES}"


def rising(start: float, by: float) -> str:
    """Return values that grow by ``by`` at every sample."""
    return f"{start:g}{by:+g}x{SAMPLES}"


NOW: Final = rising(0, STEP_SECONDS)
"""A time that is always now."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series and its values."""

    name: str
    labels: Labels
    values: str

    def fits(self, name: str, labels: Labels) -> bool:
        return self.name == f"lastgood_{name}" and labels.items() <= self.labels.items()

    def with_labels(self, **labels: str) -> Series:
        return replace(self, labels={**self.labels, **labels})

    def text(self) -> str:
        inside = ",".join(f'{key}="{value}"' for key, value in sorted(self.labels.items()))
        return f"{self.name}{{{inside}}}"


@dataclass(frozen=True, slots=True)
class World:
    """Every series of a case. Each method returns a changed copy."""

    series: tuple[Series, ...] = field(default=())

    def ledger(self, name: str, value: Values, run: str = RUN, **labels: str) -> World:
        """Set a series of the ledger, or add it."""
        base = {"job": "lastgood-ledger", "instance": "console:8490", "run": run}
        return self._set(name, value, {"run": run, **labels}, {**base, **labels})

    def rank(self, rank: int, name: str, value: Values, run: str = RUN, **labels: str) -> World:
        """Set a series of a rank that is there, or add it."""
        place = next(one.labels for one in self.series if one.fits("rank_info", {"run": run, "rank": str(rank)}))
        base = {key: place[key] for key in ("job", "instance", "run", "rank", "node")}
        return self._set(name, value, {"run": run, "rank": str(rank), **labels}, {**base, **labels})

    def drop(self, name: str, **labels: str) -> World:
        """Take series away; nothing to take is a mistake in the case."""
        left = tuple(one for one in self.series if not one.fits(name, labels))
        assert len(left) < len(self.series), f"no series {name} {labels}"
        return World(left)

    def drop_ranks(self, *ranks: int, run: str = RUN) -> World:
        gone = {str(rank) for rank in ranks}
        return World(tuple(one for one in self.series if one.labels.get("run") != run or not is_of(one, gone)))

    def drop_all_ranks(self, run: str = RUN) -> World:
        return World(tuple(one for one in self.series if one.labels.get("run") != run or not is_of_a_rank(one)))

    def drop_ledger(self) -> World:
        return World(tuple(one for one in self.series if one.labels.get("job") != "lastgood-ledger"))

    def all_of(self, metric: str, values: Values) -> World:
        """Set every series of a metric, given by its full name."""
        text = values_text(values)
        return World(tuple(replace(one, values=text) if one.name == metric else one for one in self.series))

    def without(self, metric: str) -> World:
        """Take every series of a metric away, given by its full name."""
        return World(tuple(one for one in self.series if one.name != metric))

    def add(self, name: str, value: Values, **labels: str) -> World:
        return World((*self.series, Series(name, labels, values_text(value))))

    def plus(self, other: World) -> World:
        return World((*self.series, *other.series))

    def map_rank(self, rank: int, change: Callable[[str], str], run: str = RUN) -> World:
        """Change the values of every series of a rank."""
        return World(
            tuple(
                replace(one, values=change(one.values))
                if one.labels.get("run") == run and is_of(one, {str(rank)})
                else one
                for one in self.series
            )
        )

    def _set(self, name: str, value: Values, wanted: Labels, complete: Labels) -> World:
        text = values_text(value)
        if any(one.fits(name, wanted) for one in self.series):
            return World(tuple(replace(one, values=text) if one.fits(name, wanted) else one for one in self.series))
        return World((*self.series, Series(f"lastgood_{name}", complete, text)))

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series)


def is_of_a_rank(series: Series) -> bool:
    return series.labels.get("job") == "lastgood-ranks"


def is_of(series: Series, ranks: set[str]) -> bool:
    return is_of_a_rank(series) and series.labels.get("rank") in ranks


def gpu(rank: int) -> str:
    return f"GPU-{rank:04d}"


def healthy(run: str = RUN, nodes: tuple[str, ...] = NODES, per_node: int = 2, attempt: int = 1) -> World:
    """Return a run that trains, with its ledger: no rule but Watchdog fires."""
    world = _ledger_of(run, len(nodes) * per_node, attempt)
    for rank in range(len(nodes) * per_node):
        world = world.plus(rank_series(run, rank, nodes[rank // per_node], rank % per_node, attempt))
    return world


def rank_series(run: str, rank: int, node: str, local_rank: int, attempt: int, port: int = 9470) -> World:
    """Return what a rank in good health publishes."""
    place = {
        "job": "lastgood-ranks", "instance": f"{node}:{port + local_rank}", "run": run, "rank": str(rank), "node": node
    }  # fmt: skip
    info = {"local_rank": str(local_rank), "gpu_uuid": gpu(rank), "attempt": str(attempt)}
    world = World().add("lastgood_rank_info", 1, **place, **info, pci_bus_id="unknown", version="0.1.0")
    for name, value in (
        ("step", rising(100, 10)),
        ("step_timestamp_seconds", rising(rank - 20, STEP_SECONDS)),
        ("step_deadline_timestamp_seconds", rising(60, STEP_SECONDS)),
        ("gpu_power_watts", 600 + rank),
        ("gpu_temperature_margin_celsius", 20),
        ("gpu_ecc_uncorrected_total", 0),
    ):
        world = world.add(f"lastgood_{name}", value, **place)
    world = world.add("lastgood_grad_norm", 1 + rank / 100, **place, stage="local")
    for part in ("check", "device", "journal", "delivery"):
        world = world.add("lastgood_exporter_errors_total", 0, **place, part=part)
    return world


def _ledger_of(run: str, world_size: int, attempt: int) -> World:
    world = World()
    for name, value, labels in (
        ("run_active", 1, {}),
        ("run_attempt", attempt, {}),
        ("run_world_size", world_size, {}),
        ("run_step", rising(100, 10), {}),
        ("run_start_timestamp_seconds", -7200, {}),
        ("run_attempt_start_timestamp_seconds", -3600, {}),
        ("run_last_event_timestamp_seconds", NOW, {}),
        ("ledger_last_read_timestamp_seconds", NOW, {}),
        ("journal_unreadable_lines_total", 0, {}),
        ("last_good_step", 50, {}),
        ("checkpoint_last_trusted_step", 50, {}),
        ("checkpoint_last_trusted_timestamp_seconds", -1800, {}),
        ("checkpoint_last_timestamp_seconds", rising(-60, STEP_SECONDS), {}),
        ("checkpoint_interval_seconds", 600, {}),
        ("checkpoint_failed_saves", 0, {}),
        ("restarts_recent", 0, {"window": "1h"}),
        ("restarts_recent", 0, {"window": "24h"}),
        ("goodput_ratio", 0.97, {"window": "1h"}),
        ("goodput_ratio", 0.95, {"window": "run"}),
        *(("check_due_step", rising(300, 10), {"check": check}) for check in CHECKS if check != "at_rest"),
        *(("run_check_last_pass_step", 90, {"check": check}) for check in CHECKS if check != "at_rest"),
        *(("checkpoints", 0, {"trust": trust}) for trust in ("trusted", "unverified", "suspect", "tainted")),
        *(("incidents", 0, {"status": status}) for status in ("open", "recovered", "closed", "reopened")),
    ):
        world = world.ledger(name, value, run=run, **labels)
    return world


def incident(
    world: World, check: str, status: str = "attributed", scope: str = "gpu", *, resume: Values = 50,
    rank: str = "3", node: str = "node-b", uuid: str = "GPU-0003", name: str = INCIDENT, run: str = RUN,
    found: int = 30,
) -> World:  # fmt: skip
    """Add one suspect of an open incident that was ``found`` then, and its window (50, 100]."""
    suspect = {
        "incident": name, "check": check, "status": status, "scope": scope, "rank": rank, "node": node, "gpu_uuid": uuid
    }  # fmt: skip
    world = world.ledger("incident_resume_step", resume, run=run, **suspect)
    world = world.ledger("incident_start_timestamp_seconds", found, run=run, incident=name)
    world = world.ledger("incident_window_start_step", 50, run=run, incident=name)
    return world.ledger("incident_window_end_step", 100, run=run, incident=name).ledger(
        "incidents", 1, run=run, status="open"
    )


def dcgm(world: World, metric: str, values: Mapping[int, Values], host_label: str = "Hostname") -> World:
    """Add a metric of dcgm-exporter for some ranks' GPUs."""
    for rank, value in values.items():
        where = {"job": "dcgm", "instance": f"dcgm-{rank}:9400", host_label: f"host-{rank}", "gpu": str(rank % 2)}
        world = world.add(metric, value, **where, UUID=gpu(rank), device=f"nvidia{rank % 2}")
    return world


def _renamed(one: Series) -> Series:
    labels = dict(one.labels)
    if "node" in labels:
        labels["exported_node"] = labels.pop("node")
    return replace(one, labels={**labels, "node": "the-scraped-host"})


def own_node_on_targets(world: World) -> World:
    """Let the scrape configuration put its own ``node`` on every target, without honor_labels."""
    return World(tuple(_renamed(one) for one in world))


def metrics_in(query: str) -> list[str]:
    """Return the metrics of a query, without those that recordings make."""
    return sorted(set(re.findall(r"\b(?:lastgood|DCGM)_\w+", query)))
