"""The deciding rules: row by row, and the properties that hold for all evidence."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.verdict import (
    Dispute,
    arbitrate,
    confirmed_ranks,
    majority,
    rule_conservation,
    rule_finite,
    rule_replica,
    rule_unreduced,
)

NODES = {0: "node-a", 1: "node-a", 2: "node-b", 3: "node-b", 4: "node-c", 5: "node-c"}
PAIRS = {0: 2, 1: 3, 2: 4, 3: 5, 4: 0, 5: 1}


def dispute(owner: int = 3, partner: int = 5, arbiter: int | None = 0, **values: object) -> Dispute:
    given_values = {"owner_first": 1, "owner_second": 1, "partner_first": 2, "partner_second": 2, "arbiter_first": 2}
    return Dispute(owner=owner, partner=partner, arbiter=arbiter, **(given_values | values))  # type: ignore[arg-type]


def ruled(*disputes: Dispute) -> tuple[str | None, tuple[int, ...], tuple[int, ...], str]:
    ruling = arbitrate(disputes, NODES)
    return ruling.status, ruling.accused, ruling.candidates, ruling.nature


def test_a_pair_that_disagreed_both_ways_is_said_to_be_unsettled_once() -> None:
    both = [dispute(1, 3, None, arbiter_first=None), dispute(3, 1, None, arbiter_first=None)]
    ruling = arbitrate(both, NODES)
    assert ruling.status == "undecided"
    assert ruling.reasons_against == ("No third node could settle between rank 1 and rank 3.",)


# --- replay, row by row ----------------------------------------------------------------------------------------------


def test_a_second_run_that_gives_the_partners_value_is_a_transient_fault_of_the_owner() -> None:
    assert ruled(dispute(owner_second=2)) == ("attributed", (3,), (), "transient")


def test_a_transient_fault_is_attributed_with_two_nodes_as_well() -> None:
    assert ruled(dispute(owner_second=2, arbiter=None, arbiter_first=None)) == ("attributed", (3,), (), "transient")


def test_the_partners_own_second_run_convicts_the_partner_with_two_nodes_as_well() -> None:
    assert ruled(dispute(partner_second=1, arbiter=None, arbiter_first=None)) == ("attributed", (5,), (), "transient")


def test_an_outvoted_owner_that_is_odd_on_a_second_batch_is_a_persistent_fault() -> None:
    assert ruled(dispute(second_batch_odd=True)) == ("attributed", (3,), (), "persistent")


def test_an_outvoted_owner_that_is_still_odd_without_compilation_is_a_persistent_fault() -> None:
    assert ruled(dispute(eager_splits=True)) == ("attributed", (3,), (), "persistent")


def test_another_pair_that_the_owner_is_part_of_counts_as_its_second_batch() -> None:
    other = dispute(owner=1, partner=3, arbiter=None, arbiter_first=None)
    assert ruled(dispute(), other) == ("attributed", (3,), (), "persistent")


def test_an_outvoted_owner_on_one_batch_only_is_not_enough() -> None:
    assert ruled(dispute(second_batch_odd=False)) == ("undecided", (), (3, 5), "unknown")


def test_an_outvoted_owner_in_another_environment_is_not_accused() -> None:
    assert ruled(dispute(second_batch_odd=True, same_environment=False)) == ("undecided", (), (3, 5), "unknown")


def test_an_outvoted_partner_is_accused() -> None:
    assert ruled(dispute(arbiter_first=1)) == ("attributed", (5,), (), "persistent")
    assert ruled(dispute(arbiter_first=1, partner_second=None)) == ("attributed", (5,), (), "unknown")


def test_an_outvoted_partner_that_corrects_itself_is_a_transient_fault() -> None:
    assert ruled(dispute(arbiter_first=1, partner_second=1)) == ("attributed", (5,), (), "transient")


def test_pairs_that_no_single_node_explains_mean_that_the_job_does_not_repeat_itself() -> None:
    nodes = {0: "node-a", 1: "node-b", 2: "node-c", 3: "node-d"}
    settled = [dispute(0, 1, None, arbiter_first=None), dispute(2, 3, None, arbiter_first=None)]
    ruling = arbitrate(settled, nodes)
    assert (ruling.status, ruling.accused, ruling.candidates, ruling.deterministic) == (None, (), (), False)
    assert ruling.reasons_for == ("No single node is part of all 2 pairs that disagreed.",)


def test_ranks_of_two_nodes_that_do_not_reproduce_themselves_mean_the_same() -> None:
    ruling = arbitrate([dispute(owner_second=2, partner_second=7)], NODES)
    assert (ruling.status, ruling.deterministic, ruling.stands) == (None, False, False)
    assert ruling.reasons_for == ("Rank 3 (node-b) and rank 5 (node-c) do not reproduce their own results.",)


def test_two_kinds_of_node_in_one_job_accuse_nobody() -> None:
    nodes = {rank: f"node-{rank}" for rank in range(6)}
    odd_ones = [dispute(0, 1, 5, second_batch_odd=True), dispute(2, 3, 4, second_batch_odd=True)]
    assert not arbitrate(odd_ones, nodes).deterministic


def test_agreement_without_compilation_clears() -> None:
    assert ruled(dispute(eager_agrees=True, second_batch_odd=True)) == ("cleared", (), (), "unknown")


def test_an_arbiter_that_agrees_with_neither_decides_nothing() -> None:
    assert ruled(dispute(arbiter_first=9, second_batch_odd=True)) == ("undecided", (), (3, 5), "unknown")
    assert "agreed with neither" in arbitrate([dispute(arbiter_first=9)], NODES).reasons_against[0]


def test_two_nodes_and_an_owner_that_repeats_itself_are_undecided() -> None:
    assert ruled(dispute(arbiter=None, arbiter_first=None)) == ("undecided", (), (3, 5), "unknown")
    assert arbitrate([dispute(arbiter=None, arbiter_first=None)], NODES).stands


def test_undecided_does_not_stand_when_the_owner_does_not_repeat_itself() -> None:
    assert not arbitrate([dispute(owner_second=8, arbiter=None, arbiter_first=None)], NODES).stands


def test_an_arbiter_on_a_node_of_the_pair_or_in_a_dispute_with_another_may_not_judge() -> None:
    assert ruled(dispute(arbiter=4, second_batch_odd=True))[0] == "undecided"
    other = dispute(1, 2, None, arbiter_first=None, partner_first=7)
    assert ruled(dispute(arbiter=1, second_batch_odd=True), other)[0] == "undecided"


def test_three_ranks_on_three_nodes_settle_it_among_themselves() -> None:
    nodes = {0: "node-a", 1: "node-b", 2: "node-c"}
    owned = dispute(2, 0, 1, second_batch_odd=True)
    replayed = dispute(1, 2, 0, arbiter_first=1)
    ruling = arbitrate([owned, replayed], nodes)
    assert (ruling.status, ruling.accused, ruling.nature) == ("attributed", (2,), "persistent")


def test_pairs_that_agree_need_no_ruling() -> None:
    assert arbitrate([], NODES).status is None
    assert ruled(dispute(partner_first=1)) == (None, (), (), "unknown")


def test_a_broken_device_is_convicted_as_owner_and_as_partner() -> None:
    ruling = arbitrate([dispute(second_batch_odd=True), dispute(1, 3, 4, arbiter_first=1)], NODES)
    assert (ruling.accused, ruling.candidates, ruling.scope, ruling.confidence) == ((3,), (), "gpu", "exact")
    assert "Rank 5 (node-c) disagreed with rank 3 (node-b) on a batch of rank 3." in ruling.reasons_for
    assert "2 of 2 pairs that disagreed say the same." in ruling.reasons_for
    assert ruling.reasons_against == ("Rank 3 agreed with its own second run.",)


def test_two_broken_devices_of_one_node_are_the_node() -> None:
    ruling = arbitrate([dispute(3, 5, 0, second_batch_odd=True), dispute(2, 4, 1, second_batch_odd=True)], NODES)
    assert (ruling.accused, ruling.scope) == ((2, 3), "node")


def test_a_pair_the_accused_is_not_part_of_leaves_candidates() -> None:
    ruling = arbitrate([dispute(3, 5, 0, second_batch_odd=True), dispute(2, 4, 1, arbiter_first=9)], NODES)
    assert (ruling.accused, ruling.candidates) == ((3,), (2, 4))


def test_pairs_that_accuse_two_nodes_of_one_chain_are_undecided() -> None:
    ruling = arbitrate([dispute(3, 5, 0, arbiter_first=1), dispute(1, 3, 4, second_batch_odd=True)], NODES)
    assert (ruling.status, ruling.accused, ruling.candidates) == ("undecided", (), (1, 3, 5))


# --- replay, properties ----------------------------------------------------------------------------------------------

values = st.integers(0, 3)
maybe = st.none() | values
flag = st.none() | st.booleans()
disputes = st.builds(
    Dispute,
    owner=st.integers(0, 5),
    partner=st.integers(0, 5),
    arbiter=st.none() | st.integers(0, 5),
    owner_first=values,
    owner_second=maybe,
    partner_first=values,
    partner_second=maybe,
    arbiter_first=maybe,
    second_batch_odd=flag,
    eager_agrees=flag,
    eager_splits=flag,
    same_environment=st.booleans(),
)
rounds = st.lists(disputes.filter(lambda d: NODES[d.owner] != NODES[d.partner]), max_size=5)


@given(rounds)
def test_no_evidence_no_accusation(odd: list[Dispute]) -> None:
    ruling = arbitrate(odd, NODES)
    for rank in ruling.accused:
        assert any(proves(rank, d) for d in odd)


def proves(rank: int, d: Dispute) -> bool:
    """The rank contradicted itself in favour of the other, or two other nodes agree against it on the same batch."""
    first, second, other = (
        (d.owner_first, d.owner_second, d.partner_first)
        if rank == d.owner
        else (d.partner_first, d.partner_second, d.owner_first)
    )
    if rank not in (d.owner, d.partner) or first == other:
        return False
    return second == other or (d.arbiter_first == other and d.same_environment and not d.eager_agrees)


@given(rounds)
def test_a_replay_round_accuses_devices_of_one_node_at_most(odd: list[Dispute]) -> None:
    assert len({NODES[rank] for rank in arbitrate(odd, NODES).accused}) <= 1


@given(rounds)
def test_only_an_attributed_ruling_accuses_and_an_undecided_one_names_candidates(odd: list[Dispute]) -> None:
    ruling = arbitrate(odd, NODES)
    assert bool(ruling.accused) == (ruling.status == "attributed")
    assert ruling.status != "undecided" or len(ruling.candidates) >= 2
    assert ruling.deterministic or (ruling.status is None and not ruling.candidates)


@given(rounds, st.randoms())
def test_the_order_of_the_pairs_does_not_matter(odd: list[Dispute], random: object) -> None:
    shuffled = list({(d.owner, d.partner): d for d in odd}.values())
    before = arbitrate(shuffled, NODES)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert arbitrate(shuffled, NODES) == before


@given(rounds)
def test_a_rank_that_is_named_never_passes_the_round(odd: list[Dispute]) -> None:
    ruling = arbitrate(odd, NODES)
    passed = confirmed_ranks(PAIRS, odd, ruling)
    assert not passed & {*ruling.accused, *ruling.candidates}
    assert ruling.deterministic or not passed


def test_in_a_failed_round_a_rank_passes_when_another_node_confirms_its_batch() -> None:
    odd = [dispute(second_batch_odd=True), dispute(1, 3, 4, arbiter_first=1)]
    assert confirmed_ranks(PAIRS, odd, arbitrate(odd, NODES)) == {0, 1, 2, 4, 5}


def test_a_rank_whose_batch_was_not_replayed_does_not_pass() -> None:
    odd = [dispute(second_batch_odd=True)]
    assert confirmed_ranks({0: 2, 3: 5}, odd, arbitrate(odd, NODES)) == {0}


def test_a_named_rank_does_not_pass_on_its_own_batch_and_nobody_does_in_a_job_that_does_not_repeat_itself() -> None:
    odd = [dispute(1, 3, 4, arbiter_first=1)]
    assert confirmed_ranks(PAIRS, odd, arbitrate(odd, NODES)) == {0, 1, 2, 4, 5}
    odd = [dispute(owner_second=2, partner_second=7)]
    assert confirmed_ranks(PAIRS, odd, arbitrate(odd, NODES)) == set()


def test_an_owner_whose_batch_nobody_confirmed_does_not_pass() -> None:
    odd = [dispute(eager_agrees=True)]
    assert 3 not in confirmed_ranks(PAIRS, odd, arbitrate(odd, NODES))


# --- replicas --------------------------------------------------------------------------------------------------------

digests = st.dictionaries(st.integers(0, 5), st.integers(0, 3), max_size=6)


@given(digests)
def test_a_strict_majority_or_undecided(held: dict[int, int]) -> None:
    outcome, counts = majority(held), Counter(held.values())
    if outcome.result == "attributed":
        assert 2 * counts[outcome.expected] > len(held)  # type: ignore[index]
        assert outcome.odd == tuple(sorted(r for r in held if held[r] != outcome.expected))
    elif outcome.result == "passed":
        assert len(counts) <= 1
    else:
        assert 2 * max(counts.values()) <= len(held)
    assert (outcome.result == "software") == (len(held) >= 3 and len(counts) == len(held))


@given(digests)
def test_replicas_accuse_only_a_strict_minority(held: dict[int, int]) -> None:
    ruling = rule_replica(held, NODES)
    assert 2 * len(ruling.accused) < max(1, len(held))
    assert bool(ruling.accused) == (ruling.status == "attributed")


@pytest.mark.parametrize(
    ("held", "status", "accused", "candidates", "scope"),
    [
        ([1, 1, 1, 1, 1, 1], None, (), (), "job"),
        ([1, 1, 1, 9, 1, 1], "attributed", (3,), (), "gpu"),
        ([1, 1, 8, 9, 1, 1], "attributed", (2, 3), (), "node"),
        ([8, 1, 1, 9, 1, 1], "attributed", (0, 3), (), "group"),
        ([1, 1, 1, 9, 9, 9], "undecided", (), (0, 1, 2, 3, 4, 5), "gpu"),
        ([1, 9], "undecided", (), (0, 1), "gpu"),
        ([1, 2, 3], "confirmed", (), (), "job"),
    ],
)
def test_replica_rulings(
    held: list[int], status: str | None, accused: tuple[int, ...], candidates: tuple[int, ...], scope: str
) -> None:
    ruling = rule_replica(dict(enumerate(held)), NODES)
    assert (ruling.status, ruling.accused, ruling.candidates, ruling.scope) == (status, accused, candidates, scope)


def test_the_tensor_that_differs_is_named() -> None:
    ruling = rule_replica(dict(enumerate([1, 1, 1, 9, 1, 1])), NODES, "blocks.0.mlp.weight")
    assert ruling.reasons_for == (
        "5 of 6 replicas hold the same bits; rank 3 (node-b) held others.",
        "The first tensor that differs is blocks.0.mlp.weight.",
    )


# --- finite ----------------------------------------------------------------------------------------------------------


def nan(owner: int = 3, **values: object) -> Dispute:
    return dispute(
        owner,
        PAIRS.get(owner, owner + 8),
        None,
        **({"owner_first": 1, "partner_first": 0, "arbiter_first": None} | values),
    )


@pytest.mark.parametrize(
    ("replay", "status", "nature"),
    [
        (nan(owner_second=0, partner_second=None), "attributed", "transient"),
        (nan(owner_second=1, partner_second=None), "attributed", "persistent"),
        (nan(owner_second=None, partner_second=None), "attributed", "unknown"),
        (nan(owner_second=1, partner_first=1), "cleared", "unknown"),
        (nan(owner_second=1, same_environment=False), "undecided", "unknown"),
    ],
)
def test_a_non_finite_step_is_ruled_by_its_immediate_replay(replay: Dispute, status: str, nature: str) -> None:
    ruling = rule_finite({3: "local"}, [replay], NODES)
    assert (ruling.status, ruling.nature) == (status, nature)
    assert ruling.accused == ((3,) if status == "attributed" else ())


def test_a_non_finite_step_without_a_replay_is_suspicious_and_accuses_nobody() -> None:
    ruling = rule_finite({3: "local"}, [], NODES)
    assert (ruling.status, ruling.accused, ruling.candidates, ruling.stands) == ("suspicious", (), (), False)


def test_a_non_finite_sum_of_finite_gradients_is_suspicious() -> None:
    assert rule_finite({}, [], NODES).status == "suspicious"


def test_each_non_finite_rank_stands_on_its_own_evidence() -> None:
    ruling = rule_finite({0: "local", 3: "local"}, [nan(0, partner_first=1), nan(3, owner_second=0)], NODES)
    assert (ruling.status, ruling.accused, ruling.nature) == ("attributed", (3,), "transient")


def test_non_finite_everywhere_and_everywhere_again_is_cleared() -> None:
    ruling = rule_finite(dict.fromkeys(range(6), "loss"), [nan(r, partner_first=1) for r in range(6)], NODES)
    assert (ruling.status, ruling.scope, ruling.accused) == ("cleared", "job", ())


def test_one_rank_that_was_not_replayed_keeps_the_step_suspicious() -> None:
    assert rule_finite({0: "loss", 3: "loss"}, [nan(0, partner_first=1)], NODES).status == "suspicious"


@given(st.dictionaries(st.integers(0, 5), st.sampled_from(["loss", "local"])), rounds)
def test_only_a_finite_replay_elsewhere_accuses_a_non_finite_rank(stages: dict[int, str], odd: list[Dispute]) -> None:
    by_owner = {d.owner: d for d in odd}
    for rank in rule_finite(stages, list(by_owner.values()), NODES).accused:
        assert rank in stages
        assert by_owner[rank].partner_first == 0


# --- conservation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "world", "status", "accused", "candidates"),
    [
        ([], 6, "confirmed", (), ()),
        ([3], 6, "attributed", (3,), ()),
        ([2, 3], 6, "attributed", (2, 3), ()),
        ([1, 2, 3], 6, "undecided", (), (0, 1, 2, 3, 4, 5)),
        ([1], 2, "undecided", (), (0, 1)),
    ],
)
def test_conservation_rulings(
    odd: list[int], world: int, status: str, accused: tuple[int, ...], candidates: tuple[int, ...]
) -> None:
    ruling = rule_conservation(odd, world, NODES, bucket=0)
    assert (ruling.status, ruling.accused, ruling.candidates) == (status, accused, candidates)


@given(st.sets(st.integers(0, 5)), st.integers(2, 6))
def test_conservation_accuses_only_a_strict_minority(odd: set[int], world: int) -> None:
    ruling = rule_conservation(sorted(r for r in odd if r < world), world, NODES, 1)
    assert 2 * len(ruling.accused) < world


# --- symptoms of the whole job ---------------------------------------------------------------------------------------

FLEET = {rank: f"node-{rank // 8:04}" for rank in range(4096)}


def test_non_finite_everywhere_is_told_in_few_sentences_and_names_nobody() -> None:
    everywhere = [nan(rank, partner_first=1) for rank in FLEET]
    ruling = rule_finite(dict.fromkeys(FLEET, "loss"), everywhere, FLEET)
    assert (ruling.status, ruling.scope, ruling.accused, ruling.candidates) == ("cleared", "job", (), ())
    assert ruling.reasons_for[0] == (
        "All 4096 ranks were not finite in this step: what they share made it, and no rank stands out."
    )
    assert ruling.reasons_for[-1] == "The same holds for 4093 more ranks."
    assert len(ruling.reasons_for) == 5


def test_a_device_among_many_cleared_ranks_is_still_the_first_that_is_said() -> None:
    found = [nan(rank, partner_first=1) for rank in FLEET if rank != 3] + [nan(3, owner_second=1)]
    ruling = rule_finite(dict.fromkeys(FLEET, "local"), found, FLEET)
    assert (ruling.status, ruling.accused) == ("attributed", (3,))
    assert "rank 3 (node-0000)" in ruling.reasons_for[0]
    assert ruling.reasons_against[-1] == "The same holds for 4092 more ranks."
    assert len(ruling.reasons_against) <= 5


def test_non_finite_on_many_nodes_and_finite_elsewhere_accuses_none_of_them() -> None:
    many = range(0, 800, 8)
    ruling = rule_finite(dict.fromkeys(many, "loss"), [nan(rank, owner_second=0) for rank in many], FLEET)
    assert (ruling.status, ruling.scope, ruling.accused, ruling.candidates) == ("confirmed", "job", (), ())
    assert ruling.reasons_against == (
        "100 ranks of 100 nodes share it: look at what they have in common, not at one of them.",
    )


@pytest.mark.parametrize(
    ("odd", "status", "accused"),
    [
        (range(8), "attributed", tuple(range(8))),  # one node
        (range(16), "attributed", tuple(range(16))),  # two nodes
        (range(0, 64, 8), "attributed", tuple(range(0, 64, 8))),  # as many as one looks at
        (range(0, 72, 8), "confirmed", ()),
        (range(2047), "confirmed", ()),
        (range(2048), "confirmed", ()),  # no majority
    ],
)
def test_replicas_and_results_that_differ_alike_on_many_nodes_accuse_nobody(
    odd: range, status: str, accused: tuple[int, ...]
) -> None:
    for ruling in (
        rule_replica({rank: int(rank in odd) for rank in FLEET}, FLEET, "layers.0"),
        rule_conservation(odd, len(FLEET), FLEET, bucket=0),
    ):
        assert (ruling.status, ruling.accused, ruling.candidates) == (status, accused, ())


def test_a_pair_that_may_have_run_other_kernels_and_agrees_without_them_does_not_disagree() -> None:
    facts = {"owner": 0, "partner": 1, "arbiter": None, "owner_first": 1, "owner_second": 2, "partner_first": 2}
    told = {**facts, "partner_second": 2, "arbiter_first": None, "eager_agrees": True}
    nodes = {0: "a", 1: "b"}
    assert arbitrate([Dispute(**told)], nodes).status == "attributed"  # type: ignore[arg-type]
    assert arbitrate([Dispute(**told, recompiled=True)], nodes).status is None  # type: ignore[arg-type]


def test_a_parameter_that_is_not_averaged_accuses_nobody() -> None:
    ruling = rule_unreduced("middle.weight")
    assert (ruling.status, ruling.accused, ruling.candidates) == ("confirmed", (), ())
