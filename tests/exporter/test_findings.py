"""From rulings to plain data, and what the policy does about them."""

from __future__ import annotations

import json
import math

import pytest

from lastgood import schema
from lastgood.findings import action_of, finding_data, norm_spread, peers_evidence, quantile, verdict_data
from lastgood.judge import writers
from lastgood.state import Place
from lastgood.verdict import Ruling

PLACES = [Place(0, "node-a", "cpu-0", 0), Place(1, "node-b", "cpu-0", 0)]


@pytest.mark.parametrize(
    ("ruling", "check", "policy", "skipped", "action"),
    [
        (Ruling(status="attributed"), "replay", "stop", 0, "stop"),
        (Ruling(status="attributed"), "replay", "skip", 0, "skip"),
        (Ruling(status="attributed"), "replay", "record", 0, "record"),
        (Ruling(status="confirmed"), "conservation", "stop", 0, "stop"),
        (Ruling(status="undecided"), "replay", "stop", 0, "stop"),
        (Ruling(status="undecided", stands=False), "replay", "stop", 0, "record"),
        (Ruling(status="suspicious"), "finite", "stop", 0, "skip"),
        (Ruling(status="cleared"), "finite", "stop", 1, "skip"),
        (Ruling(status="cleared"), "finite", "stop", 2, "stop"),
        (Ruling(status="cleared"), "finite", "skip", 9, "skip"),
        (Ruling(status="cleared"), "replay", "stop", 0, "record"),
        (Ruling(status=None, deterministic=False), "replay", "stop", 0, "record"),
    ],
)
def test_the_policy_acts_on_verdicts(ruling: Ruling, check: str, policy: str, skipped: int, action: str) -> None:
    assert action_of(ruling, check, policy, skipped) == action


def test_findings_and_verdicts_conform_to_their_schemas() -> None:
    found = finding_data(
        check="replay", step=9, state_step=9, phase="audit", ranks=[1], places=PLACES, observed="1", expected="2"
    )
    verdict = verdict_data(Ruling(status="attributed", scope="gpu", accused=(1,)), [found], PLACES, "stop")
    assert schema.problem("finding", found) is None
    assert schema.problem("verdict", verdict) is None
    assert verdict["suspects"] == [{"rank": 1, "node": "node-b", "gpu_uuid": "cpu-0", "slot": 0, "role": "accused"}]


def test_a_suspect_is_shown_against_the_others_only() -> None:
    item = peers_evidence(1, 4, [[1.0, 2.0], [9.0, math.nan], [3.0, 4.0]])
    assert item["steps"] == [4, 5]
    assert item["suspect"] == [9.0, "NaN"]
    assert item["median"] == [2.0, 3.0]


def test_peers_without_a_finite_value_are_left_out() -> None:
    assert peers_evidence(0, 1, [[1.0], [math.inf]])["median"] == [None]


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert quantile([0.0, 10.0], 0.1) == pytest.approx(1.0)
    assert quantile([5.0], 0.9) == 5.0


def test_progress_names_the_ranks_farthest_from_the_middle() -> None:
    spread = norm_spread([1.0] * 10 + [50.0, math.nan])
    assert spread["grad_norm"] == [1.0, 1.0, 1.0]
    assert spread["extremes"][:2] == [[11, "NaN"], [10, 50.0]]
    assert len(spread["extremes"]) == 8


def test_without_a_finite_norm_there_is_no_spread() -> None:
    assert norm_spread([math.nan]) == {}


def test_a_finding_on_thousands_of_ranks_counts_them_all_and_lists_few_devices() -> None:
    places = [Place(rank, f"node-{rank // 8}", f"cpu-{rank % 8}", rank % 8) for rank in range(16384)]
    found = finding_data(check="finite", step=9, state_step=9, phase="loss", ranks=range(16384), places=places)
    assert found["ranks"] == list(range(16384))
    assert [d["rank"] for d in found["devices"]] == list(range(64))
    assert len(json.dumps(found)) < 120_000


def test_a_symptom_of_thousands_of_ranks_is_written_down_by_a_few_the_accused_first() -> None:
    assert writers(Ruling(status="cleared"), range(16384)) == {0, 1, 2, 3, 4, 5, 6, 7}
    assert writers(Ruling(status="attributed", accused=(900, 901)), range(16384)) == {0, 1, 2, 3, 4, 5, 900, 901}
    assert writers(Ruling(status="attributed", accused=(3,)), {3}) == {0, 3}
    assert writers(Ruling(status="suspicious"), ()) == {0}
