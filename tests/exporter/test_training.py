"""Real training on three gloo ranks (training_cases.py): one job runs all cases, each test reads one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

SCRIPT = Path(__file__).with_name("training_cases.py")
NODES = ["node-a", "node-b", "node-c"]

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw, by case."""
    root = tmp_path_factory.mktemp("training")
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    return [dict(lines) for lines in run_ranks(SCRIPT, [str(root)], nodes=NODES, environ=environ)]


def test_weights_state_and_buffers_are_bitwise_the_same_with_and_without(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        assert rank["same_weights_with_and_without"]["equal"]


def test_every_check_of_that_run_ran_and_passed(seen: list[dict[str, Any]]) -> None:
    checks = [tuple(c) for c in seen[0]["same_weights_with_and_without"]["checks"]]
    wanted = {("replica", "loop"), ("replay", "first"), ("replay", "audit"), ("replica", "close"), ("replay", "close")}
    assert {c[:2] for c in checks} == wanted
    assert {c[2] for c in checks} == {"passed"}


def test_a_users_own_hook_keeps_its_result_and_only_conservation_does_not_run(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["a_users_own_hook"]
    assert result["equal"]
    assert set(result["not_run"]) == {"conservation"}
    assert {tuple(c) for c in result["checks"]} == {("replica", "passed"), ("replay", "passed")}


def test_a_nan_is_attributed_under_a_users_own_hook_too(seen: list[dict[str, Any]]) -> None:
    assert "Rank 1 (node-b, slot 0)" in seen[0]["a_users_own_hook_and_nan"]


def test_a_skipped_step_leaves_weights_and_state_bitwise(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        result = rank["skip_leaves_everything_bitwise"]
        assert result["equal"]
        assert result["zero_grad_ran"]
        assert result["moved"], "the step after it must train again"


def test_a_skipped_step_counts_and_its_finding_is_contained(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["skip_leaves_everything_bitwise"]
    assert result["step"] == 4
    assert result["verdicts"] == [["attributed", "skip"]]
    assert ["finite", "local", True] in result["findings"]
    assert ["replay", "immediate", False] in result["findings"]


def test_every_rank_raises_the_same_integrity_error(seen: list[dict[str, Any]]) -> None:
    texts = {rank["everyone_raises_the_same"]["text"] for rank in seen}
    assert len(texts) == 1
    assert "Rank 2 (node-c" in texts.pop()


def test_the_stop_is_journaled_and_the_finding_has_two_writers(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["everyone_raises_the_same"]
    assert result["ended"] == [["integrity", 4]]
    assert result["writers"] == [0, 2]
    assert result["finding"]["ranks"] == [2]
    assert any(item["kind"] == "peers" for item in result["finding"]["evidence"])


def test_a_batch_that_cannot_be_pickled_is_not_run_on_all_ranks(seen: list[dict[str, Any]]) -> None:
    rounds = seen[0]["a_batch_that_cannot_be_pickled"]
    assert {r[1] for r in rounds} == {"not_run"}
    assert all("cannot be pickled" in r[2] for r in rounds)


def test_running_out_of_memory_in_a_replay_is_not_run_on_all_ranks(seen: list[dict[str, Any]]) -> None:
    rounds = seen[0]["out_of_memory_in_a_replay"]
    assert {r[1] for r in rounds} == {"not_run"}
    assert all("rank 1" in r[2] for r in rounds)


def test_a_replay_leaves_gradients_weights_buffers_and_generators_alone(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        assert rank["a_replay_leaves_no_trace"] == {"ran": True, "disputes": 0, "same": True}


def test_a_rank_that_does_not_enter_the_save_is_named_by_one_rank(seen: list[dict[str, Any]]) -> None:
    warned = [rank["a_rank_that_comes_late_to_a_save"]["warned"] for rank in seen]
    assert "for rank 2" in warned[0][0]
    assert warned[1:] == [[], []]
    assert seen[0]["a_rank_that_comes_late_to_a_save"]["saved"] == 1


def test_a_resume_verifies_the_bytes_and_journals_the_parent(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["resume_what_was_saved"]
    assert result["text"] == ""
    assert result["loaded"] == [[3, "checkpoint", {"fingerprint": "passed"}]]
    assert result["started"][1] == [3, {"attempt": 1, "step": 3, "path": "checkpoint"}, True]


def test_a_changed_weight_is_refused_on_all_ranks_with_both_fingerprints(seen: list[dict[str, Any]]) -> None:
    texts = {rank["resume_what_was_changed"] for rank in seen}
    assert len(texts) == 1
    text = texts.pop()
    assert "last.weight" in text
    assert "on rank 1" in text
    assert "stored fingerprint" in text


def test_a_rank_with_another_thread_count_has_no_partner_and_accuses_nobody(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["another_thread_count_accuses_nobody"]
    assert result == {"findings": 0, "left_out": [1], "rounds": 3}


def test_a_job_that_does_not_repeat_itself_proves_nothing_and_accuses_nobody(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["a_job_that_does_not_repeat_itself"]
    assert result["findings"] == 0
    assert {r[0] for r in result["rounds"]} == {"not_run"}
    assert all("the job is not deterministic" in r[1] for r in result["rounds"])
    assert len(result["said"]) == 1


def test_policy_record_lets_training_go_on(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["record_only_records"]
    assert result["text"] == ""
    assert result["actions"] == ["record"]
    assert ["conservation", False, [1]] in result["findings"]


def test_replicas_that_differ_are_not_replayed(seen: list[dict[str, Any]]) -> None:
    assert {f[0] for f in seen[0]["record_only_records"]["findings"]} == {"conservation", "replica"}


def test_the_audit_after_an_immediate_replay_reads_its_own_steps_gradient(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["a_nan_in_an_audited_step_that_is_recorded"]
    assert result["not_run"] == ""
    assert ["audit", 2] in [r[:2] for r in result["rounds"]]
    assert all(r[2] in ("passed", "failed") for r in result["rounds"])


def test_what_the_sum_hides_is_seen_by_the_flag_one_step_later(seen: list[dict[str, Any]]) -> None:
    assert ["conservation", "flag", 23, [1]] in seen[0]["too_little_to_be_seen_in_the_sum"]


def test_infinities_of_a_loss_scaler_are_counted_and_no_finding(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["autocast_and_a_scaler"]
    assert result["step"] == 6
    assert result["findings"] == 0
    assert 0 < result["skipped"] < 6
    assert {r[1] for r in result["replays"]} == {"passed"}


def test_one_decision_guards_all_optimizers(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["two_optimizers_and_one_decision"] == {"unchanged": [False, True, False], "step": 3}


def test_a_nested_backward_is_judged_once_and_left_as_it_is(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["a_nested_backward"]
    assert result["equal"]
    assert result["findings"] == 0
    assert ["replica", "passed"] in result["checks"]


def test_buffers_of_each_rank_travel_with_its_batch(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["buffers_that_the_forward_needs"] == {"True": [0, ["passed"], 4], "False": [0, ["passed"], 4]}


def test_a_loss_fn_may_write_into_its_batch(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["a_loss_fn_that_writes_into_its_batch"] == {"findings": 0, "replays": ["passed"]}


def test_a_batch_that_is_written_later_accuses_nobody(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["a_batch_that_is_written_after_the_loss"] == {"findings": 0}


def test_gradients_that_lose_digits_below_the_normal_range_are_no_finding(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["gradients_below_the_normal_range"] == {"findings": 0}


def test_parameters_of_each_rank_are_not_compared(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["parameters_that_the_wrapper_ignores"] == {"findings": 0, "not_run": ["replay"]}


def test_a_resume_that_differs_between_ranks_is_refused_on_all_of_them(seen: list[dict[str, Any]]) -> None:
    results = [rank["resume_on_some_ranks_only"] for rank in seen]
    assert results[0] == results[1] == results[2]
    assert "rank 0: " in results[0][0]
    assert "different checkpoints" in results[0][1]


def test_ranks_at_different_steps_are_told_so_and_check_nothing(seen: list[dict[str, Any]]) -> None:
    assert len(seen[0]["ranks_at_different_steps"]) == 1


def test_warnings_that_are_errors_do_not_stop_training(seen: list[dict[str, Any]]) -> None:
    assert [rank["warnings_that_are_errors"] for rank in seen] == [5, 5, 5]


def test_sparse_gradients_leave_conservation_out_and_training_alone(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["sparse_gradients"]
    assert (result["equal"], result["findings"]) == (True, 0)
    assert result["ran"]["conservation"] == 0
    assert result["ran"]["replica"] > 0


def test_other_arithmetic_on_a_rank_is_another_environment(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["other_arithmetic_on_one_rank"] == {"findings": 0, "keys": 3}


def test_a_loss_fn_that_communicates_is_not_replayed(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["a_loss_fn_that_communicates"]
    assert result["findings"] == 0
    assert result["rounds"] == [["not_run", "loss_fn communicates with other ranks"]]


def test_a_rank_in_evaluation_mode_at_the_end_accuses_nobody(seen: list[dict[str, Any]]) -> None:
    results = [rank["another_mode_at_the_end"] for rank in seen]
    assert [r["findings"] for r in results] == [0, 0, 0]
    assert [r["training"] for r in results] == [False, True, True]


def test_an_autocast_region_around_the_loop_keeps_its_cache(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["autocast_around_the_loop"] == {"equal": True, "findings": 0}


def test_uneven_inputs_train_to_the_end(seen: list[dict[str, Any]]) -> None:
    assert [rank["uneven_inputs"] for rank in seen] == [3, 4, 5]


def test_uneven_inputs_train_to_the_end_under_a_users_own_hook(seen: list[dict[str, Any]]) -> None:
    assert [rank["uneven_inputs_under_a_users_own_hook"] for rank in seen] == [3, 4, 5]


def test_complex_parameters_are_trained_as_without(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["complex_parameters"] == {"equal": True, "findings": 0}


def test_a_nan_that_lbfgs_took_in_is_not_contained(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["lbfgs_takes_the_nan_in"] == {"stopped": True, "contained": [False]}


def test_a_rank_that_forgets_to_resume_is_named(seen: list[dict[str, Any]]) -> None:
    assert "for rank 2" in seen[0]["a_rank_that_forgets_to_resume"][0]


def test_a_close_inside_a_handler_that_was_there_before_is_no_crash(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["close_inside_a_handler"] == [["completed", 0]]


def test_two_thousand_clean_steps_have_no_finding(tmp_path: Path) -> None:
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    lines = run_ranks(SCRIPT, [str(tmp_path), "a_clean_run", "2000"], nodes=NODES, environ=environ)
    result = dict(lines[0])["a_clean_run"]
    assert result["findings"] == 0
    assert result["runs"]["finite"] == result["runs"]["conservation"] == 2000
    assert result["runs"]["replica"] >= 40
    assert result["runs"]["replay"] >= 20
