"""Train for real on the ranks of one gloo job, one small case after the other, and print what each rank saw.

Started by test_training.py through ranks.py. A case returns plain data; an exception is its result, too.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
import training_cases_checks
import training_cases_loops
from training_job import CASES, ROOT

from lastgood.demo.train import leave

MODULES = (training_cases_checks, training_cases_loops)
"""Imported for their cases, which register themselves."""


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    names = sys.argv[2].split(",") if len(sys.argv) > 2 and sys.argv[2] else list(CASES)
    for name in names:
        root = ROOT / name
        root.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        result = CASES[name](root)
        print("@" + json.dumps([name, result]), flush=True)
    dist.barrier()
    leave(0)  # without tearing gloo down, which may abort (see docs/troubleshooting.md)


if __name__ == "__main__":
    main()
