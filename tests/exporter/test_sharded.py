"""Sharded models on real gloo ranks (sharded_cases.py): three for FSDP2, six (three replicas of two shards) for HSDP.

As in test_ways.py a way is trained clean with and without lastgood, which must give the same bits, and once per fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks

SCRIPT = Path(__file__).with_name("sharded_cases.py")
CHECKS = {"finite", "conservation", "replica", "replay", "at_rest"}
Found = dict[str, tuple[str, list[int] | None, str]]
FOUND: Found = {
    "replay": ("replay", [1], "attributed"),
    "conservation": ("conservation", None, "confirmed"),
    "one_result": ("conservation", [1], "confirmed"),
    "replica": ("replica", [1], "attributed"),
    "finite": ("finite", [1], "attributed"),
    "at_rest": ("at_rest", [1], "attributed"),
    "state": ("replica", [1], "attributed"),
}
"""Fault -> the first finding and its verdict: check, ranks (None: where the fault ended up), status."""

SHARDED = ("replay", "conservation", "one_result", "finite", "at_rest")
"""What is in reach where no other rank holds the same weights; a wrong copy as gathered is one more."""
FSDP = (
    "fsdp", "fsdp_as_one_group", "fsdp_kept_gathered", "fsdp_accumulated", "fsdp_reduced_every_time", "fsdp_clipped",
    "fsdp_bf16", "fsdp_all_bf16", "fsdp_offloaded",
)  # fmt: skip
PARTS = ("fsdp_fused", "fsdp_two_optimizers", "fsdp_frozen", "fsdp_tied", "fsdp_remade", "fsdp_scaler")
HSDP = ("hsdp", "hsdp_averaged_late")
ONE_MESH = (
    "one_copy_is_wrong", "all_copies_are_wrong", "bits_of_a_shard_change_at_rest", "what_cannot_be_watched",
    "a_replay_that_fails_on_one_rank",
)  # fmt: skip
TWO_MESHES = (
    "one_copy_of_a_replica_is_wrong", "one_average_between_replicas_is_wrong", "a_part_that_cannot_be_read",
)  # fmt: skip
COMPILED = ("compiled_inside_fsdp", "compiled_around_fsdp")
COPIES = (*COMPILED, "fsdp_kept_gathered", "fsdp_accumulated", "fsdp_bf16", "fsdp_offloaded")
PARALLEL = {"replay": "the model is parallel over more than its batches"}
SEVERAL = "a module has several parameter groups, whose communication cannot be wrapped"
ALONE = {"conservation": "no gradient is reduced by fully_shard"} | PARALLEL
UNREDUCED: Found = {
    "finite": ("finite", [1], "suspicious"),
    "at_rest": ("at_rest", [1], "attributed"),
    "replica": ("replica", [1], "attributed"),
    "state": ("replica", [1], "attributed"),
}
"""Without a replay nobody is accused of a NaN; of two replicas both are candidates."""
OF_TWO: Found = UNREDUCED | dict.fromkeys(("replica", "state"), ("replica", [0, 1], "undecided"))
TENSORS: dict[str, tuple[dict[str, str], str, Found]] = {
    "tensor_parallel_alone": (ALONE, "3 of 6 parameters have no replica", UNREDUCED),
    "tensor_parallel_and_fsdp": (
        PARALLEL,
        "",
        OF_TWO | {name: FOUND[name] for name in ("conservation", "one_result")},
    ),
    "several_groups_in_one_module": (
        dict.fromkeys(("conservation", "replay"), SEVERAL),
        "3 of 6 parameters have no replica",
        OF_TWO
        | {"finite": ("finite", [], "suspicious")}
        | dict.fromkeys(("replica", "state"), ("replica", [1, 3], "undecided")),
    ),
}
"""Way -> what does not run, what a passed comparison of replicas says of the rest, and what is found."""
DIGESTS = ("every_way_to_spread_a_tensor", "pieces_are_where_they_say", "ranks_with_other_parts_of_a_model")

pytestmark = [pytest.mark.torchrun, pytest.mark.slow, pytest.mark.timeout(600)]


def run(root: Path, names: Iterable[str], ranks: int) -> list[dict[str, Any]]:
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    nodes = [f"node-{letter}" for letter in "abcdef"[:ranks]]
    arguments = [str(root), ",".join(names)]
    return [dict(lines) for lines in run_ranks(SCRIPT, arguments, nodes=nodes, environ=environ, timeout=560)]


@pytest.fixture(scope="module")
def of_fsdp(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("fsdp"), (*FSDP, *ONE_MESH), 3)


@pytest.fixture(scope="module")
def of_hsdp(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("hsdp"), (*HSDP, *TWO_MESHES), 6)


@pytest.fixture(scope="module")
def of_parts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("parts"), PARTS, 3)


@pytest.fixture(scope="module")
def of_compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("compiled"), (*COMPILED, *(f"one_copy_is_wrong_{name}" for name in COPIES)), 3)


def assert_clean(seen: list[dict[str, Any]], name: str, not_run: Mapping[str, str] = MappingProxyType({})) -> None:
    """The same bits on every rank with and without lastgood, no finding, and every check that can run has passed."""
    for rank in seen:
        clean = rank[name]["clean"]
        assert (clean["equal"], clean["moved"], clean["findings"]) == (True, True, 0)
        assert clean["not_run"] == not_run
        assert set(clean["passed"]) == CHECKS - set(not_run)


def assert_found(seen: list[dict[str, Any]], name: str, wanted: Found = FOUND) -> None:
    """Every fault happened on rank 1, and its first finding is the expected one, in the same words on all ranks."""
    for fault, result in seen[0][name]["faults"].items():
        check, ranks, status = wanted[fault]
        assert result["injected"] >= 1
        found, _, _, named = result["findings"][0]
        assert (found, result["verdicts"][0][0]) == (check, status), fault
        assert len(named) == 1 if ranks is None else named == ranks, fault
        assert len({rank[name]["faults"][fault]["text"] for rank in seen}) == 1


@pytest.mark.parametrize("name", FSDP)
def test_fsdp(of_fsdp: list[dict[str, Any]], name: str) -> None:
    assert_clean(of_fsdp, name)
    assert ["replica", "gather", "passed", ""] in of_fsdp[0][name]["clean"]["checks"]
    assert set(of_fsdp[0][name]["faults"]) == set(SHARDED)
    assert_found(of_fsdp, name)


@pytest.mark.parametrize("name", PARTS)
def test_optimizers_and_parameters_under_fsdp(of_parts: list[dict[str, Any]], name: str) -> None:
    """A scaler skips the step of a NaN: there it is no finding."""
    assert_clean(of_parts, name)
    assert set(of_parts[0][name]["faults"]) == set(SHARDED) - ({"finite"} if name == "fsdp_scaler" else set())
    assert_found(of_parts, name)


@pytest.mark.parametrize("name", HSDP)
def test_hsdp(of_hsdp: list[dict[str, Any]], name: str) -> None:
    assert_clean(of_hsdp, name)
    said = of_hsdp[0][name]["clean"]["checks"]
    assert ["replica", "loop", "passed", ""] in said
    assert ["replica", "state", "passed", ""] in said
    assert ["replica", "close", "passed", ""] in said
    assert set(of_hsdp[0][name]["faults"]) == {*SHARDED, "replica", "state"}
    assert_found(of_hsdp, name)


def test_one_wrong_copy_of_gathered_weights_names_its_rank(of_fsdp: list[dict[str, Any]]) -> None:
    result = of_fsdp[0]["one_copy_is_wrong"]
    assert result["findings"] == [["replica", "gather", 4, [1], "middle, as gathered"]]
    assert result["verdicts"] == [["attributed", [1]]]
    assert result["step"] == 4, "it stopped before the weights were updated"
    assert "Rank 1 (node-b, slot 0) held different weights (middle, as gathered) in steps (0, 3]" in result["text"]


def test_a_gather_that_is_wrong_everywhere_accuses_nobody(of_fsdp: list[dict[str, Any]]) -> None:
    result = of_fsdp[0]["all_copies_are_wrong"]
    assert result["findings"] == [["replica", "gather", 4, [], "middle, as gathered"]]
    assert result["verdicts"] == [["confirmed", []]]


def test_a_bit_of_a_shard_that_changes_at_rest_names_its_rank(of_fsdp: list[dict[str, Any]]) -> None:
    result = of_fsdp[0]["bits_of_a_shard_change_at_rest"]
    assert result["findings"] == [["at_rest", "loop", 6, [1], "last.weight"]]
    assert result["verdicts"] == [["attributed", [1]]]


def test_what_cannot_be_watched_is_said(of_fsdp: list[dict[str, Any]]) -> None:
    result = of_fsdp[0]["what_cannot_be_watched"]
    reason = "a parameter group is spread over one rank, and is not reduced by a reduce-scatter"
    gathers = "a parameter group is on one rank, and is not gathered"
    assert result["not_run"] == {"conservation": reason, "replay": gathers}
    assert (result["text"], result["findings"]) == ("", [])
    assert result["passed"] == ["finite", "replica"]


def test_a_replay_that_fails_on_one_rank_harms_nobody(of_fsdp: list[dict[str, Any]]) -> None:
    for rank in of_fsdp:
        unwatched, forward, backward = rank["a_replay_that_fails_on_one_rank"]
        assert forward["digest"] == backward["digest"] == unwatched["digest"]
        for result, broken in ((forward, 1), (backward, 2)):
            assert (result["text"], result["findings"], result["step"]) == ("", [], 9)
            reason = f"rank {broken}: the replay failed (RuntimeError)"
            assert result["rounds"] == [[phase, "not_run", reason] for phase in ("audit", "close", "first")]


def test_a_wrong_copy_is_found_between_replicas_too(of_hsdp: list[dict[str, Any]]) -> None:
    result = of_hsdp[0]["one_copy_of_a_replica_is_wrong"]
    assert result["findings"] == [["replica", "loop", 4, [1], "middle, as gathered"]]
    assert result["verdicts"] == [["attributed", [1]]]


def test_one_wrong_average_between_replicas_names_its_rank(of_hsdp: list[dict[str, Any]]) -> None:
    result = of_hsdp[0]["one_average_between_replicas_is_wrong"]
    assert [found[:4] for found in result["findings"]] == [["conservation", "reduce", 3, [1]]]
    assert result["verdicts"] == [["attributed", [1]]]


@pytest.fixture(scope="module")
def of_tensors(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("tensors"), (*DIGESTS, *TENSORS), 4)


def test_a_digest_is_that_of_the_whole_tensor_however_it_is_spread(of_tensors: list[dict[str, Any]]) -> None:
    result = of_tensors[0]["every_way_to_spread_a_tensor"]
    assert result["count"] > 60
    assert result["wrong"] == []


def test_pieces_are_where_they_say(of_tensors: list[dict[str, Any]]) -> None:
    result = of_tensors[0]["pieces_are_where_they_say"]
    assert result["wrong"] == []
    assert "is a partial sum: it has no bytes of its own" in result["partial"]


def test_ranks_with_other_parts_of_a_model_are_refused(of_tensors: list[dict[str, Any]]) -> None:
    assert "the ranks hold different parts of a model" in of_tensors[0]["ranks_with_other_parts_of_a_model"]


@pytest.mark.parametrize("name", TENSORS)
def test_what_is_sharded_in_other_ways(of_tensors: list[dict[str, Any]], name: str) -> None:
    """What does not run is said; what has no replica is said; every other fault is found."""
    not_run, reason, wanted = TENSORS[name]
    assert_clean(of_tensors, name, not_run)
    assert ["replica", "loop", "passed", reason] in of_tensors[0][name]["clean"]["checks"]
    assert set(of_tensors[0][name]["faults"]) == set(wanted)
    assert_found(of_tensors, name, wanted)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(of_compiled: list[dict[str, Any]], name: str) -> None:
    assert_clean(of_compiled, name)
    assert set(of_compiled[0][name]["faults"]) == set(SHARDED)
    assert_found(of_compiled, name)


@pytest.mark.parametrize("name", COPIES)
def test_one_wrong_copy_names_its_rank_in_other_ways_too(of_compiled: list[dict[str, Any]], name: str) -> None:
    result = of_compiled[0][f"one_copy_is_wrong_{name}"]
    assert result["findings"] == [["replica", "gather", 4, [1], "middle, as gathered"]]
    assert result["verdicts"] == [["attributed", [1]]]


def test_a_part_that_one_rank_cannot_read_is_not_measured_anywhere(of_hsdp: list[dict[str, Any]]) -> None:
    for rank in of_hsdp:
        result = rank["a_part_that_cannot_be_read"]
        assert (result["text"], result["findings"]) == ("", [])
        assert result["checks"] == [[3, "not_run"]]
        assert result["passed"] == 9


def test_a_sharded_model_on_one_rank(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, ["on_one_rank"], 1)
    assert rank["on_one_rank"]["passed"] == ["at_rest", "finite"]
    assert rank["on_one_rank"]["norms"] > 0
