"""Fill a Prometheus with an hour of made-up runs, in the shape that lastgood's own exporters give them.

Every series comes from a real ``RunMetrics`` over a journal or a real ``RankMetrics``; a world then says which of
them have other values. A value is a number, or a function of the seconds ago that may say None for "no sample".
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry
from tests.alerts.promql_reading import METRIC_OF
from tests.app.fixtures import run_dirs
from tests.exporter.histories import History, places

from lastgood.devices.reading import Reading
from lastgood.ledger import Ledger
from lastgood.rank_metrics import RankMetrics
from lastgood.run_metrics import RunMetrics
from lastgood.state import Place

SPAN_SECONDS = 4200
STEP_SECONDS = 60

Value = float | Callable[[float], float | None]
Key = tuple[str, tuple[tuple[str, str], ...]]


def since(ago: float, value: float, before: float | None = None) -> Value:
    """Return ``before`` until ``ago`` seconds before now, then ``value``."""
    return lambda seconds_ago: value if seconds_ago <= ago else before


def until(ago: float, value: float) -> Value:
    """Return ``value`` until ``ago`` seconds before now, then nothing."""
    return lambda seconds_ago: value if seconds_ago >= ago else None


@dataclass
class World:
    """Series by name and labels. ``now`` is the Unix time of their last samples."""

    now: float
    folder: Path
    series: dict[Key, Value] = field(default_factory=dict)

    def run(self, story: History, instance: str = "console:8490") -> str:
        """Add what a ledger exports about a run, moved in time so that its last event is 10 seconds old."""
        run_dir = self.folder / instance.replace(":", "-") / story.run
        ledger = Ledger([run_dirs.written(story, run_dir)], clock=lambda: story.now + 5)
        ledger.refresh()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(RunMetrics(ledger, clock=lambda: story.now + 5))
        for name, labels, value in samples(registry):
            late = self.now - 10 - story.now if name.endswith("_timestamp_seconds") else 0.0
            self.add(name, value + late, job="lastgood-runs", instance=instance, **labels)
        return story.run

    def ranks(
        self, run: str, where: tuple[Place, ...], attempt: int = 1, device: Reading | None = None
    ) -> list[RankMetrics]:
        """Add ranks that have just ended step 100 and return them; :meth:`scrape` takes over what is done to them."""
        made = []
        for place in where:
            metrics = RankMetrics(
                CollectorRegistry(auto_describe=False), run=run, rank=place.rank, node=place.node, attempt=attempt,
                local_rank=place.slot, gpu_uuid=place.gpu_uuid, version="0.2.0", clock=lambda: self.now - 5,
            )  # fmt: skip
            metrics.device = lambda: device
            metrics.step(100, 1.5, self.now + 55)
            metrics.grad_norm(1.0 + place.rank / 100, 0.9)
            made.append(metrics)
        return made

    def scrape(self, ranks: list[RankMetrics], job: str = "lastgood-ranks") -> None:
        """Add the series of ranks as they are now."""
        for metrics in ranks:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(metrics)
            for name, labels, value in samples(registry):
                port = 9470 + int(labels["rank"])
                self.add(name, value, job=job, instance=f"{labels['node']}:{port}", **labels)

    def add(self, name: str, value: Value, **labels: str) -> None:
        """Add one series. Names and labels of ours are those of the catalogue."""
        if metric := METRIC_OF.get(name):
            assert {*labels} - {"job", "instance"} == {*metric.labels}, f"{name} has the labels {metric.labels}"
        self.series[name, tuple(sorted(labels.items()))] = value

    def set(self, name: str, value: Value, **labels: str) -> None:
        """Give the series that have these labels another value."""
        name = f"lastgood_{name}"
        found = [key for key in self.series if key[0] == name and labels.items() <= dict(key[1]).items()]
        assert found, f"no series {name} with {labels}"
        self.series.update(dict.fromkeys(found, value))

    def silence(self, run: str, rank: int) -> None:
        """Let a rank be scraped no more since 15 minutes."""
        for name, labels in self.series:
            if {("run", run), ("rank", str(rank))} <= {*labels}:
                self.series[name, labels] = until(900, 1.0)

    def incident(
        self, run: str, incident: str, check: str, resume: float, window: tuple[float, float] | None = None,
        status: str = "attributed", scope: str = "gpu", suspects: tuple[Place, ...] = (),
    ) -> None:  # fmt: skip
        """Add an open incident."""
        base = {"job": "lastgood-runs", "instance": "console:8490", "run": run, "incident": incident}
        named = [(str(place.rank), place.node, place.gpu_uuid) for place in suspects] or [("unknown",) * 3]
        for rank, node, gpu_uuid in named:
            who = {"check": check, "status": status, "scope": scope, "rank": rank, "node": node, "gpu_uuid": gpu_uuid}
            self.add("lastgood_incident_resume_step", resume, **base, **who)
        for edge, step in zip(("start", "end"), window or (), strict=False):
            self.add(f"lastgood_incident_window_{edge}_step", step, **base)
        self.add("lastgood_incident_start_timestamp_seconds", self.now - 600, **base)

    def text(self) -> Iterator[str]:
        """Yield the lines of the OpenMetrics text of all samples, oldest first in each series."""
        for (name, labels), value in sorted(self.series.items(), key=lambda item: item[0]):
            named = ",".join(f'{key}="{label}"' for key, label in labels)
            head = f"{name}{{{named}}}"
            for ago in range(SPAN_SECONDS, -1, -STEP_SECONDS):
                sample = value(ago) if callable(value) else value
                if sample is not None:
                    yield f"{head} {number(sample)} {self.now - ago:.3f}\n"
        yield "# EOF\n"

    def load(self, promtool: str, storage: Path) -> None:
        """Write the samples as blocks of a Prometheus storage; an empty world leaves it empty."""
        storage.mkdir()
        if not self.series:
            return
        source = self.folder / "world.om"
        source.write_text("".join(self.text()), encoding="utf-8")
        command = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(source), str(storage)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def samples(registry: CollectorRegistry) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield (name, labels, value) of everything that a registry exports."""
    for family in registry.collect():
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def number(value: float) -> str:
    """Return a value as OpenMetrics writes it."""
    if math.isnan(value):
        return "NaN"
    return ("+Inf" if value > 0 else "-Inf") if math.isinf(value) else repr(value)


