"""Train in every way that test_ways.py lists, on the ranks of one gloo job."""

from __future__ import annotations

import ways_apart
import ways_compiled
import ways_ddp
import ways_numbers
from training_job import run_cases

MODULES = (ways_apart, ways_compiled, ways_ddp, ways_numbers)
"""Imported for their ways, which register themselves."""

if __name__ == "__main__":
    run_cases()
