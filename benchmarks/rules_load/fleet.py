"""Make the samples of a fleet in which a few things are wrong.

The series are those of a real ``RankMetrics`` with a device, given to every rank in turn, and those of a real
``RunMetrics`` over the journal of a run of that size with an open incident of 8 suspects. Values move as training
does; ranks share their values with every 32nd other rank, which changes nothing for a server.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from lastgood import push_wire
from lastgood.devices.reading import Reading
from lastgood.events import fact_id
from lastgood.incident_rows import MAX_SUSPECTS
from lastgood.journal import JournalWriter, claim_attempt
from lastgood.ledger import Ledger
from lastgood.rank_metrics import RankMetrics
from lastgood.run_metrics import RunMetrics
from lastgood.state import Place
from lastgood.topology_files import write_topology

RUN = "llama-16k"
PER_NODE = 8
VARIANTS = 32
PAST_SECONDS = 3840
"""Samples before now: rules look an hour back."""
GPU = Reading(
    power_watts=500.0, energy_joules=1e6, core_celsius=60.0, memory_celsius=70.0, margin_celsius=25.0,
    ecc_uncorrected=0.0, ecc_new=0.0, pci_bus_id="00000000:1B:00.0",
)  # fmt: skip

Labels = Mapping[str, str]
Row = tuple[str, Labels, float]


@dataclass(frozen=True)
class Fleet:
    """A run of ``ranks``, 8 to a node, that has trained since ``begin`` (Unix seconds) with a step every 2 seconds."""

    ranks: int
    begin: float
    folder: Path

    @cached_property
    def places(self) -> tuple[Place, ...]:
        return tuple(
            Place(rank, f"node-{rank // PER_NODE:04}", f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}", rank % PER_NODE)
            for rank in range(self.ranks)
        )

    def registry(self, place: Place) -> CollectorRegistry:
        """Return what one rank exports."""
        registry = CollectorRegistry(auto_describe=False)
        metrics = RankMetrics(
            registry, run=RUN, rank=place.rank, node=place.node, local_rank=place.slot, gpu_uuid=place.gpu_uuid,
            pci_bus_id="00000000:1B:00.0", attempt=1, version="0.2.0", clock=lambda: self.begin,
        )  # fmt: skip
        metrics.device = lambda: GPU
        metrics.step(1000, 2.0, self.begin + 60)
        metrics.grad_norm(1.0123456789, 0.9876543210)
        return registry

    def exposition_bytes(self) -> int:
        """Return the size of what one rank answers to a scrape."""
        return len(generate_latest(self.registry(self.places[-1])))

    @cached_property
    def rank_rows(self) -> list[Row]:
        """Return the series of a rank, as the first one has them."""
        return list(rows(self.registry(self.places[0])))

    @cached_property
    def run_rows(self) -> list[Row]:
        """Return the series of the run with its open incident."""
        return self._ledger_rows(self.folder / "faulty" / RUN, finding=True)

    @cached_property
    def quiet_run_rows(self) -> list[Row]:
        """Return the series of such a run without an incident."""
        return self._ledger_rows(self.folder / "quiet" / RUN, finding=False)

    def _ledger_rows(self, run_dir: Path, finding: bool) -> list[Row]:
        write_run(run_dir, self.places, finding)
        ledger = Ledger([run_dir])
        ledger.refresh()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(RunMetrics(ledger))
        return list(rows(registry))

    def entries(self, times: range) -> Iterator[bytes]:
        """Yield each series with its samples at ``times`` (Unix seconds), as remote write has them."""
        yield from self.rank_entries(times)
        target = {"job": "lastgood-runs", "instance": "console:8490"}
        for name, labels, value in self.run_rows:
            samples = self._block(name, value, "ledger", 0, times)
            yield push_wire.entry(push_wire.series(name, {**labels, **target}), samples)

    def rank_entries(self, times: range, only: Collection[str] = ()) -> Iterator[bytes]:
        """Yield those of the ranks alone. ``only``: names of metrics; empty: all."""
        for place in self.places:
            yield from self._of_rank(place, times, only)

    def _of_rank(self, place: Place, times: range, only: Collection[str]) -> Iterator[bytes]:
        fault = self._fault(place.rank)
        if fault == "silent" and times.start > self.begin + 1800:
            return
        own = {"rank": str(place.rank), "node": place.node, "job": "lastgood-ranks"}
        own |= {"instance": f"{place.node}:{9470 + place.slot}"}
        info = {"local_rank": str(place.slot), "gpu_uuid": place.gpu_uuid}
        for name, labels, value in self.rank_rows:
            if only and name not in only:
                continue
            named = {**labels, **own, **info} if name == "lastgood_rank_info" else {**labels, **own}
            samples = self._block(name, value, fault, place.rank % VARIANTS, times)
            yield push_wire.entry(push_wire.series(name, named), samples)
        if only:
            return
        host = {"Hostname": place.node, "UUID": place.gpu_uuid, "gpu": str(place.slot), "job": "dcgm-exporter"}
        host |= {"instance": f"{place.node}:9400"}
        for name in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"):
            samples = self._block(name, 0.0, fault, place.rank % VARIANTS, times)
            yield push_wire.entry(push_wire.series(name, host), samples)

    def _fault(self, rank: int) -> str:
        """Return what is wrong with a rank: 10 hot nodes, and one rank each that stands out, or is silent."""
        if rank % PER_NODE == 0 and rank < 10 * PER_NODE:
            return "hot"
        special = {1: "norm", 2: "power", 3: "ecc", 4: "errors", self.ranks - 1: "silent"}
        return special.get(rank, "")

    @cache  # noqa: B019 - one fleet lives as long as the process
    def _block(self, name: str, value: float, fault: str, variant: int, times: range) -> bytes:
        """Return the samples of a series at ``times``."""
        return b"".join(
            push_wire.sample(push_wire.number(self.value(name, value, fault, variant, at)), at * 1000) for at in times
        )

    def value(self, name: str, value: float, fault: str, variant: int, at: float) -> float:
        """Return the value of a series at a time; ``value`` is what the exporter said."""
        since = at - self.begin
        noise = math.sin(variant * 1.7 + since / 37.0)
        late = since > 1800
        moving = {
            "lastgood_step": since // 2,
            "lastgood_step_timestamp_seconds": at - at % 2,
            "lastgood_step_deadline_timestamp_seconds": at + 60,
            "lastgood_step_duration_seconds_count": since // 2,
            "lastgood_step_duration_seconds_sum": since + noise,
            "lastgood_grad_norm": 40.0 if fault == "norm" else 1 + 0.02 * noise,
            "lastgood_gpu_power_watts": 200.0 if fault == "power" else 500 + 20 * noise,
            "lastgood_gpu_energy_joules_total": 500 * since,
            "lastgood_gpu_temperature_celsius": 60 + 2 * noise,
            "lastgood_gpu_temperature_margin_celsius": 3.0 if fault == "hot" else 25 + 2 * noise,
            "lastgood_gpu_ecc_uncorrected_total": float(fault == "ecc" and late),
            "lastgood_exporter_errors_total": float(fault == "errors" and since > PAST_SECONDS - 300),
            "lastgood_run_step": since // 2,
            "lastgood_run_start_timestamp_seconds": self.begin,
            "lastgood_run_attempt_start_timestamp_seconds": self.begin,
            "lastgood_check_due_step": since // 2 + 100,
            "lastgood_run_last_event_timestamp_seconds": at - 7,
            "lastgood_ledger_last_read_timestamp_seconds": at - 1,
            "DCGM_FI_DEV_POWER_USAGE": 500 + 20 * noise,
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0.0,
        }
        return moving.get(name, value)


def rows(registry: CollectorRegistry) -> Iterator[Row]:
    """Yield (name, labels, value) of everything that a registry exports."""
    for family in registry.collect():
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def write_run(run_dir: Path, places: tuple[Place, ...], finding: bool) -> None:
    """Journal a run with a checkpoint, and a finding against 8 ranks if asked."""
    attempt = claim_attempt(run_dir)
    writer = JournalWriter(run_dir, RUN, attempt, "rank-0", rank=0, node=places[0].node)
    cadence = {"finite": 1, "conservation": 1, "replica": 50, "replay": 200, "at_rest": None}
    started = {
        "world_size": len(places), "topology": write_topology(run_dir, attempt, places), "config": {},
        "cadence": cadence, "not_run": {"at_rest": "switched off"}, "environment": {}, "versions": {}, "seed": 1,
        "parent": None, "parent_known": True, "parent_verified": True, "from_step": 0,
    }  # fmt: skip
    writer.write("run.started", started, step=0)
    for check in ("replica", "replay"):
        passed = {"check": check, "phase": "audit", "state_step": 200, "result": "passed", "reason": ""}
        writer.write("check", passed | {"exceptions": []}, step=200)
    for step in (100, 200):
        writer.write("checkpoint.saved", _saved(attempt, step), step=step)
    if finding:
        _write_finding(writer, places[:: max(1, len(places) // 16)][:MAX_SUSPECTS])
    writer.close()


def _saved(attempt: int, step: int) -> dict[str, object]:
    checks = {"finite": "passed", "conservation": "passed", "replica": "passed", "replay": "passed"}
    return {
        "attempt": attempt, "step": step, "path": f"step-{step}", "parent": None, "bytes": 1, "seconds": 30.0,
        "blocked_seconds": 2.0, "fingerprint": f"{step:032x}", "checks": checks,
    }  # fmt: skip


def _write_finding(writer: JournalWriter, suspects: tuple[Place, ...]) -> None:
    devices = [{"rank": p.rank, "node": p.node, "gpu_uuid": p.gpu_uuid, "slot": p.slot} for p in suspects]
    found = fact_id("finding", "replay", 400, "audit")
    writer.write("finding", {
        "id": found, "check": "replay", "step": 400, "state_step": 400, "phase": "audit", "contained": False,
        "ranks": [p.rank for p in suspects], "devices": devices, "tensor": None, "bucket": None, "observed": "a",
        "expected": "b", "evidence": [],
    }, step=400, event_id=found)  # fmt: skip
    told = fact_id("verdict", "replay", 400, "audit")
    writer.write("verdict", {
        "id": told, "findings": [found], "status": "undecided", "scope": "job",
        "suspects": [device | {"role": "candidate"} for device in devices], "nature": "unknown", "confidence": "low",
        "for": [], "against": [], "resume": None, "action": "stop",
    }, step=400, event_id=told)  # fmt: skip
