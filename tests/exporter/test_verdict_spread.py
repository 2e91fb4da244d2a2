"""The ruling on numbers outside a job's spread: a suspicion that names nobody, whatever the numbers are."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lastgood.findings import action_of
from lastgood.spread import Outlier
from lastgood.verdict import MOST_TOLD
from lastgood.verdict_spread import Apart, evidence_of, rule_apart, text_of

NODES = {rank: f"node-{rank}" for rank in range(64)}


def pair(owner: int, partner: int, one: float = 10.0, other: float = 1.0, tensor: str = "first.weight") -> Apart:
    return Apart(owner=owner, partner=partner, tensor=tensor, outlier=Outlier(0, one, other, 1e-6, 1e-4))


NUMBER = st.floats(min_value=0.0, allow_nan=False)
PAIRS = st.lists(st.builds(pair, st.integers(0, 31), st.integers(32, 63), NUMBER, NUMBER), min_size=1, max_size=20)


@given(PAIRS)
def test_numbers_never_accuse_and_no_policy_stops_for_them(apart: list[Apart]) -> None:
    ruling = rule_apart(apart, NODES)
    assert ruling.status == "suspicious"
    assert ruling.accused == ruling.candidates == ()
    assert not ruling.stands
    assert ruling.confidence == "low"
    for policy in ("stop", "skip", "record"):
        assert action_of(ruling, "replay", policy, skipped_before=9) == "record"


@given(PAIRS)
def test_many_pairs_are_counted_and_few_are_told(apart: list[Apart]) -> None:
    told = [reason for reason in rule_apart(apart, NODES).reasons_for if reason.startswith("On a batch of")]
    assert len(told) == min(len(apart), MOST_TOLD)
    numbers = [replace(found, outlier=replace(found.outlier, one=3.0)) for found in apart]
    assert rule_apart(numbers, NODES) == rule_apart(apart, NODES), "the next round says the same, and is told once"


def test_nothing_outside_is_no_verdict() -> None:
    assert rule_apart([], NODES).status is None


def test_what_all_pairs_have_in_common_is_said() -> None:
    assert "All 2 pairs have rank 1 (node-1) in common." in rule_apart([pair(0, 1), pair(1, 2)], NODES).reasons_for
    apart = rule_apart([pair(0, 1), pair(2, 3)], NODES).reasons_for
    assert not any("in common" in reason for reason in apart)
    more = rule_apart([pair(rank, 9) for rank in range(5)], NODES).reasons_for
    assert "The same holds for 2 more pairs." in more
    assert "All 5 pairs have rank 9 (node-9) in common." in more


def test_the_text_says_both_numbers_and_what_is_explained() -> None:
    assert text_of(pair(1, 2), NODES) == (
        "For the gradient norm of first.weight rank 1 (node-1) got 10.0 and rank 2 (node-2) got 1.0 on the same batch: "
        "90 % apart, where the job's repeats explain 0.01 %."
    )
    assert text_of(pair(1, 2, tensor="loss"), NODES).startswith("For the loss rank 1 (node-1) got 10.0")


def test_a_number_that_is_not_finite_is_plain_data() -> None:
    found = pair(1, 2, math.inf)
    assert "one of them is not finite" in text_of(found, NODES)
    assert evidence_of(found, NODES)["owner_value"] == evidence_of(found, NODES)["apart"] == "Infinity"
