"""Who replays whose batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lastgood.pairing import arbiter, environment_data, partners

SAME = ["key"] * 64


def by_sizes(sizes: list[int]) -> list[str]:
    return [f"node-{i}" for i, size in enumerate(sizes) for _ in range(size)]


@given(st.lists(st.integers(1, 8), min_size=2, max_size=8).filter(lambda sizes: 2 * max(sizes) <= sum(sizes)))
def test_with_no_dominant_node_every_rank_has_a_partner_on_another_node(sizes: list[int]) -> None:
    nodes = by_sizes(sizes)
    pairs = partners(nodes, SAME[: len(nodes)])
    assert sorted(pairs) == sorted(pairs.values()) == list(range(len(nodes)))
    assert all(nodes[owner] != nodes[partner] for owner, partner in pairs.items())


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.integers(0, 20))
def test_a_partner_is_never_on_the_same_node_and_has_one_batch_at_most(sizes: list[int], round_number: int) -> None:
    nodes = by_sizes(sizes)
    pairs = partners(nodes, SAME[: len(nodes)], round_number)
    assert len(set(pairs.values())) == len(pairs)
    assert all(nodes[owner] != nodes[partner] for owner, partner in pairs.items())


def test_with_a_dominant_node_the_rounds_reach_every_rank_in_turn() -> None:
    nodes = by_sizes([4, 1])
    reached: set[int] = set()
    for number in range(8):
        reached |= set(partners(nodes, SAME[:5], number))
    assert reached == {0, 1, 2, 3, 4}


def test_ranks_with_another_environment_are_not_compared() -> None:
    pairs = partners(["a", "b", "c"], ["one", "two", "one"])
    assert pairs == {0: 2, 2: 0}


def test_one_node_has_no_partners() -> None:
    assert partners(["a", "a"], ["k", "k"]) == {}


def test_the_arbiter_is_on_a_third_node_and_not_busy() -> None:
    nodes = ["a", "a", "b", "b", "c", "c"]
    assert arbiter(2, 4, nodes, SAME[:6], set()) == 0
    assert arbiter(2, 4, nodes, SAME[:6], {0}) == 1
    assert arbiter(2, 4, nodes, SAME[:6], {0, 1}) is None
    assert arbiter(2, 4, nodes, ["x", "x", "k", "k", "k", "k"], set()) is None


def test_the_environment_that_most_ranks_share_names_none_of_them() -> None:
    assert environment_data(["a"] * 16_384) == {"a": []}
    assert environment_data(["b", "a", "a", "b", "a"]) == {"b": [0, 3], "a": []}
    assert environment_data([]) == {}
