"""Sharded models on real gloo ranks (sharded_late_cases.py) whose numbers are read a step late, as on a GPU.

The bits, the checks that run and the first finding of every fault are those of test_sharded.py. ``at_rest`` is moved,
so that no audit reads the step of the faults at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks
from tests.exporter.syncs import of_lastgood
from tests.exporter.test_sharded import TENSORS, assert_clean, assert_found

SCRIPT = Path(__file__).with_name("sharded_late_cases.py")
FSDP = ("fsdp", "fsdp_accumulated", "fsdp_reduced_every_time", "fsdp_kept_gathered", "fsdp_bf16", "fsdp_all_bf16")
HSDP = ("hsdp", "hsdp_averaged_late")
CASES = (
    "a_nan_is_kept_out", "a_wrong_part_stops_a_step_later", "a_replay_of_the_step_before_in_a_step_that_is_compared",
    "the_last_step_is_judged_before_a_save_and_at_close", "under_a_loss_scaler", "nothing_waits_for_the_device",
    "nothing_waits_where_only_tensors_are_sharded",
    "nothing_waits_with_a_budget",
)  # fmt: skip

pytestmark = [pytest.mark.torchrun, pytest.mark.slow, pytest.mark.timeout(600)]


def run(root: Path, names: Iterable[str], ranks: int, **environ: str) -> list[dict[str, Any]]:
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1", **environ}
    nodes = [f"node-{letter}" for letter in "abcdef"[:ranks]]
    lines = run_ranks(SCRIPT, [str(root), ",".join(names)], nodes=nodes, environ=environ, timeout=560)
    return [dict(rank) for rank in lines]


@pytest.fixture(scope="module")
def of_fsdp(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("fsdp"), FSDP, 3, LASTGOOD_AT_REST_EVERY="5")


@pytest.fixture(scope="module")
def of_hsdp(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("hsdp"), HSDP, 6, LASTGOOD_AT_REST_EVERY="5")


@pytest.fixture(scope="module")
def of_tensors(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("tensors"), TENSORS, 4, LASTGOOD_AT_REST_EVERY="5")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("late"), CASES, 2)


@pytest.mark.parametrize("name", FSDP)
def test_fsdp(of_fsdp: list[dict[str, Any]], name: str) -> None:
    assert_clean(of_fsdp, name)
    assert_found(of_fsdp, name)


@pytest.mark.parametrize("name", HSDP)
def test_hsdp(of_hsdp: list[dict[str, Any]], name: str) -> None:
    assert_clean(of_hsdp, name)
    assert_found(of_hsdp, name)


@pytest.mark.parametrize("name", TENSORS)
def test_what_is_sharded_in_other_ways(of_tensors: list[dict[str, Any]], name: str) -> None:
    not_run, _, wanted = TENSORS[name]
    assert_clean(of_tensors, name, not_run)
    assert_found(of_tensors, name, wanted)


@pytest.mark.parametrize("name", ["fused AdamW", "fused Adam", "AdamW"])
def test_a_step_that_is_not_finite_stays_out_of_a_shard_and_is_known_a_step_later(
    seen: list[dict[str, Any]], name: str
) -> None:
    for rank in seen:
        assert rank["a_nan_is_kept_out"][name]["kept"]
        assert rank["a_nan_is_kept_out"][name]["moved"], "the step after it must train again"
    result = seen[0]["a_nan_is_kept_out"][name]
    assert result["known_at_once"] == []
    assert ["finite", 3, True] in result["told"]
    assert result["verdicts"] == [["attributed", "skip"]]
    assert result["step"] == 7


@pytest.mark.parametrize("name", ["fsdp", "hsdp"])
def test_a_wrong_part_stops_the_job_a_step_later(seen: list[dict[str, Any]], name: str) -> None:
    for rank in seen:
        result = rank["a_wrong_part_stops_a_step_later"][name]
        assert "inside the reduce at step 3" in result["text"]
        assert (result["known_at_once"], result["told"]) == ([], [["conservation", 3, True]])
        assert result["kept"]
        assert result["untouched"]


@pytest.mark.parametrize("when", ["save", "close"])
def test_the_last_step_is_judged_and_replayed_before(seen: list[dict[str, Any]], when: str) -> None:
    for rank in seen:
        result = rank["the_last_step_is_judged_before_a_save_and_at_close"][when]
        assert result["known_at_once"] == []
        assert "Rank 1 (node-b, slot 0)" in result["text"]
        assert ["finite", 4, True] in result["told"]
        assert result["rounds"] == [["replay", "failed"]]


def test_a_loss_scaler_and_the_guard_share_a_flag(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        assert rank["under_a_loss_scaler"] == {"kept": True, "moved": True, "told": [["conservation", 3, True]]}


def test_a_late_replay_is_no_part_of_the_gathers_of_the_step_in_progress(seen: list[dict[str, Any]]) -> None:
    result = seen[0]["a_replay_of_the_step_before_in_a_step_that_is_compared"]
    assert ["finite", 5, True] in result["told"]
    checks = [tuple(check) for check in result["checks"]]
    assert ("replay", "immediate", 5, "failed") in checks
    assert ("replica", "gather", 6, "passed") in checks
    assert not [check for check in checks if check[3] == "not_run"]
    first, sixth = result["counts"]
    assert first == sixth > 0


@pytest.mark.parametrize(("name", "reads"), [("fused AdamW", 0), ("fused Adam", 0), ("AdamW", 3)])
def test_a_clean_step_never_waits_for_the_device(seen: list[dict[str, Any]], name: str, reads: int) -> None:
    """Three steps between two audits; an optimizer that is not fused costs one read a step."""
    for rank in seen:
        calls = of_lastgood(rank["nothing_waits_for_the_device"][name])
        assert [c for c in calls if not c.startswith("aten")] == [
            "__bool__ in lastgood/monitor.py:_obey_the_device"
        ] * reads
        assert len([c for c in calls if c.startswith("aten")]) == reads


def test_where_only_tensors_are_sharded_the_optimizer_alone_costs_a_read(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        calls = of_lastgood(rank["nothing_waits_where_only_tensors_are_sharded"])
        assert [c for c in calls if not c.startswith("aten")] == ["__bool__ in lastgood/monitor.py:_obey_the_device"]


def test_a_look_at_the_costs_waits_for_no_device_either(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        result = rank["nothing_waits_with_a_budget"]
        assert of_lastgood(result["seen"]) == []
        assert result["before"] is None, "the look had ended before anything was counted"
        assert 0 < result["share"] < 1
