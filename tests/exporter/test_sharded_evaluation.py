"""Evaluations of sharded models on real gloo ranks (sharded_evaluation_cases.py): four, two that resume, six for HSDP.

An evaluation leaves weights gathered. Whatever is gathered, lastgood must read the shards, and leave it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

from lastgood.checkpoint_verify import main as verify
from lastgood.checkpoints import read_record

SCRIPT = Path(__file__).with_name("sharded_evaluation_cases.py")
WAYS = (
    "plain", "inferred", "kept_gathered", "kept_in_larger_shards", "one_group", "unsharded_by_the_loop", "offloaded",
    "replicated", "replicated_and_kept", "tensor_parallel",
)  # fmt: skip
OTHERS = ("wrong_bits_at_rest", "replays_that_fail")
CHECKS = {"finite", "conservation", "replica", "replay", "at_rest"}
PARALLEL = {"replay": "the model is parallel over more than its batches"}
NOTHING = ["replica", "gather", "not_run", "nothing was gathered, or a rank could not look"]
"""Where the evaluation before ``watch`` has gathered all that the first step needs."""

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


def run(root: Path, names: Iterable[str], ranks: int) -> list[dict[str, Any]]:
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    nodes = [f"node-{letter}" for letter in "abcdef"[:ranks]]
    arguments = [str(root), ",".join(names)]
    return [dict(lines) for lines in run_ranks(SCRIPT, arguments, nodes=nodes, environ=environ, timeout=600)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluated")


@pytest.fixture(scope="module")
def of_four(root: Path) -> list[dict[str, Any]]:
    return run(root, (*WAYS, *OTHERS), 4)


@pytest.fixture(scope="module")
def resumed(root: Path, of_four: Any) -> list[dict[str, list[Any]]]:
    """What each of two ranks says of what four had saved."""
    return [rank["resuming"] for rank in run(root, ["resuming"], 2)]


@pytest.fixture(scope="module")
def of_six(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    shards: dict[str, Any] = run(tmp_path_factory.mktemp("wrong"), ["wrong_shards"], 6)[0]["wrong_shards"]
    return shards


@pytest.mark.parametrize("name", WAYS)
def test_evaluations_between_all_steps_change_nothing(of_four: list[dict[str, Any]], name: str) -> None:
    """The same bits as without lastgood, no finding, every check passes, and what is gathered stays so over a save."""
    for rank in of_four:
        result = rank[name]
        assert (result["equal"], result["findings"]) == (True, [])
        assert result["not_run"] == (PARALLEL if name == "tensor_parallel" else {})
        assert set(result["passed"]) == CHECKS - set(result["not_run"])
        assert result["failed"] in ([], [NOTHING])
        assert (result["passed"]["at_rest"], result["rests"]) == (8, 3)
        before, after = result["states"]
        assert before == after
        assert set(before) != {"SHARDED"}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("saved", ["save", "async"])
def test_the_record_of_a_save_after_an_evaluation_is_that_without_it(
    root: Path, of_four: Any, name: str, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert of_four[0][name]["saved"] == [["checkpoint.saved", "save"], ["checkpoint.saved", "async"]]
    record, plain = (read_record(path / saved) for path in (root / name, root / name / "never"))
    assert record is not None
    assert plain is not None
    for part in ("fingerprint", "model", "optimizer", "buffers"):
        assert record[part] == plain[part], part
    assert {"last.weight/exp_avg", "first.bias/step"} <= set(record["optimizer"])
    assert verify([str(root / name / saved)]) == 0, capsys.readouterr()


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("saved", ["save", "async"])
def test_two_ranks_resume_after_an_evaluation(resumed: list[dict[str, Any]], name: str, saved: str) -> None:
    for rank in resumed:
        assert rank[f"{name}-{saved}-False"] == [6, ""]
        _, text = rank[f"{name}-{saved}-True"]
        assert "it differs in middle.weight." in text


@pytest.mark.parametrize("how", ["resharded", "kept"])
@pytest.mark.parametrize("phase", ["loop", "save", "close"])
def test_one_wrong_shard_of_replicas_names_its_rank_after_an_evaluation_too(
    of_six: dict[str, Any], phase: str, how: str
) -> None:
    without, after = (of_six[f"{phase}-{how}-{between}"] for between in ("untouched", "evaluated"))
    assert (after["findings"], after["verdicts"]) == (without["findings"], without["verdicts"])
    step = {"loop": 4, "save": 6, "close": 9}[phase]
    assert [found[:4] for found in after["findings"]] == [["replica", "state" if phase == "loop" else phase, step, [1]]]
    assert after["findings"][0][4] == "last.weight"
    assert after["verdicts"] == [["attributed", [1]]]


def test_a_bit_of_a_shard_that_changes_at_rest_names_its_rank(of_four: list[dict[str, Any]]) -> None:
    result = of_four[0]["wrong_bits_at_rest"]
    assert result["findings"] == [["at_rest", "loop", 6, [1], "last.weight"]]
    assert result["verdicts"] == [["attributed", [1]]]


@pytest.mark.parametrize("name", ["plain", "kept_gathered", "kept_in_larger_shards"])
def test_a_replay_that_fails_on_one_rank_keeps_nobody_waiting(of_four: list[dict[str, Any]], name: str) -> None:
    """After every other step there was an evaluation, so the steps gather in other orders than the replays."""
    for rank in of_four:
        unwatched, watched = rank["replays_that_fail"][name]
        assert watched["digest"] == unwatched["digest"]
        assert (watched["text"], watched["findings"]) == ("", [])
        reason = "rank 1: the replay failed (RuntimeError)"
        assert watched["rounds"] == [[phase, "not_run", reason] for phase in ("audit", "close", "first")]
