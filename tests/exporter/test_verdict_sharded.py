"""What a wrong part of a reduce, or a wrong copy of gathered weights, says; pure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lastgood.verdict import Ruling
from lastgood.verdict_sharded import rule_averaged, rule_gathered, rule_parts, rule_scattered

NODES = {rank: f"node-{rank // 2}" for rank in range(40)}


def accuse(ruling: Ruling) -> tuple[str | None, list[int], list[int]]:
    return ruling.status, list(ruling.accused), list(ruling.candidates)


def test_the_holder_of_a_wrong_part_is_told_and_not_accused() -> None:
    ruling = rule_scattered([3], NODES, 7)
    assert accuse(ruling) == ("confirmed", [], [])
    assert "bucket 7" in ruling.reasons_for[0]
    assert "rank 3" in ruling.reasons_for[1]


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ([], ("confirmed", [], [])),
        ([4], ("attributed", [4], [])),
        ([0, 4], ("undecided", [], [0, 2, 4])),
    ],
)
def test_an_average_between_replicas(odd: Sequence[int], expected: tuple[str, list[int], list[int]]) -> None:
    assert accuse(rule_averaged(odd, [0, 2, 4], NODES, 1)) == expected


def test_with_two_replicas_both_are_candidates_and_nobody_else() -> None:
    assert accuse(rule_averaged([5], [1, 5], NODES, 1)) == ("undecided", [], [1, 5])


def test_one_wrong_copy_needs_no_majority() -> None:
    assert accuse(rule_gathered([1], [0, 1], NODES, "layer")) == ("attributed", [1], [])


def test_the_two_ranks_of_a_node_are_the_node() -> None:
    ruling = rule_gathered([3, 2], list(range(6)), NODES, "layer")
    assert accuse(ruling) == ("attributed", [2, 3], [])
    assert ruling.scope == "node"


@pytest.mark.parametrize("odd", [[0, 1, 2, 3], [1, 2], list(range(20))])
def test_copies_that_are_wrong_on_several_nodes_accuse_nobody(odd: list[int]) -> None:
    assert accuse(rule_gathered(odd, list(range(40)), NODES, "layer")) == ("confirmed", [], [])


def test_copies_that_are_wrong_everywhere_on_one_node_accuse_nobody() -> None:
    assert accuse(rule_gathered([0, 1], [0, 1], NODES, "layer")) == ("confirmed", [], [])


def test_rulings_on_several_parts_name_all_that_any_of_them_accuses() -> None:
    first, second = rule_averaged([2], [0, 2, 4], NODES, 1), rule_averaged([3], [1, 3, 5], NODES, 2)
    together = rule_parts([first, second], NODES)
    assert accuse(together) == ("attributed", [2, 3], [])
    assert together.scope == "node"
    assert {*first.reasons_for, *second.reasons_for} == set(together.reasons_for)


def test_where_no_part_accuses_anybody_an_undecided_one_is_told() -> None:
    undecided, confirmed = rule_averaged([5], [1, 5], NODES, 1), rule_averaged([], [0, 2], NODES, 2)
    assert rule_parts([confirmed, undecided], NODES) == undecided
    assert rule_parts([confirmed], NODES) == confirmed
