"""The ways to train once more, with numbers that are read a step late, as on a GPU. Started by test_ways_late.py."""

from __future__ import annotations

import ways_cases
from training_job import run_cases

from lastgood import monitor
from lastgood.readback import LateOnHost

MODULES = ways_cases.MODULES

if __name__ == "__main__":
    monitor.readback_for = lambda device: LateOnHost()
    run_cases()
