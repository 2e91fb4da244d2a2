"""Train one rank for real with the setting ``devices`` of the command line; print what it saw as one JSON line.

Started by test_device_training.py: ``python device_training.py RUN_DIR DEVICES SECONDS``.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from prometheus_client import CollectorRegistry
from torch import nn

import lastgood
from lastgood.fingerprint import digest_tensors

STEPS = 60


def main(run_dir: str, devices: str, seconds: float) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    registry = CollectorRegistry()
    monitor = lastgood.watch(model, optimizer, run_dir=run_dir, registry=registry, metrics_port=0, devices=devices,
                             device_seconds=0.1, loss_fn=lambda m, x: m(x).square().mean())  # fmt: skip
    longest = 0.0
    for _ in range(STEPS):
        began = time.monotonic()
        monitor.loss(torch.randn(8, 16)).backward()
        optimizer.step()
        optimizer.zero_grad()
        list(registry.collect())  # a scrape, from the worst place it could come from
        longest = max(longest, time.monotonic() - began)
        time.sleep(seconds / STEPS)
    samples = {s.name: s.value for family in registry.collect() for s in family.samples if "gpu_" in s.name}
    errors = [s.value for f in registry.collect() for s in f.samples if s.labels.get("part") == "device"]
    began = time.monotonic()
    monitor.close()
    closed = time.monotonic() - began
    weights = digest_tensors(model.named_parameters(), lanes=2).hex()
    print(json.dumps({"weights": weights, "longest": longest, "closed": closed, "samples": samples, "errors": errors}))
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
