"""Decisions that come a step late: the flag on the device, the guard that obeys it, real training on three ranks."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exporter.ranks import run_ranks
from tests.exporter.syncs import counted, of_lastgood

from lastgood.guard import Guard, is_first_step, is_fused, way_of
from lastgood.late import Armed, LateReading, is_kept_out
from lastgood.readback import AtOnce, LateOnHost, readback_for
from lastgood.stepvector import step_mark, unpack

SCRIPT = Path(__file__).with_name("late_cases.py")
OPTIMIZERS = ("fused AdamW", "fused SGD", "AdamW")


@pytest.mark.parametrize(
    ("late", "fused", "first_step", "way"),
    [
        (False, False, False, "at_once"),
        (False, False, True, "at_once"),
        (False, True, False, "at_once"),
        (False, True, True, "at_once"),
        (True, False, False, "host_read"),
        (True, False, True, "host_read"),
        (True, True, False, "on_device"),
        (True, True, True, "host_read"),
    ],
)
def test_how_the_guard_learns_of_a_decision(late: bool, fused: bool, first_step: bool, way: str) -> None:
    assert way_of(late=late, fused=fused, first_step=first_step) == way


def one_step(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter, grad: float = 1.0) -> None:
    parameter.grad = torch.full_like(parameter, grad)
    optimizer.step()


MAKES: dict[str, Any] = {
    "AdamW": (torch.optim.AdamW, {"fused": True}, True, True),
    "Adam": (torch.optim.Adam, {"fused": True}, True, True),
    "SGD with momentum": (torch.optim.SGD, {"fused": True, "momentum": 0.9}, True, True),
    "SGD without": (torch.optim.SGD, {"fused": True}, True, False),
    "not fused": (torch.optim.AdamW, {}, False, True),
    "foreach": (torch.optim.AdamW, {"foreach": True}, False, True),
    "another": (torch.optim.RMSprop, {}, False, True),
}


@pytest.mark.parametrize("name", MAKES)
def test_which_optimizers_obey_a_flag_and_when_they_make_state(name: str) -> None:
    kind, options, fused, makes_state = MAKES[name]
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = kind([parameter], lr=0.1, **options)
    parameter.grad = torch.ones(3)
    assert is_fused(optimizer) is fused
    assert is_first_step(optimizer) is makes_state
    optimizer.step()
    assert not is_first_step(optimizer)
    late = torch.nn.Parameter(torch.ones(2))
    late.grad = torch.ones(2)
    optimizer.add_param_group({"params": [late]})
    assert is_first_step(optimizer) is makes_state


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("flag", [0.0, 1.0])
def test_a_held_step_leaves_weights_and_state_bitwise(kind: Any, flag: float) -> None:
    parameter = torch.nn.Parameter(torch.randn(5))
    more = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind([parameter], lr=0.1, fused=True, **more)
    one_step(optimizer, parameter)
    before = [parameter.detach().clone(), *(v.clone() for v in optimizer.state[parameter].values())]
    guard = Guard()
    guard.hold(optimizer, torch.tensor(flag))
    one_step(optimizer, parameter, math.nan)
    guard.restore()
    after = [parameter.detach(), *optimizer.state[parameter].values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)) == bool(flag)
    assert not hasattr(optimizer, "found_inf")


@pytest.mark.parametrize(("scalers", "ours", "skipped"), [(0.0, 0.0, False), (1.0, 0.0, True), (0.0, 1.0, True)])
def test_a_loss_scaler_keeps_its_own_flag(scalers: float, ours: float, skipped: bool) -> None:
    parameter = torch.nn.Parameter(torch.randn(5))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=True)
    one_step(optimizer, parameter)
    before, flag = parameter.detach().clone(), torch.tensor(scalers)
    optimizer.found_inf = flag  # as GradScaler.step does, which deletes it afterwards
    guard = Guard()
    guard.hold(optimizer, torch.tensor(ours))
    one_step(optimizer, parameter)
    guard.restore()
    assert torch.equal(before, parameter) == skipped
    assert optimizer.found_inf is flag


numbers = st.sampled_from([0.0, 1.0, -1.0, 2.5, 1e-30, 1e20]) | st.floats(-10, 10)


@given(
    rows=st.lists(st.tuples(numbers, numbers, st.sampled_from([0.0, 1.0, 9.0, 1e-60])), max_size=3),
    nudge=st.sampled_from([0.0, 1e-9, 1e-3, 1.0]),
    flags=st.tuples(*(st.sampled_from([0.0, 0.0, 0.0, 1.0]) for _ in range(5))),
    same_step=st.booleans(),
    floor=st.sampled_from([0.0, 1e-3]),
    armed=st.builds(
        Armed,
        finite=st.booleans(),
        conservation=st.booleans(),
        checked=st.booleans(),
        narrow=st.booleans(),
        limit=st.sampled_from([4e-6, 1e-2, math.inf]),
    ),
)
@settings(max_examples=400, deadline=None)
def test_the_flag_is_what_the_verdict_will_say(
    rows: list[tuple[float, float, float]],
    nudge: float,
    flags: tuple[float, ...],
    same_step: bool,
    floor: float,
    armed: Armed,
) -> None:
    world = 3
    mark = step_mark(7)
    cells = [c for before, other, square in rows for c in (before, before + nudge * other, square)]
    total = [*cells, *flags, world * mark, world * mark**2 + (0 if same_step else 1)]
    floors = (floor,) * len(rows)
    facts = unpack(total, world, floors)
    bad = armed.checked and any(ratio > armed.limit for ratio in facts.ratios)
    found = ""
    if not facts.same_step:
        found = ""
    elif facts.nonfinite_loss or facts.nonfinite_local or (facts.nonfinite_reduced and (not bad or armed.narrow)):
        found = "finite"
    elif bad:
        found = "conservation"
    flag = is_kept_out(torch.tensor(total, dtype=torch.float64), world, floors, armed)
    assert bool(flag) == armed.keeps_out(found)
    assert flag.dtype == torch.float32


def test_numbers_of_a_cpu_are_read_in_the_step_itself() -> None:
    assert isinstance(readback_for(torch.device("cpu")), AtOnce)


def test_numbers_that_are_late_are_those_that_were_sent() -> None:
    vector = torch.arange(3.0, dtype=torch.float64)
    pending = LateOnHost().send(vector)
    vector.zero_()
    assert pending.numbers() == [0.0, 1.0, 2.0]


READS: dict[str, Any] = {
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool(x[0]),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "index": lambda x: [1, 2][x[0].int()],
    "cpu": lambda x: x.cpu(),
    "numpy": lambda x: x.numpy(),
    "nonzero": lambda x: x.nonzero(),
    "equal": lambda x: torch.equal(x, x + 1),
}


@pytest.mark.parametrize("way", READS)
def test_the_counter_sees_every_way_to_read_a_number(way: str) -> None:
    x = torch.ones(2)
    with counted() as seen:
        READS[way](x)
    assert seen
    with counted() as nothing:
        (x * 2).sum()
    assert nothing == []


def test_the_counter_sees_a_step_that_is_read_at_once() -> None:
    sent: Any = SimpleNamespace(step=1)
    nothing: Any = None
    late = LateReading(2, is_due=lambda step: True, arm=nothing, on_kept=nothing, judge=nothing)
    with counted() as seen:
        assert not late.keep(sent)
    assert of_lastgood(seen) == ["at once in lastgood/late.py:keep"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    root = tmp_path_factory.mktemp("late")
    environ = {"LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}
    lines = run_ranks(SCRIPT, [str(root)], nodes=["node-a", "node-b", "node-c"], environ=environ)
    return [dict(rank) for rank in lines]


@pytest.mark.torchrun
@pytest.mark.slow
class TestOnRanks:
    """Three ranks train for real; their numbers are read a step late."""

    def test_weights_are_the_same_with_and_without(self, seen: list[dict[str, Any]]) -> None:
        assert all(rank["same_weights"]["equal"] for rank in seen)

    def test_every_check_ran_and_passed(self, seen: list[dict[str, Any]]) -> None:
        result = seen[0]["same_weights"]
        assert result["findings"] == []
        assert {c[2] for c in result["checks"]} == {"passed"}
        assert {tuple(c[:2]) for c in result["checks"]} >= {
            ("replica", "loop"),
            ("replay", "first"),
            ("replay", "audit"),
        }
        assert result["passed"] == {"finite": 15, "conservation": 15, "replica": 15, "replay": 15}

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_a_step_that_is_not_finite_stays_out_and_is_known_a_step_later(
        self, seen: list[dict[str, Any]], name: str
    ) -> None:
        for rank in seen:
            assert rank["a_nan_is_kept_out"][name]["kept"]
            assert rank["a_nan_is_kept_out"][name]["moved"], "the step after it must train again"
        result = seen[0]["a_nan_is_kept_out"][name]
        assert result["known_at_once"] == []
        assert ["finite", 3, True] in result["told"]
        assert result["all"] == result["told"]
        assert result["verdicts"] == [["attributed", "skip"]]
        assert result["step"] == 7

    def test_a_wrong_average_stops_the_job_a_step_later(self, seen: list[dict[str, Any]]) -> None:
        texts = {rank["a_wrong_average_stops_a_step_later"]["text"] for rank in seen}
        assert len(texts) == 1
        assert "inside the reduce at step 3" in texts.pop()
        result = seen[0]["a_wrong_average_stops_a_step_later"]
        assert (result["known_at_once"], result["told"]) == ([], [["conservation", 3, True]])
        assert result["kept"]
        assert result["untouched"]
        assert result["ended"] == [["integrity", 4]]

    def test_under_record_it_enters_the_weights_and_is_not_contained(self, seen: list[dict[str, Any]]) -> None:
        result = seen[0]["under_record_it_enters_the_weights"]
        assert result["entered"]
        assert result["told"] == [["conservation", 3, False]]
        why = "the step was in the weights before it was judged"
        assert result["immediate"] == [["replica", "passed", ""], ["replay", "not_run", why]]

    def test_the_first_step_of_an_optimizer_is_kept_out_by_a_host_read(self, seen: list[dict[str, Any]]) -> None:
        for rank in seen:
            assert rank["an_optimizers_first_step"]["kept"]
            assert rank["an_optimizers_first_step"]["momentum"] < 100
        assert seen[0]["an_optimizers_first_step"]["told"] == [["finite", 1, True]]

    @pytest.mark.parametrize("when", ["save", "close"])
    def test_the_last_step_is_judged_before(self, seen: list[dict[str, Any]], when: str) -> None:
        result = seen[0]["the_last_step_is_judged_before_a_save_and_at_close"][when]
        assert result["known_at_once"] == []
        assert "inside the reduce at step 4" in result["text"]
        assert result["told"] == [["conservation", 4, True]]

    def test_one_wrong_reduce_of_several_keeps_the_step_out(self, seen: list[dict[str, Any]]) -> None:
        result = seen[0]["accumulation_with_a_reduce_per_micro_batch"]
        assert result["kept"]
        assert result["moved"]
        assert result["told"] == [["conservation", 3, True]]

    @pytest.mark.parametrize(("name", "reads"), [("fused AdamW", 0), ("fused SGD", 0), ("AdamW", 3)])
    def test_a_clean_step_never_waits_for_the_device(self, seen: list[dict[str, Any]], name: str, reads: int) -> None:
        """Three steps between two audits; an optimizer that is not fused costs one read a step."""
        for rank in seen:
            calls = of_lastgood(rank["nothing_waits_for_the_device"][name]["watched"])
            assert [c for c in calls if not c.startswith("aten")] == [
                "__bool__ in lastgood/monitor.py:_obey_the_device"
            ] * reads
            assert len([c for c in calls if c.startswith("aten")]) == reads

    def test_a_look_at_the_costs_waits_for_no_device_either(self, seen: list[dict[str, Any]]) -> None:
        for rank in seen:
            result = rank["nothing_waits_with_a_budget"]
            assert of_lastgood(result["seen"]) == []
            shares = result["shares"].values()
            assert [share is None for share in shares] == [True, True, False, False], "it ends two updates later"

    def test_a_reduce_waits_for_the_read_of_its_bucket_and_the_backward_for_nothing(
        self, seen: list[dict[str, Any]]
    ) -> None:
        for rank in seen:
            result = rank["what_a_reduce_waits_for"]
            assert result["buckets"] > 1
            assert result["places"] == ["side 2"]
            assert result["reduce_waits"]
            assert not result["backward_waits"]
            assert not result["reduce_waits_for_the_whole_backward"]
            assert result["end_waits"]
