"""A rank's metrics say what the monitor told them, and nothing before."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lastgood.catalogue import exported
from lastgood.devices import Reading
from lastgood.rank_metrics import RankMetrics

BASE = {"run": "llama-7b", "rank": "3", "node": "node-b"}


@pytest.fixture
def metrics(registry: CollectorRegistry, clock: Any) -> RankMetrics:
    return RankMetrics(
        registry, run="llama-7b", rank=3, node="node-b", local_rank=1, gpu_uuid="cpu-1", pci_bus_id="",
        attempt=2, version="0.1.0", clock=clock,
    )  # fmt: skip


@pytest.fixture
def value(registry: CollectorRegistry, metrics: RankMetrics) -> Any:
    return lambda name, **labels: registry.get_sample_value(f"lastgood_{name}", BASE | labels)


ALL_SENSORS = Reading(power_watts=640, energy_joules=9e6, core_celsius=61, memory_celsius=72, margin_celsius=26,
                      ecc_uncorrected=7, ecc_new=0)  # fmt: skip


def test_a_rank_exports_30_series_without_a_gpu_before_its_first_step(
    registry: CollectorRegistry, metrics: RankMetrics
) -> None:
    assert sum(len(family.samples) for family in registry.collect()) == 30


def test_a_rank_exports_36_series_with_all_sensors_of_its_gpu(
    registry: CollectorRegistry, metrics: RankMetrics, value: Any
) -> None:
    metrics.device = lambda: ALL_SENSORS
    assert sum(len(family.samples) for family in registry.collect()) == 36
    assert (value("gpu_power_watts"), value("gpu_energy_joules_total")) == (640, 9e6)
    assert [value("gpu_temperature_celsius", sensor=sensor) for sensor in ("core", "memory")] == [61, 72]
    assert (value("gpu_temperature_margin_celsius"), value("gpu_ecc_uncorrected_total")) == (26, 0)


def test_a_sensor_without_an_answer_has_no_series(metrics: RankMetrics, value: Any) -> None:
    metrics.device = lambda: Reading(core_celsius=61)
    assert value("gpu_temperature_celsius", sensor="core") == 61
    assert value("gpu_temperature_celsius", sensor="memory") is None
    assert value("gpu_power_watts") is None
    metrics.device = lambda: None
    assert value("gpu_temperature_celsius", sensor="core") is None


def test_the_place_of_the_device_is_known_once_its_driver_has_said_it(
    registry: CollectorRegistry, metrics: RankMetrics, value: Any
) -> None:
    labels = {"local_rank": "1", "gpu_uuid": "cpu-1", "attempt": "2", "version": "0.1.0"}
    assert value("rank_info", pci_bus_id="unknown", **labels) == 1
    metrics.locate("00000000:11:00.0")
    assert value("rank_info", pci_bus_id="00000000:11:00.0", **labels) == 1
    assert value("rank_info", pci_bus_id="unknown", **labels) is None


def test_every_series_has_the_labels_of_the_catalogue(registry: CollectorRegistry, metrics: RankMetrics) -> None:
    metrics.device = lambda: ALL_SENSORS
    labels = {name: set(metric.labels) for metric in exported("rank") for name in metric.series_names}
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert {sample.name for sample in samples} == set(labels)
    assert all(set(sample.labels) == labels[sample.name] for sample in samples)
    assert all(value for sample in samples for value in sample.labels.values())


def test_counters_start_at_zero(registry: CollectorRegistry, metrics: RankMetrics) -> None:
    counters = [family for family in registry.collect() if family.type == "counter"]
    assert len(counters) == 6  # the device's two have no series without one
    assert {sample.value for family in counters for sample in family.samples} == {0.0}


def test_no_series_says_when_a_counter_was_created(registry: CollectorRegistry, metrics: RankMetrics) -> None:
    assert "_created" not in generate_latest(registry).decode()


def test_before_the_first_step_there_is_no_deadline_and_no_norm(value: Any, clock: Any) -> None:
    assert value("step") == 0
    assert value("step_timestamp_seconds") == clock.now
    assert value("step_deadline_timestamp_seconds") == math.inf
    assert math.isnan(value("grad_norm", stage="local"))
    assert value("step_duration_seconds_count") == 0


def test_a_step_moves_step_time_duration_and_deadline(metrics: RankMetrics, value: Any, clock: Any) -> None:
    metrics.step(100, None, clock.now + 600)
    clock.advance(2.5)
    metrics.step(101, 2.5, clock.now + 10)
    assert value("step") == 101
    assert value("step_timestamp_seconds") == clock.now
    assert value("step_deadline_timestamp_seconds") == clock.now + 10
    assert (value("step_duration_seconds_count"), value("step_duration_seconds_sum")) == (1, 2.5)


def test_an_evaluation_moves_the_deadline_and_an_unknown_one_removes_it(metrics: RankMetrics, value: Any) -> None:
    metrics.deadline(1e9)
    assert value("step_deadline_timestamp_seconds") == 1e9
    metrics.step(1, None, None)
    assert value("step_deadline_timestamp_seconds") == math.inf


def test_a_norm_that_was_not_averaged_is_not_a_number(metrics: RankMetrics, value: Any) -> None:
    metrics.grad_norm(4.0, None)
    assert value("grad_norm", stage="local") == 4.0
    assert math.isnan(value("grad_norm", stage="reduced"))


def test_a_pass_counts_a_run_and_moves_the_last_pass(metrics: RankMetrics, value: Any) -> None:
    metrics.check("replica", "passed", 0)
    assert value("check_runs_total", check="replica") == 1
    assert value("check_failures_total", check="replica") == 0
    assert value("check_last_pass_step", check="replica") == 0


def test_a_failure_counts_and_leaves_the_last_pass_alone(metrics: RankMetrics, value: Any) -> None:
    metrics.check("replay", "passed", 50)
    metrics.check("replay", "failed", 100)
    assert value("check_runs_total", check="replay") == 2
    assert value("check_failures_total", check="replay") == 1
    assert value("check_last_pass_step", check="replay") == 50


def test_a_check_that_was_not_run_counts_nothing(metrics: RankMetrics, value: Any) -> None:
    metrics.check("replay", "not_run", 100)
    assert value("check_runs_total", check="replay") == 0
    assert value("check_last_pass_step", check="replay") == -1


def test_nonfinite_steps_and_errors_are_counted_by_their_place(metrics: RankMetrics, value: Any) -> None:
    metrics.nonfinite("local")
    metrics.error("journal")
    assert [value("nonfinite_steps_total", stage=stage) for stage in ("loss", "local", "reduced")] == [0, 1, 0]
    assert value("exporter_errors_total", part="journal") == 1


def test_a_place_that_the_catalogue_does_not_know_is_an_error(metrics: RankMetrics) -> None:
    with pytest.raises(KeyError, match="weights"):
        metrics.nonfinite("weights")


def test_counts_of_several_threads_add_up(metrics: RankMetrics, value: Any) -> None:
    threads = [threading.Thread(target=lambda: [metrics.error("delivery") for _ in range(5_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value("exporter_errors_total", part="delivery") == 20_000


def test_the_text_is_what_prometheus_reads_back(registry: CollectorRegistry, metrics: RankMetrics) -> None:
    metrics.step(7, 0.25, None)
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    info = families["lastgood_rank_info"].samples[0]
    place = {"local_rank": "1", "gpu_uuid": "cpu-1", "pci_bus_id": "unknown", "attempt": "2", "version": "0.1.0"}
    assert info.labels == BASE | place
    assert families["lastgood_step_duration_seconds"].type == "summary"


def test_two_ranks_cannot_share_a_registry(registry: CollectorRegistry, metrics: RankMetrics) -> None:
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        RankMetrics(registry, run="r", rank=0, node="n", local_rank=0, gpu_uuid="cpu-0", attempt=1, version="0")


def test_it_writes_no_files_where_the_job_uses_multiprocess_metrics(tmp_path: Path) -> None:
    script = (
        "from prometheus_client import CollectorRegistry\nfrom lastgood.rank_metrics import RankMetrics\n"
        "r = CollectorRegistry()\n"
        "m = RankMetrics(r, run='r', rank=0, node='n', local_rank=0, gpu_uuid='cpu-0', attempt=1, version='0')\n"
        "m.step(1, 0.5, None)\nprint(r.get_sample_value('lastgood_step', dict(run='r', rank='0', node='n')))\n"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1.0"
    assert list(tmp_path.iterdir()) == []
