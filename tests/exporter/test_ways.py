"""Every way people train under ``DistributedDataParallel``, on three real gloo ranks (ways_*.py).

The tables say, per way, which checks cannot run and which faults are found. A way is trained clean with and without
lastgood, which must give the same bits and no finding, and once per fault. One job runs all ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

SCRIPT = Path(__file__).with_name("ways_cases.py")
NODES = ["node-a", "node-b", "node-c"]

FOUND: dict[str, list[list[Any]]] = {
    "replay": [["replay", [1], "attributed"]],
    "conservation": [["conservation", [], "confirmed"]],
    "one_result": [["conservation", [1], "attributed"]],
    "replica": [["replica", [1], "attributed"]],
    "finite": [["finite", [1], "attributed"]],
    "at_rest": [["at_rest", [1], "attributed"]],
    "state": [["replica", [1], "attributed"]],
    "replay_of_a_permanent_fault": [["replay", [1], "attributed"]],
}
"""Fault -> the first finding and its verdict: check, ranks, status. Rank 1 has every fault."""

ALL = ("replay", "conservation", "one_result", "replica", "finite", "at_rest", "state")
UNREDUCED = ("replay", "replica", "finite", "at_rest", "state")
UNSCALED = tuple(fault for fault in ALL if fault != "finite")
"""A scaler skips the step of a NaN (test_a_nan_that_a_scaler_skips_is_no_finding)."""
UNSHARED = tuple(fault for fault in ALL if fault != "state")
"""Where no two ranks hold the same state of the optimizer."""
CHECKS = {"finite", "conservation", "replica", "replay", "at_rest"}
HOOK = {"conservation": "the job has a communication hook of its own"}
DRIFT = dict.fromkeys(("replica", "replay"), "the communication hook lets the replicas differ")

Ways = dict[str, tuple[tuple[str, ...], dict[str, str]]]
"""Name -> the faults that are found, and the checks that do not run, with the reason."""

DDP: Ways = dict.fromkeys(
    (
        "accumulation", "accumulation_reduced_every_time", "accumulation_not_told", "find_unused_parameters",
        "static_graph", "static_graph_and_accumulation", "bucket_views", "bucket_views_and_accumulation",
        "many_buckets", "stock_hook", "own_hook_promised", "own_hook_promised_and_options",
    ),
    (ALL, {}),
) | dict.fromkeys(
    ("fp16_hook", "bf16_hook", "power_sgd_hook", "built_in_hook", "own_hook_not_promised"), (UNREDUCED, HOOK)
)  # fmt: skip
NUMBERS: Ways = dict.fromkeys(
    (
        "autocast_bf16", "bf16_weights", "clipped_after_the_reduce", "clipped_before_the_reduce", "two_optimizers",
        "fused", "foreach", "lbfgs", "a_closure_that_runs_once", "scheduler", "frozen_and_tied",
        "complex_weights_odd_buffers", "a_parameter_group_that_comes_later",
    ),
    (ALL, {}),
) | {"scaler_fp16": (UNSCALED, {}), "sharded_optimizer_state": (UNSHARED, {})}  # fmt: skip
OTHERS = (
    "local_sgd_hook", "own_hook_promised_wrongly", "sparse", "scaler_that_skips", "scaler_and_nan",
    "skipped_inside_a_closure", "trained_alone_on_every_rank", "trained_alone_on_one_rank",
    "rewritten_by_the_forward", "clipped_alike_after_the_step",
)  # fmt: skip
COMPILED = {
    "compiled_inside": True,
    "compiled_around": False,
    "compiled_in_place": True,
    "compiled_in_parts": False,
    "compiled_for_other_shapes": False,
}
"""Whether a fault that lasts one step is in the replay's reach: see docs/checks.md, what no check sees."""

pytestmark = [pytest.mark.torchrun, pytest.mark.slow, pytest.mark.timeout(600)]


def run(root: Path, names: tuple[str, ...]) -> list[dict[str, Any]]:
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    arguments = [str(root), ",".join(names)]
    return [dict(lines) for lines in run_ranks(SCRIPT, arguments, nodes=NODES, environ=environ, timeout=560)]


@pytest.fixture(scope="module")
def of_ddp(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("ddp"), (*DDP, *OTHERS))


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("numbers"), tuple(NUMBERS))


@pytest.fixture(scope="module")
def of_compiled(tmp_path_factory: pytest.TempPathFactory, compiler_program: str) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("compiled"), COMPILED)


def assert_clean(
    seen: list[dict[str, Any]], name: str, not_run: dict[str, str], unsaid: set[str] = frozenset()
) -> None:  # type: ignore[assignment]
    """The same bits on every rank with and without lastgood, no finding, and every check that can run has passed."""
    for rank in seen:
        clean = rank[name]["clean"]
        assert (clean["equal"], clean["moved"], clean["findings"]) == (True, True, 0)
        assert clean["not_run"] == not_run
        assert set(clean["passed"]) == CHECKS - set(not_run) - unsaid


