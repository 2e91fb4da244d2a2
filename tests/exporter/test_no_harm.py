"""What lastgood can never do to a job, one real process per line, and where each line has its test.

| line | test |
|---|---|
| NVML absent | test_devices: a_missing_library_says_what_to_install_once; test_device_training: `off` |
| NVML hanging | test_device_training: `hang`, `hang at once` |
| NVML raising | test_device_training: `lost`, `flaky`; test_devices: whatever_a_library_raises_is_counted_once |
| port range exhausted | here: ports_that_are_all_taken; test_endpoint: without_a_free_port |
| disk full | here: a_disk_that_fills_up (a real one, see `disk`); test_journal: a_full_disk, a_device_without_space |
| disk read-only | here: a_disk_that_cannot_be_written |
| disk slow | here: a_disk_that_blocks (the journal's file is a full pipe); test_background |
| journal deleted while running | here: a_run_directory_that_is_deleted |
| SIGTERM, SIGINT, kill -9, a handler of the user's, in the loop and in a save | test_no_harm_ends |
| exit during a save | test_no_harm_ends: an_exit_in_a_save; test_no_harm_ranks: a_rank_that_dies_in_a_save |
| fork and spawn data-loader workers | here: data_loader_workers; test_endpoint, test_push, test_devices: forked |
| a child that the user forks | here: a_child_that_ends_as_python_does |
| a second `watch` in one process | here: a_second_watch; test_no_harm_ranks: a_model_that_is_watched_twice |
| exceptions of `loss_fn` pass through | here: an_exception_of_the_loss; test_no_harm_ranks: raises_in_a_replay |
| exit delayed by a second at most, targets dead | test_no_harm_ends: dead_targets; test_push_training: hang |
| memory flat over 5,000 steps | here: memory_stays_flat |
| a rank that stops answering | test_no_harm_ranks: a_rank_that_stops |

docs/no-harm.md is the same table for users. The weights are compared bit for bit with those of the same steps without
lastgood.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lastgood.journal_read import read_run

SCRIPT = Path(__file__).with_name("no_harm_job.py")
STEPS = 20

pytestmark = pytest.mark.slow


def ran(what: str, run_dir: Path, *arguments: str, disk: str = "") -> dict[str, Any]:
    """Run one job to its end and return what it saw. ``disk``: options of a file system of its own below its folder."""
    return said_by(output_of(what, run_dir, *arguments, disk=disk))[-1]


def output_of(what: str, run_dir: Path, *arguments: str, disk: str = "") -> str:
    command = [sys.executable, str(SCRIPT), what, str(run_dir), *arguments]
    if disk:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        mount = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'
        command = [*NAMESPACE, "sh", "-c", mount, "sh", disk, str(run_dir.parent), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def said_by(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[1:]) for line in text.splitlines() if line.startswith("@")]


NAMESPACE: Sequence[str] = ("unshare", "--map-root-user", "--mount")
"""What gives a job a file system of its own that is gone with it."""


@pytest.fixture(scope="module")
def disk() -> None:
    """Skip where this machine lets nobody mount a file system in a namespace of its own."""
    probe = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no mount namespaces here: {probe.stderr.decode().strip()}")


IN_ONE_PROCESS = ("nothing", "no_port", "blocked_disk", "deleted_journal", "watched_twice", "two_models",
                  "raising_loss", "forked_child")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where those that share a process have their run directories."""
    return tmp_path_factory.mktemp("no-harm")


@pytest.fixture(scope="module")
def seen(folder: Path) -> dict[str, dict[str, Any]]:
    """What those that share a process saw, by name."""
    return {lines["what"]: lines for lines in said_by(output_of(",".join(IN_ONE_PROCESS), folder))}


@pytest.fixture(scope="module")
def plain(seen: dict[str, dict[str, Any]]) -> str:
    """The weights of the same steps without lastgood."""
    return str(seen["nothing"]["weights"])