def active(run: str) -> History:
    """Return a run that trains."""
    story = History(run).start().save(0).audit(1, phase="first").save(25).save(50).audit(50)
    return story.write("progress", 60, step=60, step_seconds=1.5, passed={"finite": 60, "conservation": 60})


# --- the worlds ------------------------------------------------------------------------------------------------------

GPU = Reading(
    power_watts=500.0, energy_joules=1e6, core_celsius=60.0, margin_celsius=25.0, ecc_uncorrected=0.0, ecc_new=0.0
)
SIX = places()
FLEET = places(tuple(f"n{number:02}" for number in range(20)), per_node=1)


def empty(now: float, folder: Path) -> World:
    """Return a world in which nobody has ever trained."""
    return World(now, folder)


def healthy(now: float, folder: Path) -> World:
    """Return a world with one healthy run, its six ranks and its ledger."""
    world = World(now, folder)
    run = world.run(active("healthy"))
    world.scrape(world.ranks(run, SIX, device=GPU))
    return world


def faulty(now: float, folder: Path) -> World:
    """Return a world in which every rule fires."""
    world = healthy(now, folder)
    _findings(world)
    _checkpoints(world)
    _runs(world)
    _devices(world)
    _itself(world)
    return world


def _findings(world: World) -> None:
    world.run(run_dirs.still_open("llama-7b"))  # replay attributed, a suspect checkpoint: all from a journal
    run = world.run(active("findings"))
    world.incident(run, "r-1", "finite", 50, (50, 67), suspects=SIX[3:4])
    world.incident(run, "r-2", "finite", -1, status="suspicious", suspects=SIX[1:2])
    world.incident(run, "r-3", "conservation", 1_250_000, (1_250_066, 1_250_067), status="confirmed", scope="job")
    world.incident(run, "r-4", "replica", 50, (50, 75), status="undecided", suspects=SIX[:2])
    world.incident(run, "r-5 & more", "replay", -1, scope="node", suspects=SIX[2:4])
    accused = {"node": "node-b", "gpu_uuid": "GPU-node-b-1", "job": "lastgood-runs", "instance": "console:8490"}
    world.add("lastgood_node_accusations", 3, window="7d", **accused)


def _checkpoints(world: World) -> None:
    run = world.run(active("untrusted"))
    world.set("checkpoint_last_trusted_timestamp_seconds", world.now - 7 * 3600 - 60, run=run)
    run = world.run(active("overdue"))
    world.set("checkpoint_last_timestamp_seconds", world.now - 4000, run=run)
    world.set("checkpoint_interval_seconds", 600, run=run)
    run = world.run(active("full-disk"))
    world.set("checkpoint_failed_saves", 2, run=run)
    world.set("last_good_step", -1, run=run)


