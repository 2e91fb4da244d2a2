"""Real training with a budget on three gloo ranks (budget_cases.py): all of them go on with the same cadences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

from lastgood.budget import LONGEST

SCRIPT = Path(__file__).with_name("budget_cases.py")
CONFIGURED = {"finite": 1, "conservation": 1, "replica": 2, "replay": 4, "at_rest": 3, "state": 8}
STRETCHED = {"finite": 1, "conservation": 1} | {
    check: LONGEST * CONFIGURED[check] for check in ("replica", "replay", "at_rest", "state")
}

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw, by case."""
    root = tmp_path_factory.mktemp("budget")
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    return [dict(lines) for lines in run_ranks(SCRIPT, [str(root)], nodes=["a", "b", "c"], environ=environ)]


def test_a_tight_budget_stretches_the_cadences_of_all_ranks_alike(seen: list[dict[str, Any]]) -> None:
    assert [rank["tight"]["cadence"] for rank in seen] == [STRETCHED] * 3


def test_the_checks_then_run_at_the_stretched_cadences_and_find_nothing(seen: list[dict[str, Any]]) -> None:
    tight = seen[0]["tight"]
    assert tight["rounds"]["replica"] == [1, *range(2, 21, 2), 32]
    assert tight["rounds"]["replay"] == [1, 4, 8, 12, 16, 20]
    assert tight["rounds"]["at_rest"] == [3, 6, 9, 12, 15, 18, 48]
    assert {rank[case]["findings"] for rank in seen for case in rank} == {0}


def test_a_change_is_journaled_once_and_the_ledger_goes_by_it(seen: list[dict[str, Any]]) -> None:
    tight = seen[0]["tight"]
    (told,) = tight["told"]
    assert (told["step"], told["rank"], told["state_every"]) == (20, 0, STRETCHED["state"])
    assert told["cadence"] == {check: every for check, every in STRETCHED.items() if check != "state"}
    assert told["share"] > told["budget"] == 1e-6
    assert tight["due"]["replay"] == [64, 20 + 3 * 64]
    assert tight["due"]["at_rest"] == [48, 47 + 3 * 48]


def test_that_no_cadence_can_keep_to_it_is_said_once_by_one_rank(seen: list[dict[str, Any]]) -> None:
    (said,) = [text for rank in seen for text in rank["tight"]["said"]]
    assert "budget=1e-06: the checks of every step alone take" in said


@pytest.mark.parametrize("case", ["wide", "without"])
def test_a_wide_budget_and_none_keep_what_is_configured(seen: list[dict[str, Any]], case: str) -> None:
    assert [rank[case]["cadence"] for rank in seen] == [CONFIGURED] * 3
    assert seen[0][case]["told"] == []
    assert all(0 < rank[case]["share"] < 1 for rank in seen)


def test_what_one_rank_alone_measures_stretches_all_of_them(seen: list[dict[str, Any]]) -> None:
    cadences = [rank["dear_on_one_rank"]["cadence"] for rank in seen]
    assert cadences[0] == cadences[1] == cadences[2] == STRETCHED


def test_a_budget_changes_no_weight(seen: list[dict[str, Any]]) -> None:
    assert len({rank[case]["weights"] for rank in seen for case in rank}) == 1


def test_progress_says_what_the_checks_cost_and_how_the_norms_of_the_ranks_lie(seen: list[dict[str, Any]]) -> None:
    (told,) = seen[0]["without"]["progress"]
    assert told["check_share"] > 0
    low, middle, high = told["grad_norm"]
    assert 0 < low <= middle <= high
