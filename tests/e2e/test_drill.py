"""A small drill on real training: every target is reached, and missed as soon as a check is made blind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torchrun, pytest.mark.slow, pytest.mark.timeout(600)]

IN_THE_RANKS = """
import sys
if "lastgood.drill.worker" in sys.orig_argv:
    import lastgood.inspector as inspector
    from lastgood.judge import PROCEED
    from lastgood.verdict import AGREED
    from dataclasses import replace
    import lastgood.replay_check as replay_check
    import lastgood.replica_check as replica_check
    seen = replica_check.compare
    {}
"""
BLIND = {
    "replay": "replay_check.arbitrate = lambda disputes, nodes: AGREED",
    "replica": "replica_check.compare = lambda *a, **k: replace(seen(*a, **k), ruling=None)",
    "conservation": "inspector.Inspector._conservation = lambda *a: PROCEED",
    "finite": "inspector.Inspector._nonfinite = lambda *a: PROCEED",
}
"""Makes a check pass whatever it sees."""
SEEN_BY = {
    "replay": "gradient-tile-swap",
    "replica": "weight-sign",
    "conservation": "all-ranks-scale",
    "finite": "activation-nan",
}
"""Check -> a part of the drill that only it can see."""


def drill(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ} | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, "-m", "lastgood_console.cli", "drill", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=550, env=environ, check=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], str]:
    """A drill of everything that multiplies by ten."""
    folder = tmp_path_factory.mktemp("drill")
    done = drill("--only", "scale", "--json", f"{folder}/drill.json", "--html", f"{folder}/drill.html")
    assert done.returncode in (0, 1), done.stderr[-4000:]
    return done, json.loads((folder / "drill.json").read_text()), (folder / "drill.html").read_text()


def test_a_real_drill_reaches_its_targets(small: Any) -> None:
    done, told, _ = small
    assert [t["name"] for t in told["targets"] if not t["reached"]] == [], done.stdout
    assert done.returncode == 0
    assert [t["complaints"] for t in told["trials"] if t["complaints"]] == []


def test_the_truth_of_every_fault_was_journaled_and_scored(small: Any) -> None:
    _, told, page = small
    faults = [t for t in told["trials"] if t["row"] != "control"]
    assert {t["row"] for t in faults} >= {"gradient", "weight", "reduced, one rank", "optimizer exp_avg"}
    assert sum(t["result"] == "detected" for t in faults) >= 5
    assert "Every target reached" in page


def test_the_clean_jobs_have_no_finding(small: Any) -> None:
    _, told, _ = small
    assert {t["result"] for t in told["trials"] if t["row"] == "control"} == {"clean"}


@pytest.mark.parametrize("check", BLIND)
def test_a_drill_notices_a_check_that_is_blind(check: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(IN_THE_RANKS.format(BLIND[check]))
    done = drill("--only", SEEN_BY[check], path=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✗ inside reach: detected" in done.stdout
    assert re.search(rf"✗ \d+-.*: .*{check}.* did not find it", done.stdout)


def test_a_job_that_fails_is_said_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(IN_THE_RANKS.format("raise SystemExit('no luck')"))
    done = drill("--only", "clean-1", path=tmp_path)
    assert done.returncode == 2
    assert "the job ended in the trial clean-1" in done.stderr


SCRIPT = """
import sys
import torch, torch.distributed as dist
from torch import nn
import lastgood

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

