"""Set a watched job up: who is where, which attempt this is, the journal, the metrics endpoint, the targets.

Everything here may fail (no permission, a full disk, no free port) and training goes on: one warning, one counter.
Only a wrong setting raises, before the first step.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from prometheus_client import CollectorRegistry

from lastgood._version import __version__
from lastgood.comm import World
from lastgood.config import Config
from lastgood.delivery import Delivery, NoDelivery
from lastgood.devices import Devices, DeviceWatch, ExcursionRules, NoDevices, Reading
from lastgood.devices.choice import is_fake
from lastgood.endpoint import Endpoint
from lastgood.errors import ConfigError
from lastgood.journal import claim_attempt, run_id_of
from lastgood.notice import warn
from lastgood.pairing import environment_data
from lastgood.places import environment_key, here, node_name
from lastgood.publisher import Publisher
from lastgood.push import END_SECONDS, pusher_for
from lastgood.rank_metrics import RankMetrics
from lastgood.state import Place
from lastgood.targets import withdraw_targets, write_targets
from lastgood.topology_files import topology_name, write_topology


class Session:
    """One rank's place in one attempt of a run.

    ``places``, ``nodes`` and ``environments`` are by rank and equal everywhere. ``named``: the user gave the run's
    name, it was not made from a path.
    """

    def __init__(
        self,
        config: Config,
        world: World,
        device: torch.device,
        registry: CollectorRegistry | None = None,
        *,
        named: bool = False,
    ) -> None:
        self.world, self.device = world, device
        self.run_dir = Path(config.run_dir).absolute()
        self.config = config = self._named(config, named)
        self.registry = registry if registry is not None else CollectorRegistry()
        mine, found = here(world.rank, node_name(config.node), device, config.devices)
        key = environment_key(device) + (", fake GPU" if found.fake else "")
        rows = world.gather_json([mine.node, mine.gpu_uuid, mine.slot, key])
        self.places = tuple(Place(rank, row[0], row[1], row[2]) for rank, row in enumerate(rows))
        self.place = self.places[world.rank]
        self.nodes = [place.node for place in self.places]
        self.environments = [row[3] for row in rows]
        self.attempt, self.journaling = self._claim()
        self.metrics = RankMetrics(
            self.registry,
            run=config.run,
            rank=world.rank,
            node=self.place.node,
            local_rank=self.place.slot,
            gpu_uuid=self.place.gpu_uuid,
            pci_bus_id=found.pci_bus_id,
            attempt=self.attempt,
            version=__version__,
        )
        if not self.journaling:
            self.metrics.error("journal")
        self.publisher = Publisher(
            self.run_dir,
            config.run,
            self.attempt,
            self.place,
            journaling=self.journaling,
            delivery=self._delivery(),
            on_error=self.metrics.error,
        )
        self._excursions = ExcursionRules(self.place)
        self.devices = self._watched(found)
        self.metrics.device = self.devices.current
        self.pusher = pusher_for(config, self.metrics, f"{self.place.node}:{world.rank}", self.metrics.error)
        self.topology = topology_name(self.attempt)
        self._targets = b""  # what rank 0 wrote into targets.json
        self.endpoint = self._serve()
        if world.rank == 0:
            self.publisher.remember(self.places)

    def _named(self, config: Config, named: bool) -> Config:
        """Keep the name that the run directory already has; refuse another one. All ranks agree on rank 0's reading."""
        known = None
        if self.world.rank == 0:
            with suppress(OSError):
                known = run_id_of(self.run_dir)
        known = self.world.broadcast_json(known)
        if known and named and known != config.run:
            raise ConfigError(
                f"run={config.run!r}: {self.run_dir} holds the run {known!r}; leave run= out, or give another run_dir"
            )
        return replace(config, run=known) if known else config

    def started_data(self, **facts: Any) -> dict[str, Any]:
        """Return ``RunStartedData``; the caller adds what only it knows."""
        return {
            "world_size": self.world.size,
            "topology": self.topology,
            "config": self.config.journaled(),
            "environment": environment_data(self.environments),
            "versions": {
                "lastgood": __version__,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
            },
            "seed": torch.initial_seed(),
            **facts,
        }

    def close(self, seconds: float = END_SECONDS) -> None:
        """Stop serving, deliver what is left and close the journal, in ``seconds`` together. May be called twice."""
        deadline = time.monotonic() + seconds
        self.pusher.end()
        self.devices.close()
        self.publisher.files.do(self._withdraw, max(0.0, deadline - time.monotonic()))
        self.endpoint.close()
        self.publisher.close(max(0.0, deadline - time.monotonic()))
        self.pusher.close(max(0.0, deadline - time.monotonic()))

    def _withdraw(self) -> None:
        """Take the targets back while rank 0 still holds its port: no newer attempt can have written the same."""
        with suppress(OSError):
            if self._targets:
                withdraw_targets(self.run_dir, self._targets)
        self._targets = b""

    def _watched(self, found: Devices) -> DeviceWatch | NoDevices:
        if is_fake(self.config.devices) and not found.fake:
            warn(f"devices={self.config.devices!r} is for ranks without a GPU: the GPU here is not read")
        if found.open_sensors is None:
            return NoDevices()
        return DeviceWatch(
            found.open_sensors,
            interval_seconds=self.config.device_seconds,
            on_reading=self._on_reading,
            on_problem=self._on_device_problem,
        )

    def _on_reading(self, reading: Reading, at: float) -> None:
        """Journal what has left its range; runs on the watching thread."""
        if reading.pci_bus_id:
            self.metrics.locate(reading.pci_bus_id)
        for data in self._excursions.take(reading, at):
            self.publisher.write("device.excursion", data, self.metrics.last_step)

    def _on_device_problem(self, kind: str, text: str) -> None:
        self.metrics.error("device")
        warn(f"the device's sensors ({kind}): {text}. Training goes on.")

    def _claim(self) -> tuple[int, bool]:
        """Rank 0 claims the attempt; all ranks hear its number, and whether there is a journal."""
        number, problem = 1, ""
        if self.world.rank == 0:
            try:
                self.run_dir.mkdir(parents=True, exist_ok=True)
                number = claim_attempt(self.run_dir)
                write_topology(self.run_dir, number, self.places)
            except Exception as error:
                problem = f"{error}"
        number, problem = self.world.broadcast_json([number, problem])
        if problem and self.world.rank == 0:
            warn(f"cannot keep a journal in {self.run_dir}: {problem}. Training goes on without one.")
        return number, not problem

    def _delivery(self) -> Delivery | NoDelivery:
        if not self.config.console_url:
            return NoDelivery()
        return Delivery(
            self.config.console_url,
            self.config.token or None,
            on_error=lambda error: self.metrics.error("delivery"),
        )

    def _serve(self) -> Endpoint:
        config = self.config
        endpoint = Endpoint(
            self.registry,
            address=config.metrics_address,
            base_port=config.metrics_port,
            on_error=self.metrics.error,
        )
        address = config.metrics_address
        host = address if address not in ("", "0.0.0.0", "::") else socket.gethostname()
        rows = self.world.gather_json([host, endpoint.port])
        if self.world.rank == 0 and self.journaling:
            try:
                self._targets = write_targets(self.run_dir, [(row[0], row[1]) for row in rows]).read_bytes()
            except OSError as error:
                self.metrics.error("delivery")
                warn(f"cannot write {self.run_dir / 'targets.json'}: {error}. Prometheus will not find the ranks.")
        return endpoint


def relative(path: str | os.PathLike[str], run_dir: Path) -> str:
    """Return a checkpoint's path as the journal has it: relative when it lies in the run directory."""
    full = Path(os.path.abspath(path))
    return str(full.relative_to(run_dir)) if full.is_relative_to(run_dir) else str(full)
