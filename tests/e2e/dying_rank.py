"""One rank that serves its metrics, with a fake GPU, finds something when told to, and is gone 50 ms later."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from lastgood.devices import DeviceWatch
from lastgood.devices.fake_nvml import FakeNvml
from lastgood.devices.nvml import NvmlSensors
from lastgood.endpoint import Endpoint
from lastgood.journal import JournalWriter
from lastgood.rank_metrics import RankMetrics

run_dir, run, attempt, device = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
rank, node = device["rank"], device["node"]

registry = CollectorRegistry()
metrics = RankMetrics(
    registry, run=run, rank=rank, node=node, local_rank=device["slot"], gpu_uuid=device["gpu_uuid"], attempt=attempt,
    version="test",
)  # fmt: skip
fake = FakeNvml(node, device["slot"])
sensors = DeviceWatch(lambda: NvmlSensors(fake.uuid, library=fake), interval_seconds=0.5)
metrics.device = sensors.current
while sensors.current() is None:
    time.sleep(0.01)
endpoint = Endpoint(registry, address="127.0.0.1", base_port=0)
writer = JournalWriter(run_dir, run, attempt, f"rank-{rank}", rank=rank, node=node)
print(endpoint.port, flush=True)

sys.stdin.readline()
metrics.check("at_rest", "failed", 100)
finding = {
    "check": "at_rest", "step": 100, "state_step": 100, "phase": "loop", "contained": False, "ranks": [rank],
    "devices": [device], "tensor": None, "bucket": None, "observed": "0x1", "expected": "0x2", "evidence": [],
}  # fmt: skip
writer.write("finding", finding, step=100)
time.sleep(0.05)
os._exit(1)
