"""Train sharded models in every way that test_sharded.py lists, on the ranks of one gloo job."""

from __future__ import annotations

import sharded_digests
import sharded_parts
import sharded_rest
import sharded_tensors
import sharded_ways
from training_job import run_cases

MODULES = (sharded_digests, sharded_ways, sharded_parts, sharded_rest, sharded_tensors)
"""Imported for their cases, which register themselves."""

if __name__ == "__main__":
    run_cases()
