"""Ways to train under ``DistributedDataParallel`` with numbers that are read a step late, as on a GPU.

The bits, the checks that run and the first finding of every fault are those of test_ways.py: what comes late is the
same verdict. ``at_rest`` is moved, so that no audit reads the step of the faults at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks
from tests.exporter.test_ways import DDP, NODES, NUMBERS, assert_clean, assert_found

SCRIPT = Path(__file__).with_name("ways_late_cases.py")
ENVIRON = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1", "LASTGOOD_AT_REST_EVERY": "5"}
WAYS = (
    "accumulation_reduced_every_time", "many_buckets", "fp16_hook", "own_hook_promised", "bf16_weights",
    "two_optimizers", "fused", "lbfgs", "a_closure_that_runs_once", "complex_weights_odd_buffers",
)  # fmt: skip
"""Those in which the gradients, the reduce or the optimizer's step are not the plain ones."""

pytestmark = [pytest.mark.torchrun, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    arguments = [str(tmp_path_factory.mktemp("late")), ",".join([*WAYS, "skipped_inside_a_closure"])]
    return [dict(lines) for lines in run_ranks(SCRIPT, arguments, nodes=NODES, environ=ENVIRON, timeout=560)]


@pytest.mark.parametrize("name", WAYS)
def test_a_way_of_training(seen: list[dict[str, Any]], name: str) -> None:
    faults, not_run = {**DDP, **NUMBERS}[name]
    assert_clean(seen, name, not_run)
    assert_found(seen, name, faults)


def test_a_step_is_skipped_although_a_closure_makes_its_gradients(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["skipped_inside_a_closure"] == {"unchanged": [False, True, False], "contained": [True], "step": 3}
