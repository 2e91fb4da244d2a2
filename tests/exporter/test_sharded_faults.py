"""The injector under ``fully_shard``: a wrong gradient of one parameter, found by replay, or in no audited step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

SCRIPT = Path(__file__).with_name("sharded_fault_cases.py")
NAMES = (
    "once", "once_unaudited", "ever_since", "now_and_then", "in_the_group_of_the_model", "never", "without_anything",
    "wrapped_before_it_is_sharded",
)  # fmt: skip

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    arguments = [str(tmp_path_factory.mktemp("faults")), ",".join(NAMES)]
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    return [dict(lines) for lines in run_ranks(SCRIPT, arguments, nodes=("a", "b", "c"), environ=environ)]


def test_one_wrong_gradient_of_a_parameter_names_its_rank(ranks: list[dict[str, Any]]) -> None:
    for name in ("once", "in_the_group_of_the_model"):
        seen = ranks[0][name]
        assert [(step, rank, replay) for step, rank, _, replay in seen["injected"]] == [(4, 1, False)]
        assert seen["findings"] == [["replay", 4, [1]]]
        assert seen["accused"] == [[1]]


def test_a_step_that_is_not_audited_has_the_fault_and_no_finding(ranks: list[dict[str, Any]]) -> None:
    seen = ranks[0]["once_unaudited"]
    assert [row[0] for row in seen["injected"]] == [3]
    assert seen["findings"] == []
    assert seen["digest"] != ranks[0]["never"]["digest"]


@pytest.mark.parametrize("name", ["ever_since", "now_and_then"])
def test_a_fault_that_comes_again_is_there_in_training_and_in_replays(ranks: list[dict[str, Any]], name: str) -> None:
    seen = ranks[0][name]
    trained = [step for step, _, _, replay in seen["injected"] if not replay]
    assert len(trained) == len(set(trained)) >= 5, "once in a step"
    assert {rank for _, rank, _, _ in seen["injected"]} == {1}
    assert len({tensor for _, _, tensor, _ in seen["injected"]}) == 1
    assert any(replay for _, _, _, replay in seen["injected"])
    assert ["replay", 4, [1]] in seen["findings"]
    assert {rank for accused in seen["accused"] for rank in accused} == {1}


def test_an_injector_whose_step_never_comes_changes_no_bit(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["never"]["digest"] == rank["without_anything"]
        assert (rank["never"]["injected"], rank["never"]["findings"]) == ([], [])


def test_it_may_stand_there_before_the_model_is_sharded(ranks: list[dict[str, Any]]) -> None:
    assert [rank["wrapped_before_it_is_sharded"] for rank in ranks] == [1, 1, 1]
