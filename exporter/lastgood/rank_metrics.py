"""Hold what one rank publishes about itself.

The training loop writes, a scrape reads. So a write is a plain assignment of a few hundred nanoseconds, nothing here
waits for the device, and a scrape hands out the values that were last written. The numbers live in this object
rather than in ``prometheus_client`` metrics: those turn into files when ``PROMETHEUS_MULTIPROC_DIR`` is set for the
user's own server, and they add ``_created`` series. What the device's sensors said comes from a thread of its own
(``lastgood.devices``) and is only looked at here. Not covered: findings (the ledger has them, this process may die
before it is scraped).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family

from lastgood.catalogue import NONFINITE_STAGES, NORM_STAGES, PARTS, PREFIX, exported, label_value
from lastgood.devices.reading import Reading
from lastgood.events import CHECKS


@dataclass(frozen=True, slots=True)
class Frozen:
    """The values of one moment. Its length is the number of its samples."""

    values: Mapping[str, Mapping[tuple[str, ...], float]]
    durations: tuple[int, float]

    @property
    def step_ended_at(self) -> float:
        """Return when the last step ended, Unix seconds."""
        return self.values["step_timestamp_seconds"][()]

    def __len__(self) -> int:
        return sum(map(len, self.values.values())) + len(self.durations)


class RankMetrics:
    """Collect the rank metrics of the catalogue; registers itself with ``registry``.

    ``gpu_uuid`` is ``cpu-<local rank>`` without a GPU. ``clock`` returns Unix seconds. ``device`` is asked for the last
    reading of the device's sensors at every look, and must answer at once; set it when there is a device.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        run: str,
        rank: int,
        node: str,
        local_rank: int,
        gpu_uuid: str,
        pci_bus_id: str = "unknown",
        attempt: int,
        version: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.device: Callable[[], Reading | None] = lambda: None
        self._base = [label_value(value) for value in (run, rank, node)]
        self._clock = clock
        self._lock = threading.Lock()  # counters are also raised by the threads that write and deliver
        self._durations = (0, 0.0)  # count and sum, replaced as one
        info = tuple(label_value(value) for value in (local_rank, gpu_uuid, pci_bus_id, attempt, version))
        self._values = self._initial(info)
        registry.register(self)

    def _initial(self, info: tuple[str, ...]) -> dict[str, dict[tuple[str, ...], float]]:
        """Return every series at its value before the first step: name -> values of the extra labels -> value."""
        return {
            "rank_info": {info: 1.0},
            "step": {(): 0.0},
            "step_timestamp_seconds": {(): self._clock()},
            "step_deadline_timestamp_seconds": {(): math.inf},
            "grad_norm": {(stage,): math.nan for stage in NORM_STAGES},
            "nonfinite_steps_total": {(stage,): 0.0 for stage in NONFINITE_STAGES},
            "check_runs_total": {(check,): 0.0 for check in CHECKS},
            "check_failures_total": {(check,): 0.0 for check in CHECKS},
            "check_last_pass_step": {(check,): -1.0 for check in CHECKS},
            "exporter_errors_total": {(part,): 0.0 for part in PARTS},
        }

    @property
    def last_step(self) -> int:
        """Return the last step that ended."""
        return int(self._values["step"][()])

    def locate(self, pci_bus_id: str) -> None:
        """Note where the device is on the bus, once its driver has said it."""
        (info,) = self._values["rank_info"]
        self._values["rank_info"] = {(*info[:2], label_value(pci_bus_id), *info[3:]): 1.0}

    def step(self, step: int, seconds: float | None, deadline: float | None) -> None:
        """Note that ``step`` ended, after ``seconds`` (None: no earlier step to count from).

        ``deadline`` is the Unix time by which the next one must have ended (None: not known).
        """
        self._values["step"][()] = float(step)
        self._values["step_timestamp_seconds"][()] = self._clock()
        self._values["step_deadline_timestamp_seconds"][()] = math.inf if deadline is None else deadline
        if seconds is not None:
            count, total = self._durations
            self._durations = (count + 1, total + seconds)

    def deadline(self, timestamp: float) -> None:
        """Move the deadline of the next step, for an evaluation or a save. Unix seconds."""
        self._values["step_deadline_timestamp_seconds"][()] = timestamp

    def grad_norm(self, local: float, reduced: float | None) -> None:
        """Note the gradient norms of a step (``reduced`` None: nothing was averaged)."""
        self._values["grad_norm"][("local",)] = local
        self._values["grad_norm"][("reduced",)] = math.nan if reduced is None else reduced

    def nonfinite(self, stage: str) -> None:
        """Count a step with a NaN or an infinity. ``stage``: loss, local or reduced."""
        self._count("nonfinite_steps_total", stage)

    def check(self, check: str, result: str, state_step: int) -> None:
        """Count a run of ``check`` on this rank. ``result``: passed, failed or not_run (which counts nothing)."""
        if result == "not_run":
            return
        self._count("check_runs_total", check)
        if result == "failed":
            self._count("check_failures_total", check)
        elif state_step > self._values["check_last_pass_step"][(check,)]:
            self._values["check_last_pass_step"][(check,)] = float(state_step)

    def error(self, part: str) -> None:
        """Count a failure of lastgood itself. ``part``: check, device, journal or delivery."""
        self._count("exporter_errors_total", part)

    def _count(self, name: str, label: str) -> None:
        with self._lock:
            self._values[name][(label,)] += 1.0

    def freeze(self) -> Frozen:
        """Return a copy of all values, in a few microseconds, for :meth:`families` to render later."""
        sensors = _device_rows(self.device())
        return Frozen({name: dict(rows) for name, rows in list(self._values.items())} | sensors, self._durations)

    def families(self, frozen: Frozen) -> Iterator[Family]:
        """Yield the families with the values of a copy."""
        for metric in exported("rank"):
            family = metric.family()
            if metric.kind == "summary":
                metric.add(family, self._base, *frozen.durations)
            for extra, value in frozen.values.get(metric.name.removeprefix(PREFIX), {}).items():
                metric.add(family, (*self._base, *extra), value)
            yield family

    def collect(self) -> Iterator[Family]:
        """Yield the families with the values last written."""
        return self.families(self.freeze())

    def describe(self) -> Iterator[Family]:
        """Yield the empty families, so that two ranks cannot register in one registry."""
        return (metric.family() for metric in exported("rank"))


def _device_rows(reading: Reading | None) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the series of a device; a sensor without an answer has none."""
    if reading is None:
        return {}
    rows: dict[str, dict[tuple[str, ...], float | None]] = {
        "gpu_power_watts": {(): reading.power_watts},
        "gpu_energy_joules_total": {(): reading.energy_joules},
        "gpu_temperature_celsius": {("core",): reading.core_celsius, ("memory",): reading.memory_celsius},
        "gpu_temperature_margin_celsius": {(): reading.margin_celsius},
        "gpu_ecc_uncorrected_total": {(): reading.ecc_new},
    }
    return {
        name: {labels: value for labels, value in values.items() if value is not None} for name, values in rows.items()
    }
