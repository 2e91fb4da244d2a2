"""Train for real on the ranks of one gloo job, one small case after the other, and print what each rank saw.

Started by test_training.py through ranks.py. A case returns plain data; an exception is its result, too.
"""

from __future__ import annotations

import training_cases_checks
import training_cases_loops
import training_cases_rest
from training_job import run_cases

MODULES = (training_cases_checks, training_cases_loops, training_cases_rest)
"""Imported for their cases, which register themselves."""

if __name__ == "__main__":
    run_cases()
