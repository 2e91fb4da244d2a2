"""Frameworks that own the training loop, on three real gloo ranks (frameworks_cases.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporter.ranks import run_ranks
from tests.exporter.test_ways import ALL, FOUND

SCRIPT = Path(__file__).with_name("frameworks_cases.py")
NODES = ["node-a", "node-b", "node-c"]
FRAMEWORKS = ("hugging_face", "accelerate", "lightning")
pytestmark = [pytest.mark.torchrun, pytest.mark.slow]


@pytest.fixture(scope="module", params=FRAMEWORKS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw without lastgood, with it, with each fault on rank 1, and after a resume."""
    name: str = request.param
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1", "HF_HUB_OFFLINE": "1"}
    root = tmp_path_factory.mktemp(name)
    lines = run_ranks(SCRIPT, [str(root), name], nodes=NODES, environ=environ)
    return [dict(rank)[name] for rank in lines]


def test_the_result_is_the_same_with_and_without(seen: list[dict[str, Any]]) -> None:
    """Weights, buffers and the optimizer's state, bit by bit, and what was logged."""
    for rank in seen:
        assert rank["plain"]["digest"] == rank["clean"]["digest"]
        assert rank["plain"].get("logged") == rank["clean"].get("logged")


def test_a_clean_run_has_every_check_passed_and_no_finding(seen: list[dict[str, Any]]) -> None:
    clean = seen[0]["clean"]
    assert (clean["text"], clean["findings"], clean["not_run"], clean["last"]) == ("", [], {}, [8])
    assert {result for _, _, result in clean["checks"]} == {"passed"}
    wanted = {
        ("replay", "first"), ("replay", "audit"), ("replica", "loop"), ("replica", "state"), ("at_rest", "loop"),
        ("replica", "close"), ("replay", "close"),
    }  # fmt: skip
    assert wanted <= {(check, phase) for check, phase, _ in clean["checks"]}


@pytest.mark.parametrize("fault", ALL)
def test_a_fault_stops_every_rank_and_names_the_device(seen: list[dict[str, Any]], fault: str) -> None:
    result = seen[0]["faults"][fault]
    assert result["injected"] >= 1
    assert [[*result["findings"][0], result["verdicts"][0]]] == FOUND[fault]
    texts = {rank["faults"][fault]["text"] for rank in seen}
    assert len(texts) == 1
    assert ("Rank 1 (node-b, slot 0)" in texts.pop()) == (fault != "conservation")


def test_saves_are_watched_and_a_resume_is_verified(seen: list[dict[str, Any]]) -> None:
    clean, resumed = seen[0]["clean"], seen[0]["resumed"]
    assert clean["saved"][0] == 6
    assert resumed["started"] == [[0, True], [6, True]]
    assert (resumed["text"], resumed["findings"], resumed["last"]) == ("", [], [8, 8])
