"""Every row of the demo's table on real training, at random ranks and steps and at the edges."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lastgood_console.demo.launcher import environment, free_port
from lastgood_console.demo.options import Options
from lastgood_console.demo.outcome import complaints
from lastgood_console.demo.reading import Follower

pytestmark = [pytest.mark.torchrun, pytest.mark.slow, pytest.mark.timeout(900)]

SHORT = {"steps": 40, "save_every": 10, "audit_every": 20}
EDGES = [("gradient", 0, 1), ("weight", 5, 20), ("nan", 0, 40), ("optimizer", 2, 19)]
"""Step 1, a save step, rank 0 accused, the last step, and an optimizer state that flips just before an audit."""
FAULTS = ("gradient", "nan", "reduce-all", "reduce-one", "weight", "optimizer", "data", "none")
VARIANTS: list[dict[str, Any]] = [
    {"fault": "nan", "rank": 2, "step": 17, "replay": False},
    {"fault": "data", "rank": 4, "step": 17, "replay": False},
    {"fault": "gradient", "rank": 1, "step": 11, "replay": False},
    {"fault": "gradient", "rank": 5, "step": 23, "save_probe": True},
    {"fault": "weight", "rank": 5, "step": 35, "save_probe": True},
]


def drawn() -> list[dict[str, Any]]:
    """Return the edges, then every fault twice at random ranks and steps: 20 rows; then replay off and probes on."""
    random_ = random.Random(67)
    pairs = EDGES + [(fault, random_.randrange(6), random_.randint(2, 40)) for fault in FAULTS * 2]
    return [{"fault": fault, "rank": rank, "step": step} for fault, rank, step in pairs] + VARIANTS


ROWS = drawn()
NAMES = ["-".join(f"{key}={value}" for key, value in row.items()) for row in ROWS]


def options_of(number: int, folder: Path) -> Options:
    return Options(run_dir=folder / f"row-{number}", seed=number, **ROWS[number], **SHORT)


def run_all(rows: list[Options], ranks: int, folder: Path) -> None:
    plan = folder / "rows.json"
    plan.write_text(json.dumps([{**asdict(row), "run_dir": str(row.run_dir)} for row in rows]))
    worker = Path(__file__).with_name("rows_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--local-addr", "127.0.0.1"]
    done = subprocess.run(
        [*command, str(worker), str(plan)],
        env=environment("", os.environ), capture_output=True, text=True, timeout=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    run_all([options_of(number, folder) for number in range(len(ROWS))], 6, folder)
    return folder


@pytest.mark.parametrize("number", range(len(ROWS)), ids=NAMES)
def test_the_row_comes_out_as_the_rules_say(runs: Path, number: int) -> None:
    options = options_of(number, runs)
    state = Follower(options.run_dir, options.run_dir.name).poll(1)
    assert state is not None
    assert complaints(state, options) == ()
    assert state.unreadable == ()


def test_three_ranks_on_three_nodes_are_enough(tmp_path: Path) -> None:
    options = Options(fault="gradient", ranks_per_node=1, rank=1, step=27, run_dir=tmp_path / "three", **SHORT)
    run_all([options], 3, tmp_path)
    state = Follower(options.run_dir, options.run_dir.name).poll(1)
    assert state is not None
    assert complaints(state, options) == ()


def test_two_nodes_are_both_candidates(tmp_path: Path) -> None:
    options = Options(fault="gradient", nodes=2, rank=3, step=27, run_dir=tmp_path / "two", **SHORT)
    run_all([options], 4, tmp_path)
    state = Follower(options.run_dir, options.run_dir.name).poll(1)
    assert state is not None
    assert complaints(state, options) == ()
    assert [suspect.rank for suspect in state.incidents[0].suspects] == [1, 3]
