"""The ways to train once more, with numbers that are read a step late, as on a GPU. Started by test_ways_late.py."""

from __future__ import annotations

from dataclasses import replace

import ways_cases
import ways_job
from training_job import run_cases

from lastgood import monitor
from lastgood.readback import LateOnHost

MODULES = ways_cases.MODULES
SAMPLED = 5
"""The step that ``at_rest`` looks at here (test_ways_late.py)."""

if __name__ == "__main__":
    monitor.readback_for = lambda device: LateOnHost()
    ways_job.FAULTS["at_rest"] = replace(ways_job.FAULTS["at_rest"], step=SAMPLED)
    run_cases()
