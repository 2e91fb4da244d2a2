"""What happens to the other ranks of a real gloo job when one is lost. The table of all lines: test_no_harm.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import free_port
from tests.exporter.test_no_harm import said_by

from lastgood.fold import derive
from lastgood.journal_read import read_run

SCRIPT = Path(__file__).with_name("no_harm_ranks.py")
GROUP_SECONDS = 5.0

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


def ranks_of(what: str, root: Path, size: int, lost: int | None = None) -> list[tuple[int, list[dict[str, Any]], str]]:
    """Run ``size`` ranks; return code, lines and errors of each. Rank ``lost`` is killed when the others have ended."""
    port, processes = free_port(), []
    for rank in range(size):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "MASTER_PORT": str(port)}
        env |= {"MASTER_ADDR": "127.0.0.1", "LASTGOOD_NODE": f"node-{rank}", "LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
        command = [sys.executable, "-W", "ignore::FutureWarning", str(SCRIPT), str(root), what]
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    found = {}
    try:
        for rank, process in sorted(enumerate(processes), key=lambda each: each[0] == lost):
            if rank == lost:
                process.kill()
            out, errors = process.communicate(timeout=200)
            found[rank] = (process.returncode, said_by(out), errors)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return [found[rank] for rank in range(size)]


def left_behind(what: str, root: Path) -> dict[str, Any]:
    """Return what rank 0 saw after rank 1 had stopped."""
    code, said, errors = ranks_of(what, root, 2, lost=1)[0]
    assert code == 0, errors
    return said[0]


def test_a_rank_that_stops_in_the_loop_is_the_jobs_own_time_out_and_no_wait_of_ours(tmp_path: Path) -> None:
    seen = left_behind("a_rank_that_stops", tmp_path)
    assert seen["raised"], "the job's own collective gives up, and its exception is the user's"
    assert len(seen["failed"]) >= 2
    assert sum(seen["failed"]) < 0.8 * GROUP_SECONDS, "what the checks ask for after that fails at once"
    assert seen["saved"]


def test_a_rank_that_stops_before_a_save_is_waited_for_once_and_no_longer_than_the_group_does(tmp_path: Path) -> None:
    seen = left_behind("a_rank_that_stops_before_a_save", tmp_path)
    assert not seen["raised"]
    assert len(seen["failed"]) >= 2
    assert 0.8 * GROUP_SECONDS < sum(seen["failed"]) < 1.8 * GROUP_SECONDS
    assert seen["saved"]


def test_a_rank_that_dies_in_a_save_is_said_and_nothing_counts_as_saved(tmp_path: Path) -> None:
    (code, said, errors), (killed, _, _) = ranks_of("a_rank_that_dies_in_a_save", tmp_path, 2)
    assert (code, killed) == (0, -signal.SIGKILL), errors
    assert len(said) == 1
    events, unreadable = read_run(tmp_path / "run")
    state = derive("run", events)
    assert not unreadable
    assert (state.checkpoints, state.findings) == ((), ())
    assert [save.reason for save in state.failed_saves] == ["a rank was lost during the save"]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the ranks of a job saw that goes through several things."""
    ranks = ranks_of("together", tmp_path_factory.mktemp("together"), 2)
    assert [code for code, _, _ in ranks] == [0, 0], [errors for _, _, errors in ranks]
    return [said[0] for _, said, _ in ranks]


def test_a_model_that_is_watched_twice_is_trained_as_without(together: list[dict[str, Any]]) -> None:
    assert [rank["twice"]["weights"] for rank in together] == [together[0]["plain"]] * 2
    assert [rank["twice"]["step"] for rank in together] == [8, 8]


def test_a_loss_that_raises_in_a_replay_is_not_run_and_never_the_users_exception(
    together: list[dict[str, Any]],
) -> None:
    for rank in together:
        assert (rank["raising"]["weights"], rank["raising"]["step"]) == (rank["plain"], 8)
        assert "replay" not in rank["raising"]["passed"]
    assert any("replay did not run" in text for text in together[0]["raising said"])
