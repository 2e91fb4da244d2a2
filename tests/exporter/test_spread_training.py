"""Real training that does not repeat itself, on three gloo ranks (spread_cases.py): numbers are compared, not bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

SCRIPT = Path(__file__).with_name("spread_cases.py")
NODES = ["node-a", "node-b", "node-c"]
ONLY = "the job is not deterministic: only loss and norms are compared, with the spread of its own repeats"
BROKEN = ["broken_later", "broken_from_the_start", "broken_once_in_an_audited_step"]

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw, by case."""
    root = tmp_path_factory.mktemp("spread")
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    return [dict(lines) for lines in run_ranks(SCRIPT, [str(root)], nodes=NODES, environ=environ)]


def pairs(finding: dict[str, Any]) -> list[list[int]]:
    return [[item["owner"], item["partner"]] for item in finding["evidence"] if item["kind"] == "spread"]


def test_a_clean_job_is_told_once_and_nothing_is_found(seen: list[dict[str, Any]]) -> None:
    clean = seen[0]["clean"]
    assert (clean["text"], clean["step"]) == ("", 240)
    assert clean["findings"] == clean["verdicts"] == []
    assert len(clean["said"]) == 1
    assert [rank["clean"]["said"] for rank in seen[1:]] == [[], []]


def test_its_rounds_go_on_at_the_cadence_and_read_not_run(seen: list[dict[str, Any]]) -> None:
    rounds = seen[0]["clean"]["rounds"]
    audits = [*range(20, 241, 20)]
    assert [r[0] for r in rounds] == sorted([1, 1, *audits, 100, 240])  # a save at 100, the end at 240
    assert {r[1] for r in rounds} == {"not_run"}
    assert {r[2] for r in rounds[1:]} == {f"{ONLY}; nothing lies outside"}


def test_a_comparison_with_nothing_outside_is_no_pass(seen: list[dict[str, Any]]) -> None:
    clean = seen[0]["clean"]
    assert clean["trust"] == [[100, "unverified", "not_run"]]
    running, reason, last_pass, due = clean["status"]
    assert (running, last_pass, due) == (False, -1, None)
    assert reason == ONLY
    for rank in seen:
        assert (rank["clean"]["passed"], rank["clean"]["cadence"]) == (None, None)


def test_all_ranks_agree_on_the_spread(seen: list[dict[str, Any]]) -> None:
    for case in ("clean", *BROKEN, "batches_that_spread_more_later", "other_kernels_on_every_node"):
        spreads = [rank[case]["spreads"] for rank in seen]
        assert spreads[0] == spreads[1] == spreads[2]
        assert spreads[0] is not None
        assert max(spreads[0]) < 1e-2


def test_the_journal_tells_readers_that_replay_proves_nothing(seen: list[dict[str, Any]]) -> None:
    (told,) = seen[0]["clean"]["told"]
    assert told["step"] == 1
    assert told["cadence"]["replay"] is None
    assert told["not_run"]["replay"] == ONLY


@pytest.mark.parametrize("case", BROKEN)
def test_a_fault_makes_a_suspicion_that_names_nobody(seen: list[dict[str, Any]], case: str) -> None:
    result = seen[0][case]
    assert result["text"] == ""  # policy stop does not stop for a suspicion
    assert {v["status"] for v in result["verdicts"]} == {"suspicious"}
    assert {v["action"] for v in result["verdicts"]} == {"record"}
    assert all(v["suspects"] == [] for v in result["verdicts"])
    assert {f["check"] for f in result["findings"]} == {"replay"}
    assert all(f["ranks"] == [] for f in result["findings"])