def _runs(world: World) -> None:
    run = world.run(active("stale-checks"))
    world.set("run_step", 1_000, run=run)
    world.set("run_check_last_pass_step", -1, run=run, check="replay")
    run = world.run(active("silent"))
    world.scrape(world.ranks(run, SIX))
    world.set("run_attempt_start_timestamp_seconds", world.now - 4000, run=run)
    world.silence(run, rank=5)
    run = world.run(active("stalled"))
    ranks = world.ranks(run, SIX)
    for late, metrics in enumerate(ranks[:2]):
        metrics.deadline(world.now - 100 - late)
    world.scrape(ranks)
    world.silence(run, rank=5)
    run = world.run(active("vanished"))
    world.set("run_last_event_timestamp_seconds", world.now - 1230, run=run)
    run = world.run(active("storm"))
    world.set("restarts_recent", 4, run=run, window="1h")
    run = world.run(active("slow"))
    world.set("goodput_ratio", 0.8123, run=run, window="1h")
    world.set("run_start_timestamp_seconds", world.now - 9000, run=run)


def _devices(world: World) -> None:
    ranks = world.ranks("hot", SIX, device=GPU)
    ranks[4].grad_norm(55.0, 0.9)
    world.scrape(ranks)
    world.set("gpu_temperature_margin_celsius", 2.0, run="hot", rank="2")
    world.set("gpu_power_watts", 210.0, run="hot", rank="3")
    world.set("gpu_ecc_uncorrected_total", since(1800, 3, before=0), run="hot", rank="5")
    ranks = world.ranks("fleet", FLEET, device=GPU)
    for number, metrics in enumerate(ranks[:9]):
        metrics.grad_norm(40.0 + number, 0.9)
    world.scrape(ranks)
    for rank in range(8):
        world.set("gpu_temperature_margin_celsius", 4 - rank / 10, run="fleet", rank=str(rank))
    world.scrape(world.ranks("dcgm", SIX))
    for place in SIX:
        theirs = {"UUID": place.gpu_uuid, "Hostname": place.node, "job": "dcgm", "instance": f"{place.node}:9400"}
        watts = {0: 9.2e18, 5: 100.0}.get(place.rank, 450.0)  # what it says when it cannot read, and one capped GPU
        world.add("DCGM_FI_DEV_POWER_USAGE", watts, **theirs)
        world.add("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", since(600, float(place.rank == 1), before=0.0), **theirs)


def _itself(world: World) -> None:
    run = world.run(active("broken-exporter"))
    world.scrape(world.ranks(run, SIX[:3]))
    world.set("exporter_errors_total", since(300, 2, before=0), run=run, rank="1", part="journal")
    world.set("exporter_errors_total", since(300, 1), run=run, rank="2", part="device")
    run = world.run(active("torn"))
    world.set("journal_unreadable_lines_total", since(1200, 2, before=0), run=run)
    run = world.run(active("unread"))
    world.set("ledger_last_read_timestamp_seconds", world.now - 700, run=run)


def awkward(now: float, folder: Path) -> World:
    """Return a world of traps: two ledgers, NaN, renamed nodes, overlapping attempts, a rank that moved, no windows."""
    world = World(now, folder)
    run = world.run(run_dirs.still_open("llama-7b"))
    world.run(run_dirs.still_open("llama-7b"), instance="serve:8490")
    world.set("last_good_step", 25, run=run, instance="serve:8490")
    run = world.run(active("moved"))
    old = world.ranks(run, SIX, device=GPU)
    world.scrape(old, job="old")
    world.scrape(world.ranks(run, places(("node-x", "node-b", "node-c")), attempt=2), job="new")
    world.set("grad_norm", math.nan, run=run, rank="1")
    world.set("grad_norm", 70.0, run=run, rank="3", job="new")
    world.set("gpu_temperature_margin_celsius", math.nan, run=run, rank="0")
    world.set("gpu_power_watts", math.nan, run=run, rank="2")
    _rename_nodes(world)
    return world


def _rename_nodes(world: World) -> None:
    """Add a run whose ranks are scraped without ``honor_labels`` by targets that have a label node."""
    inner = World(world.now, world.folder)
    ranks = inner.ranks("renamed", SIX, device=GPU)
    ranks[1].grad_norm(30.0, 0.9)
    inner.scrape(ranks)
    inner.set("gpu_temperature_margin_celsius", 1.0, rank="4")
    for (name, labels), value in inner.series.items():
        theirs = {("exported_node" if key == "node" else key): label for key, label in labels}
        world.series[name, tuple(sorted((theirs | {"node": "rack-7"}).items()))] = value
