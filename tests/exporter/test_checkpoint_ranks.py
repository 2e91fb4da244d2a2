"""Real jobs that save on four ranks and resume on two, in every format (checkpoint_job.py)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.tensor
from tests.app.checkpoint_cases import flip
from tests.exporter.ranks import run_ranks

from lastgood.checkpoint_verify import main as verify
from lastgood.checkpoints import read_record

SCRIPT = Path(__file__).with_name("checkpoint_job.py")
FORMATS = ("torch", "ranks", "dcp", "async", "safetensors")

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


def job(root: Path, cases: str, ranks: int) -> list[dict[str, Any]]:
    nodes = [f"node-{n}" for n in range(ranks)]
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    return [dict(lines) for lines in run_ranks(SCRIPT, [str(root), cases], nodes=nodes, environ=environ)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def saved(root: Path) -> list[dict[str, Any]]:
    """What was journaled of the saves, in the order they were complete."""
    told: list[dict[str, Any]] = job(root, "saving", 4)[0]["saving"]
    return told


@pytest.fixture(scope="module")
def resumed(root: Path, saved: Any) -> list[dict[str, list[Any]]]:
    """What each of two ranks says of the checkpoints of four."""
    return [rank["resuming"] for rank in job(root, "resuming", 2)]


def test_every_format_is_recorded_with_its_size_and_seconds(saved: list[dict[str, Any]]) -> None:
    told = {Path(e["path"]).name: e for e in saved}
    assert set(told) == set(FORMATS)
    for number, name in enumerate(FORMATS):
        save = told[name]
        assert (save["type"], save["step"], save["reason"]) == ("checkpoint.saved", 3 + number, None)
        assert save["bytes"] > 5_000
        assert save["seconds"] > 0
        assert len(save["fingerprint"]) == 32
    assert told["async"]["blocked_seconds"] > 0


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_on_disk_are_what_four_ranks_held(
    root: Path, saved: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify([str(root / "saving" / name)]) == 0, capsys.readouterr()
    record = read_record(root / "saving" / name)
    assert record is not None
    assert record["world_size"] == 4


@pytest.mark.parametrize("name", FORMATS)
def test_two_ranks_resume_from_what_four_ranks_saved(resumed: Any, name: str) -> None:
    for rank in resumed:
        assert rank[f"{name}-False"] == [3 + FORMATS.index(name), ""]


@pytest.mark.parametrize("name", FORMATS)
def test_a_bit_that_one_of_two_ranks_loaded_wrong_is_refused(resumed: Any, name: str) -> None:
    for rank in resumed:
        step, text = rank[f"{name}-True"]
        assert "does not hold what was saved" in text
        assert "on rank 1; it differs in last.weight." in text


@pytest.fixture(scope="module")
def saved_sharded(root: Path) -> Any:
    return job(root, "saving_sharded", 4)[0]["saving_sharded"]


@pytest.fixture(scope="module")
def resumed_sharded(root: Path, saved_sharded: Any) -> list[dict[str, list[Any]]]:
    return [rank["resuming_sharded"] for rank in job(root, "resuming_sharded", 2)]


@pytest.mark.parametrize("name", ["dcp", "async", "pieces", "hsdp", "placed", "placed-hsdp"])
def test_the_record_of_shards_is_that_of_whole_tensors(
    root: Path, saved_sharded: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saved_sharded == [["checkpoint.saved", 3]] * 6
    assert verify([str(root / "saving_sharded" / name)]) == 0, capsys.readouterr()


@pytest.mark.parametrize("name", ["placed", "placed-hsdp"])
def test_a_bit_in_the_piece_of_one_rank_is_found(
    root: Path, saved_sharded: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.copytree(root / "saving_sharded" / name, tmp_path / "copy")
    file = path / "rank-3.pt"
    piece = torch.load(file, weights_only=True)["model"]["middle.weight"]
    flip(file, piece.to_local())
    assert verify([str(path)]) == 1
    out = capsys.readouterr().out
    assert "  middle.weight differs" in out
    assert out.count("differs") == 1


@pytest.mark.parametrize("name", ["sharded", "ddp", "replicas"])
@pytest.mark.parametrize("saved", ["dcp", "async", "hsdp"])
def test_two_ranks_resume_from_the_shards_of_four(resumed_sharded: Any, saved: str, name: str) -> None:
    for rank in resumed_sharded:
        assert rank[f"{saved}-{name}-False"] == [3, ""]
        _, text = rank[f"{saved}-{name}-True"]
        assert "it differs in middle.weight." in text


def test_a_save_counts_when_the_last_rank_is_done_and_fails_when_one_fails(tmp_path: Path) -> None:
    results = job(tmp_path, "late,late_again", 2)[0]
    for result in (results["late"], results["late_again"]):
        assert result["seen"] == [False, True, False, False]
        assert [told[0] for told in result["told"]] == ["checkpoint.saved", "checkpoint.failed", "checkpoint.saved"]
        assert result["told"][1][2] == "rank 1: OSError: gone"


def test_a_save_that_one_rank_never_completes_delays_no_exit_and_is_given_up(tmp_path: Path) -> None:
    ranks = [rank["dying"] for rank in job(tmp_path, "dying", 2)]
    assert all(rank["took"] < 10 for rank in ranks), ranks
    assert ranks[0]["told"] == [["checkpoint.failed", "the attempt ended before the save was complete"]]


def test_the_examples_of_the_page_save_verify_and_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in job(tmp_path, "documented", 2):
        assert rank["documented"] == {"blocks": 6, "saved": 6, "steps": [1, 3]}
    for number in range(6):
        assert verify([str(tmp_path / "documented" / f"save-{number}")]) == 0, capsys.readouterr()
