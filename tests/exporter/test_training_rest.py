"""at_rest on three gloo ranks (training_cases_rest.py): what is found, whom it names, what is no finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

SCRIPT = Path(__file__).with_name("training_cases.py")
NAMES = (
    "at_rest_clean,at_rest_weight,at_rest_moment,at_rest_stops,at_rest_everywhere,at_rest_written_on_purpose,"
    "at_rest_off,at_rest_changes_nothing,a_moment_that_weights_do_not_show"
)

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("rest")
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    nodes = ["node-a", "node-b", "node-c"]
    ranks = [dict(lines) for lines in run_ranks(SCRIPT, [str(root), NAMES], nodes=nodes, environ=environ)]
    return ranks[0]


def test_a_clean_run_passes_at_every_second_step(seen: dict[str, Any]) -> None:
    clean = seen["at_rest_clean"]
    assert [(phase, step, result) for phase, step, result, _ in clean["rounds"]] == [
        ("loop", step, "passed") for step in (1, 3, 5, 7)
    ]
    assert clean["findings"] == []


@pytest.mark.parametrize(
    ("case", "tensor"), [("at_rest_weight", "0.weight"), ("at_rest_moment", "0.weight/exp_avg_sq")]
)
def test_one_bit_of_one_rank_names_that_rank_and_the_tensor(seen: dict[str, Any], case: str, tensor: str) -> None:
    found = seen[case]
    assert found["findings"] == [["at_rest", 6, 5, [1], tensor]]
    assert found["verdicts"] == [["attributed", [1], "record"]]
    assert found["rounds"][2] == ["loop", 5, "failed", [{"rank": 1, "result": "failed", "reason": ""}]]
    ((window, headline),) = found["incident"]
    assert window == [3, 5]
    assert "Rank 1" in headline
    assert "had bits change while nobody wrote them" in headline


def test_it_stops_training_where_the_policy_says_so(seen: dict[str, Any]) -> None:
    kind, words = seen["at_rest_stops"]
    assert kind == "IntegrityError"
    assert "Rank 1 (node-b, slot 0) had bits change" in words


def test_what_all_ranks_do_is_code_and_accuses_nobody(seen: dict[str, Any]) -> None:
    assert seen["at_rest_everywhere"]["verdicts"] == [["suspicious", [], "record"]]


def test_a_recorded_write_is_no_finding(seen: dict[str, Any]) -> None:
    assert seen["at_rest_written_on_purpose"]["findings"] == []


def test_switched_off_it_looks_at_nothing(seen: dict[str, Any]) -> None:
    assert (seen["at_rest_off"]["rounds"], seen["at_rest_off"]["findings"]) == ([], [])


def test_looking_changes_nothing(seen: dict[str, Any]) -> None:
    assert seen["at_rest_changes_nothing"]["equal"]


def test_a_moment_that_no_weight_shows_is_found_by_the_loops_own_look_at_the_state(seen: dict[str, Any]) -> None:
    without, watched = seen["a_moment_that_weights_do_not_show"]
    assert without["rounds"] == ["loop"] * 7
    assert watched["rounds"] == ["loop"] * 3 + ["state"] + ["loop"] * 3
    assert watched["findings"] == [["state", 4, [1], "0.weight/exp_avg_sq"]]
    assert without["findings"] == [] or without["findings"][0][1] > 4  # the weights come apart later, if they do
    assert watched["window"] == [0, 3]