@pytest.fixture(scope="module", params=["fork", "spawn"])
def worked(request: pytest.FixtureRequest, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The run directory of a job with data-loader workers, and what it saw."""
    run_dir = folder / request.param
    return run_dir, ran("workers", run_dir, request.param)


def ends(run_dir: Path) -> list[str]:
    events, unreadable = read_run(run_dir)
    assert not unreadable
    return [event.data["reason"] for event in events if event.type == "run.ended"]


def test_ports_that_are_all_taken_cost_one_warning_and_the_endpoint(plain: str, seen: dict[str, Any]) -> None:
    job = seen["no_port"]
    assert (job["weights"], job["steps"]) == (plain, STEPS)
    assert (job["errors"], job["port"]) == (1.0, None)


@pytest.mark.usefixtures("disk")
def test_a_disk_that_fills_up_costs_one_warning_and_no_line(plain: str, tmp_path: Path) -> None:
    seen = ran("full_disk", tmp_path / "disk" / "run", disk="size=64k")
    assert (seen["weights"], seen["steps"]) == (plain, STEPS)
    assert seen["while_full"] > 0
    assert seen["rounds"] == list(range(1, STEPS + 1)), "what could not be written is written when there is room"
    (said,) = seen["said"]
    assert "training goes on" in said


@pytest.mark.usefixtures("disk")
def test_a_disk_that_cannot_be_written_costs_one_warning_and_the_journal(plain: str, tmp_path: Path) -> None:
    seen = ran("unwritable", tmp_path / "disk" / "run", disk="ro")
    assert (seen["weights"], seen["steps"], seen["errors"]) == (plain, STEPS, 1.0)
    (said,) = seen["said"]
    assert "Read-only file system" in said
    assert "Training goes on" in said


def test_a_disk_that_blocks_keeps_no_step_waiting_and_the_end_a_second(plain: str, seen: dict[str, Any]) -> None:
    job = seen["blocked_disk"]
    assert job["blocked"], "all steps were done while the first write still waited"
    assert (job["weights"], job["steps"]) == (plain, STEPS)
    assert job["errors"] >= 1
    assert job["closed_in"] < 5.0, "the disk answers only after the end: who waited for it would wait for ever"
    (said,) = job["said"]
    assert "training goes on" in said


def test_a_run_directory_that_is_deleted_is_begun_anew(plain: str, seen: dict[str, Any]) -> None:
    job = seen["deleted_journal"]
    assert (job["weights"], job["steps"], job["errors"]) == (plain, STEPS, 1.0)
    assert job["rounds"] == list(range(11, STEPS + 1))
    (said,) = job["said"]
    assert "was deleted" in said


def test_data_loader_workers_neither_write_nor_end_anything(worked: tuple[Path, dict[str, Any]]) -> None:
    run_dir, job = worked
    assert (job["steps"], job["errors"], job["said"]) == (STEPS, [0.0] * 4, [])
    assert ends(run_dir) == ["completed"]
    assert {path.name.split(".")[0] for path in (run_dir / "journal" / "000001").iterdir()} == {"rank-00000"}


def test_a_child_that_ends_as_python_does_leaves_its_parents_run_alone(seen: dict[str, Any], folder: Path) -> None:
    job = seen["forked_child"]
    assert (job["code"], job["steps"]) == (7, 10)
    assert ends(folder / "forked_child") == ["completed"]


def test_a_second_watch_of_one_model_changes_no_weight(plain: str, seen: dict[str, Any]) -> None:
    job = seen["watched_twice"]
    assert (job["weights"], job["steps"], job["attempt"]) == (plain, STEPS, 2)


def test_a_second_watch_in_one_process_is_a_run_of_its_own(plain: str, seen: dict[str, Any], folder: Path) -> None:
    job = seen["two_models"]
    assert (job["weights"], job["other"]["weights"]) == (plain, plain)
    assert len(set(job["ports"])) == 2
    assert [ends(folder / "two_models" / name) for name in ("a", "b")] == [["completed"]] * 2


def test_an_exception_of_the_loss_passes_through_unchanged_and_the_loop_may_go_on(
    plain: str, seen: dict[str, Any]
) -> None:
    job = seen["raising_loss"]
    assert (job["same"], job["chained"], job["raised_in"]) == (True, False, "sometimes")
    assert (job["weights"], job["steps"], job["errors"], job["said"]) == (plain, STEPS, 0.0, [])


def test_memory_stays_flat_over_5000_steps(tmp_path: Path) -> None:
    seen = ran("memory", tmp_path / "run")
    assert seen["steps"] == 5000
    grown = seen["objects"][4] - seen["objects"][1]
    assert grown < 1000, "one object kept in each of these 3,000 steps would be 3,000"
    assert seen["bytes"][4] - seen["bytes"][1] < 8 << 20
