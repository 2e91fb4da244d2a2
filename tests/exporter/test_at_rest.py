"""Hold the look itself: which bits are read when, and what counts as written."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lastgood.at_rest import AtRest, Changed, parts, phase_of
from lastgood.verdict import rule_at_rest

NODES = {0: "node-a", 1: "node-b", 2: "node-c"}


def sample(*tensors: torch.Tensor) -> AtRest:
    look = AtRest()
    look.begin([(f"t{n}", tensor) for n, tensor in enumerate(tensors)], 0)
    return look


def test_nothing_changed_is_none_and_a_look_ends_once() -> None:
    look = sample(torch.ones(4))
    assert look.begun
    assert look.end() is None
    assert not look.begun


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_one_bit_is_seen_in_every_type(dtype: torch.dtype) -> None:
    first, second = torch.ones(1000).to(dtype), torch.ones(7).to(dtype)
    look = sample(first, second)
    second.data.view(torch.uint8)[3] ^= 1
    found = look.end()
    assert isinstance(found, Changed)
    assert found.tensor == "t1"
    assert found.observed != found.expected


def test_what_autograd_recorded_or_exchanged_was_written() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    look = sample(weight.detach())
    with torch.no_grad():
        weight.mul_(2)
    assert look.end() is None


def test_a_large_tensor_is_cut_and_its_pieces_take_turns() -> None:
    weight = torch.zeros(100)
    cut = parts([("a", torch.zeros(10)), ("w", weight), ("z", torch.zeros(5))], most_bytes=160)
    assert [[name for name, _ in part] for part in cut] == [["a"], ["w[0:40]"], ["w[40:80]"], ["w[80:100]", "z"]]
    assert cut[1][0][1].data_ptr() == weight.data_ptr()


@given(st.lists(st.integers(0, 300), max_size=20), st.integers(4, 200).map(lambda n: 4 * n))
def test_the_parts_hold_every_value_once_and_no_part_is_too_large(sizes: list[int], most: int) -> None:
    cut = parts([(f"t{n}", torch.zeros(size)) for n, size in enumerate(sizes)], most_bytes=most)
    assert sum(piece.numel() for part in cut for _, piece in part) == sum(sizes)
    assert all(sum(4 * piece.numel() for _, piece in part) <= most for part in cut)
    assert [] not in cut


def test_every_part_has_its_turn() -> None:
    tensors = [(f"t{n}", torch.ones(8 << 20)) for n in range(3)]  # 32 MiB each, two to a part
    look = AtRest()
    seen = set()
    for turn in range(2):
        look.begin(tensors, turn)
        seen.add(look.phase)
        tensors[2][1].data[0] = float(turn + 5)
        found = look.end()
        assert (found is None) == (turn == 0)
    assert seen == {"part 1 of 2", "part 2 of 2"}
    assert phase_of(5, 1) == "loop"


def test_odd_tensors_do_no_harm() -> None:
    look = sample(torch.ones(0), torch.ones(3, 4).t(), torch.tensor(1.0), torch.ones(4, dtype=torch.complex64))
    assert look.end() is None
    sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (3,), check_invariants=True)
    assert parts([("s", sparse)]) == []
    assert not sample(sparse).begun


def test_one_rank_among_others_is_its_device_everything_else_accuses_nobody() -> None:
    assert rule_at_rest([1], NODES, "w").accused == (1,)
    for odd, nodes in (([0], {0: "node-a"}), ([0, 1], NODES), ([0, 1, 2], NODES)):
        ruling = rule_at_rest(odd, nodes, "w")
        assert (ruling.status, ruling.accused, ruling.candidates, ruling.stands) == ("suspicious", (), (), False)