def loss_fn(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

monitor = lastgood.watch(
    model, optimizer, run_dir="/nowhere/at-all", loss_fn=loss_fn, replica_every=4, replay_every=10
)
for step in range(int(sys.argv[1])):
    torch.manual_seed(step * 10 + dist.get_rank())
    loss = monitor.loss((torch.randn(8, 16), torch.randint(0, 4, (8,))))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
monitor.close()
"""


def test_a_users_own_script_is_drilled_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = drill(
        "--script", f"{tmp_path}/train.py", "--only", "weight-mantissa", "--json", f"{tmp_path}/own.json", "--", "20"
    )
    told = json.loads((tmp_path / "own.json").read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    (fault,) = told["faults"]
    assert (fault["checks"], fault["accused"]) == (["replica"], [fault["rank"]])
    assert told["about"]["steps"] == 20
    assert told["about"]["cadence"]["replica"] == 4
    assert told["about"]["share_of_step_time"] is not None
    assert "These settings would have caught every one of them." in done.stdout


def test_a_script_that_fails_by_itself_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('no data')")
    done = drill("--script", f"{tmp_path}/train.py")
    assert done.returncode == 2
    assert "failed without any fault" in done.stderr


ODD = """
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
import lastgood

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.AdamW(model.parameters())
if sys.argv[1] == "unwatched":
    os._exit(0)
monitor = lastgood.watch(model, optimizer, run_dir="/nowhere", loss_fn=lambda m, x: m(x).sum(), replica_every=2)
if sys.argv[1] == "no-step":
    os._exit(0)
if sys.argv[1] == "hangs":
    time.sleep(10000)
for step in range(8):
    try:
        monitor.loss(torch.randn(3, 4)).backward()
        optimizer.step()
        optimizer.zero_grad()
    except lastgood.IntegrityError:
        time.sleep(10000)
monitor.close()
os._exit(0)
"""


def left_behind(script: Path) -> list[str]:
    """Return the command lines of processes that still run a script; those that are about to end get a moment."""
    for _ in range(50):
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
        found = [line.decode() for line in lines if str(script).encode() in line]
        if not found:
            break
        time.sleep(0.2)
    return found


@pytest.mark.parametrize(
    ("way", "limit", "words"),
    [
        ("unwatched", 200, "ended, and did not call lastgood.watch\n"),
        (
            "no-step",
            200,
            "called lastgood.watch, took no step and ended: a drill needs a few calls of optimizer.step()",
        ),
        ("hangs", 15, "without any fault: the run had not ended after 15 s, and was ended (--time-limit)"),
    ],
)
def test_a_script_that_cannot_be_drilled_is_said(way: str, limit: int, words: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ODD)
    done = drill("--script", str(script), "--time-limit", str(limit), "--ranks", "2", "--", way)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"lastgood drill: {script}" in done.stderr
    assert words in done.stderr
    assert not done.stderr.strip().endswith("its log ends with:")
    assert left_behind(script) == []


def test_a_run_that_hangs_under_a_fault_is_ended_and_the_next_fault_is_tried(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ODD)
    given = ["--script", str(script), "--ranks", "3", "--time-limit", "40", "--only", "reduced", "--json"]
    done = drill(*given, f"{tmp_path}/own.json", "--", "trains")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert done.stdout.count(" s, ended at its time limit") == 2, done.stdout
    told = json.loads((tmp_path / "own.json").read_text())
    assert [fault["ended_after"] for fault in told["faults"]] == [40, 40]
    assert [fault["checks"] for fault in told["faults"]] == [["conservation"], ["conservation"]]
    assert left_behind(script) == []


SHARDED = """
import os
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import lastgood

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 18), nn.ReLU(), nn.Linear(18, 6))
fully_shard(model[0])
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
every = dict(replica_every=2, state_every=2, replay_every=1)
monitor = lastgood.watch(model, optimizer, run_dir="/nowhere", loss_fn=lambda m, x: m(x).square().mean(), **every)
for step in range(10):
    torch.manual_seed(step * 10 + dist.get_rank())
    monitor.loss(torch.randn(4, 8)).backward()
    optimizer.step()
    optimizer.zero_grad()
monitor.close()
os._exit(0)
"""


def test_a_sharded_script_is_told_what_is_outside_reach(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SHARDED)
    done = drill("--script", str(script), "--only", "weight", "--json", f"{tmp_path}/own.json")
    gradient, weight = json.loads((tmp_path / "own.json").read_text())["faults"]
    assert (gradient["row"], gradient["result"], gradient["checks"]) == ("weight gradient", "found", ["replay"])
    assert gradient["accused"] == [gradient["rank"]]
    assert (weight["row"], weight["result"], weight["found"]) == ("weight", "outside", None)
    assert "no other rank holds the same part of" in weight["why_not"]
    assert "✗" not in done.stdout
    assert "○ 09-weight-mantissa-low-transient: outside reach" in done.stdout
    assert "every one inside reach of a check: 1 of 2" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