def test_a_permanent_fault_is_seen_in_every_round_and_in_both_pairs_of_its_rank(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["broken_later"]
    assert [f["step"] for f in result["findings"]] == [60, 80, 100, 120, 120]
    for finding, verdict in zip(result["findings"], result["verdicts"], strict=True):
        assert pairs(finding) == [[0, 1], [1, 2]]
        assert "All 2 pairs have rank 1 (node-b) in common." in verdict["for"]


def test_a_fault_from_the_first_step_on_does_not_hide_in_the_calibration(seen: list[dict[str, Any]]) -> None:
    findings = seen[0]["broken_from_the_start"]["findings"]
    assert [f["step"] for f in findings] == [1, 10]
    assert [pairs(f) for f in findings] == [[[1, 2], [2, 0]]] * 2


def test_a_fault_of_one_audited_step_is_seen_in_its_own_gradient(seen: list[dict[str, Any]]) -> None:
    (finding,) = seen[0]["broken_once_in_an_audited_step"]["findings"]
    assert finding["step"] == 40
    assert pairs(finding) == [[0, 1]]
    assert seen[0]["broken_once_in_another_step"]["findings"] == []


def test_the_evidence_has_the_tensor_both_values_and_the_spread(seen: list[dict[str, Any]]) -> None:
    (finding,) = seen[0]["broken_once_in_an_audited_step"]["findings"]
    (evidence,) = finding["evidence"]
    assert finding["tensor"] == evidence["tensor"] in ("first.weight", "first.bias")
    assert finding["observed"] == f"{evidence['owner_value']} on rank 0"
    assert finding["expected"] == f"{evidence['partner_value']}, as on rank 1"
    assert 0 <= evidence["spread"] < evidence["limit"] < 1e-2 < evidence["apart"] <= 1
    assert evidence["text"].startswith(f"For the gradient norm of {evidence['tensor']} rank 0 (node-a) got ")


def test_no_window_begins_after_a_comparison(seen: list[dict[str, Any]]) -> None:
    later = seen[0]["broken_later"]
    assert later["windows"] == [[0, step] for step in (60, 80, 100, 120, 120)]
    assert later["trust"] == [[30, "suspect", "not_run"]]


def test_a_deterministic_job_never_calibrates(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["deterministic"]
    assert result["spreads"] is None
    assert result["said"] == result["told"] == []
    assert {r[1] for r in result["rounds"]} == {"passed"}
    assert {rank["deterministic"]["passed"] for rank in seen} == {60}


def test_repeats_and_comparisons_leave_the_training_bitwise_as_it_was(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        result = rank["replays_differ_and_the_training_does_not"]
        assert result["equal"]
        assert result["spreads"] is not None, "else nothing was repeated"


def test_repeats_that_spread_too_much_are_said_and_nothing_is_compared(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["too_much_to_compare"]
    assert result["spreads"] is None
    assert len(result["rounds"]) == len(result["said"]) == 1
    assert "too much to compare anything" in result["status"][1]


def test_a_batch_that_spreads_more_than_the_first_widens_the_spread(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["batches_that_spread_more_later"]
    assert result["findings"] == []
    assert min(result["spreads"]) > 1e-4


def test_nodes_that_repeat_themselves_and_differ_are_no_finding(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["other_kernels_on_every_node"]
    assert result["findings"] == []
    assert min(result["spreads"]) > 5e-5


def test_a_rank_that_cannot_repeat_its_batch_ends_it_on_all_ranks(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["a_rank_that_cannot_repeat"]
    assert "rank 1: the micro-batch cannot be repeated" in result["status"][1]
    assert len(result["rounds"]) == 1
    assert [rank["a_rank_that_cannot_repeat"]["step"] for rank in seen] == [40] * 3


def test_rounding_of_a_type_that_only_the_loss_function_knows_is_no_finding(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["autocast_inside_the_loss"]
    assert result["findings"] == 0
    assert result["spreads"] is not None
    assert result["floor"] == 4 * 2**-7
    assert seen[0]["clean"]["floor"] == 1e-4


def test_accumulation_under_autocast_is_compared_with_its_own_rounding(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["accumulated_under_autocast"]
    assert result["findings"] == 0
    assert result["floor"] == 4 * 2**-7
    assert result["rounds"][1:] == [f"{ONLY}; nothing lies outside"] * 12


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the first rank of a job of two nodes saw, by case."""
    arguments = [str(tmp_path_factory.mktemp("two")), "clean,broken_later"]
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    return dict(run_ranks(SCRIPT, arguments, nodes=["node-a", "node-b"], environ=environ)[0])


def test_two_nodes_compare_numbers_as_well(two_nodes: dict[str, Any]) -> None:
    assert two_nodes["clean"]["findings"] == []
    assert {r[2] for r in two_nodes["clean"]["rounds"][1:]} == {f"{ONLY}; nothing lies outside"}
    findings = two_nodes["broken_later"]["findings"]
    assert [f["step"] for f in findings] == [60, 80, 100, 120, 120]
    assert [pairs(f) for f in findings] == [[[0, 1], [1, 0]]] * 5
    assert all(v["suspects"] == [] for v in two_nodes["broken_later"]["verdicts"])