def assert_found(seen: list[dict[str, Any]], name: str, faults: tuple[str, ...]) -> None:
    """Every fault happened once on rank 1, and its first finding names what it is to name, in the same words on all."""
    results = seen[0][name]["faults"]
    assert set(faults) <= set(results)
    for fault in faults:
        assert results[fault]["injected"] >= 1
        check, _, _, ranks = results[fault]["findings"][0]
        assert [[check, ranks, results[fault]["verdicts"][0][0]]] == FOUND[fault], fault
        assert len({rank[name]["faults"][fault]["text"] for rank in seen}) == 1
        assert results[fault]["text"]


@pytest.mark.parametrize("name", DDP)
def test_ddp(of_ddp: list[dict[str, Any]], name: str) -> None:
    faults, not_run = DDP[name]
    assert_clean(of_ddp, name, not_run)
    assert_found(of_ddp, name, faults)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(of_numbers: list[dict[str, Any]], name: str) -> None:
    faults, not_run = NUMBERS[name]
    assert_clean(of_numbers, name, not_run)
    assert_found(of_numbers, name, faults)


def test_replicas_that_may_differ_are_not_compared(of_ddp: list[dict[str, Any]]) -> None:
    assert_clean(of_ddp, "local_sgd_hook", HOOK | DRIFT)
    found = of_ddp[0]["local_sgd_hook"]["faults"]["finite"]["findings"]
    assert found[0] == ["finite", "local", 3, [1]]
    assert_found(of_ddp, "local_sgd_hook", ("at_rest",))


def test_a_promise_that_does_not_hold_switches_conservation_off(of_ddp: list[dict[str, Any]]) -> None:
    assert_clean(of_ddp, "own_hook_promised_wrongly", {}, unsaid={"conservation"})
    reason = "the communication hook does not return the average"
    assert ["conservation", "reduce", "not_run", reason] in of_ddp[0]["own_hook_promised_wrongly"]["clean"]["checks"]
    assert_found(of_ddp, "own_hook_promised_wrongly", UNREDUCED)


def test_conservation_says_that_it_does_not_run_over_sparse_gradients(of_ddp: list[dict[str, Any]]) -> None:
    assert_clean(of_ddp, "sparse", {}, unsaid={"conservation"})
    reason = "a gradient is sparse, or could not be read"
    assert ["conservation", "reduce", "not_run", reason] in of_ddp[0]["sparse"]["clean"]["checks"]
    assert_found(of_ddp, "sparse", UNREDUCED)


def test_a_weight_that_its_owner_hands_out_again_accuses_nobody(of_numbers: list[dict[str, Any]]) -> None:
    """The state of a ``ZeroRedundancyOptimizer`` is not compared, and no rank updates another's part of the weights."""
    result = of_numbers[0]["sharded_optimizer_state"]["faults"]["overwritten"]
    assert (result["injected"], result["findings"], result["text"], result["step"]) == (1, [], "", 9)


def test_steps_that_a_scaler_skips_are_no_finding(of_ddp: list[dict[str, Any]]) -> None:
    for rank in of_ddp:
        clean = rank["scaler_that_skips"]["clean"]
        assert (clean["equal"], clean["findings"]) == (True, 0)
        assert "finite" not in clean["passed"], "every step was skipped"


def test_a_nan_that_a_scaler_skips_is_no_finding(of_ddp: list[dict[str, Any]]) -> None:
    result = of_ddp[0]["scaler_and_nan"]["faults"]["finite"]
    assert (result["injected"], result["findings"], result["text"], result["step"]) == (1, [], "", 9)


def test_a_step_is_skipped_although_a_closure_makes_its_gradients(of_ddp: list[dict[str, Any]]) -> None:
    assert of_ddp[0]["skipped_inside_a_closure"] == {"unchanged": [False, True, False], "contained": [True], "step": 3}


def test_an_embedding_that_its_forward_rescales_accuses_nobody(of_ddp: list[dict[str, Any]]) -> None:
    """One rank of three differs, and its device is well: `max_norm` writes weights by the batch."""
    result = of_ddp[0]["rewritten_by_the_forward"]
    assert result["findings"] == [["replica", [], "table.weight"]]
    ((status, suspects, reasons),) = result["verdicts"]
    assert (status, suspects) == ("confirmed", [])
    assert "max_norm" in reasons[0]
    assert "came to hold different weights (table.weight) at step 1." in result["text"]
    clipped = of_ddp[0]["clipped_alike_after_the_step"]
    assert clipped["findings"] == 0
    assert clipped["longest"] < 1.001


@pytest.mark.parametrize("name", ["trained_alone_on_every_rank", "trained_alone_on_one_rank"])
def test_what_is_trained_and_not_averaged_accuses_nobody(of_ddp: list[dict[str, Any]], name: str) -> None:
    result = of_ddp[0][name]
    assert result["findings"] == [["replica", [], "middle.weight"]]
    assert result["verdicts"] == [["confirmed", []]]
    assert "No rank stands out" in result["text"]


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(of_compiled: list[dict[str, Any]], name: str) -> None:
    assert_clean(of_compiled, name, {})
    faults = tuple(of_compiled[0][name]["faults"])
    assert set(faults) == {*ALL, "replay_of_a_permanent_fault"}
    assert_found(of_compiled, name, tuple(fault for fault in faults if fault != "replay" or COMPILED[name]))
    if not COMPILED[name]:
        result = of_compiled[0][name]["faults"]["replay"]
        assert (result["injected"], result["findings"], result["text"], result["step"]) == (1, [], "", 9)
