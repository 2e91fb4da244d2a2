"""The fault injector on real modules: what it corrupts, what it leaves alone, and the truth it writes."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import nn

from lastgood.corruption import corrupt_, without_targets
from lastgood.errors import ConfigError
from lastgood.faults import NAMED, SITES, Fault, Injector, fault_named
from lastgood.injection_points import InjectionPoints, NoInjection
from lastgood.schema import problem

Pair = namedtuple("Pair", ["inputs", "targets"])


class Journal:
    """A list where the journal is."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any], int]] = []

    def __call__(self, type: str, data: Any, *, step: int) -> None:
        self.lines.append((type, dict(data), step))


def armed(fault: Fault, rank: int | None = None) -> tuple[Injector, Journal]:
    journal = Journal()
    injector = Injector(fault, fault.rank if rank is None else rank, journal)
    injector.arm()
    return injector, journal


class Training:
    """A small real training whose points are called as the monitor calls them."""

    def __init__(self, injector: InjectionPoints, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 16, dtype=dtype)
        self.model = nn.Sequential(self.layer, nn.GELU(), nn.Linear(16, 4, dtype=dtype))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.injector = injector
        self.batch = (torch.randn(32, 8, dtype=dtype), torch.randint(0, 4, (32,)))
        self.loss = math.nan

    def gradients(self) -> list[torch.Tensor]:
        """Backward of the batch, without the training's ``.grad``: what a replay does."""
        loss = nn.functional.cross_entropy(self.model(self.batch[0]), self.batch[1])
        return list(torch.autograd.grad(loss, list(self.model.parameters())))

    def step(self, number: int) -> None:
        self.injector.on_step(number)
        inputs, targets = self.injector.batch(number, self.batch)
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.loss = float(loss.detach())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.injector.after_update(number, self.model, self.optimizer)

    def numbers(self) -> dict[str, torch.Tensor]:
        names = {p: n for n, p in self.model.named_parameters()}
        states = self.optimizer.state.items()
        out = {f"{names[p]}.{k}": t.clone() for p, state in states for k, t in state.items()}
        return out | {n: p.detach().clone() for n, p in self.model.named_parameters()}


def changed(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> dict[str, int]:
    return {n: int((a[n] != b[n]).sum()) for n in a if not torch.equal(a[n], b[n])}


@pytest.mark.parametrize("name", NAMED)
def test_an_injector_that_nobody_armed_does_nothing(name: str) -> None:
    injector = Injector(fault_named(name, rank=0, step=2), 0)
    faulty, clean = Training(injector), Training(NoInjection())
    injector.wrap(faulty.layer)
    for step in (1, 2, 3):
        faulty.step(step)
        clean.step(step)
    assert changed(faulty.numbers(), clean.numbers()) == {}
    assert not injector.injections


@pytest.mark.parametrize("name", sorted(set(NAMED) - {"reduce-all"}))
def test_a_fault_on_another_rank_does_nothing(name: str) -> None:
    injector, journal = armed(fault_named(name, rank=1, step=1), rank=0)
    training = Training(injector)
    injector.wrap(training.layer)
    training.step(1)
    bucket = torch.ones(10)
    injector.bucket(0, bucket, 1)
    injector.reduced(0, bucket, 1, 0)
    assert journal.lines == []
    assert torch.equal(bucket, torch.ones(10))


@pytest.mark.parametrize(("name", "ending"), [("weight", ""), ("optimizer", (".exp_avg", ".exp_avg_sq"))])
@pytest.mark.parametrize("seed", range(8))
def test_one_bit_of_one_number_flips_after_the_update(name: str, ending: Any, seed: int) -> None:
    injector, journal = armed(fault_named(name, rank=0, step=2, seed=seed))
    faulty, clean = Training(injector), Training(NoInjection())
    for step in (1, 2):
        faulty.step(step)
        clean.step(step)
    (line,) = journal.lines
    tensor = line[1]["tensor"]
    assert changed(faulty.numbers(), clean.numbers()) == {tensor: 1}
    assert tensor.endswith(ending)
    assert all(t.isfinite().all() for t in faulty.numbers().values())


@pytest.mark.parametrize("name", ["weight", "optimizer"])
@pytest.mark.parametrize("seed", range(8))
def test_the_flip_is_still_there_eight_updates_later(name: str, seed: int) -> None:
    injector, _ = armed(fault_named(name, rank=0, step=1, seed=seed))
    faulty, clean = Training(injector), Training(NoInjection())
    for step in range(1, 10):
        faulty.step(step)
        clean.step(step)
    assert changed(faulty.numbers(), clean.numbers())


def test_wrapping_changes_no_bit_of_a_healthy_training() -> None:
    injector, _ = armed(fault_named("gradient", rank=0, step=99))
    wrapped, plain = Training(injector), Training(NoInjection())
    injector.wrap(wrapped.layer)
    for step in (1, 2, 3):
        wrapped.step(step)
        plain.step(step)
    assert changed(wrapped.numbers(), plain.numbers()) == {}


def test_the_wrong_gradient_is_finite_plausible_and_hardly_seen_in_the_loss() -> None:
    injector, journal = armed(fault_named("gradient", rank=0, step=3))
    faulty, clean = Training(injector), Training(NoInjection())
    injector.wrap(faulty.layer)
    for step in range(1, 31):
        faulty.step(step)
        clean.step(step)
        assert (changed(faulty.numbers(), clean.numbers()) != {}) == (step >= 3)
    assert clean.loss <= faulty.loss < 1.25 * clean.loss < 1.0
    assert [line[2] for line in journal.lines] == list(range(3, 31))
    assert "times 10, 32 values from flat index" in journal.lines[0][1]["detail"]


def test_a_permanent_fault_acts_alike_in_the_devices_own_replays() -> None:
    injector, _ = armed(fault_named("gradient", rank=0, step=1))
    faulty, clean = Training(injector), Training(NoInjection())
    injector.wrap(faulty.layer)
    injector.on_step(1)
    first, second = faulty.gradients(), faulty.gradients()
    assert all(map(torch.equal, first, second))
    assert [torch.equal(a, b) for a, b in zip(first, clean.gradients(), strict=True)] == [False, False, True, True]


@pytest.mark.parametrize("kind", ["nan", "inf", "scale", "bit"])
def test_a_once_fault_leaves_the_replay_right_after_it_clean(kind: str) -> None:
    injector, journal = armed(Fault("gradient", kind, 0, 5))
    faulty, clean = Training(injector), Training(NoInjection())
    injector.wrap(faulty.layer)
    injector.on_step(5)
    wrong, again, right = faulty.gradients(), faulty.gradients(), clean.gradients()
    assert not torch.equal(wrong[0], right[0])
    assert bool(wrong[0].isfinite().all()) == (kind in ("scale", "bit"))
    assert all(map(torch.equal, again, right))
    assert len(journal.lines) == 1
    assert not injector.armed


def test_ignored_targets_make_the_loss_not_a_number_on_any_device_that_runs_the_batch() -> None:
    injector, journal = armed(fault_named("data", rank=0, step=1))
    training = Training(injector)
    wrong = injector.batch(1, training.batch)
    assert math.isnan(float(nn.functional.cross_entropy(training.model(wrong[0]), wrong[1]).detach()))
    assert torch.equal(wrong[0], training.batch[0])
    assert int(training.batch[1].min()) >= 0
    assert injector.batch(1, training.batch) is training.batch
    assert journal.lines[0][1]["tensor"] == "targets"


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_rank_gets_the_same_wrong_result_of_reduce_all(rank: int) -> None:
    injector, journal = armed(fault_named("reduce-all", rank=1, step=4), rank=rank)
    tensor = torch.linspace(-1, 1, 5000)
    injector.bucket(0, tensor, 4)
    injector.reduced(1, tensor, 4, rank)
    assert torch.equal(tensor, torch.linspace(-1, 1, 5000))
    injector.reduced(0, tensor, 4, rank)
    wrong = (tensor != torch.linspace(-1, 1, 5000)).nonzero().tolist()
    assert len(wrong) == 1
    assert journal.lines == [("injection", dict(injector.injections[0]), 4)]
    assert injector.injections[0]["rank"] == rank
    reference = torch.linspace(-1, 1, 5000)
    assert corrupt_(reference, "scale", seed=0) is not None
    assert torch.equal(tensor, reference)


@pytest.mark.parametrize("site", ["bucket", "reduce-one"])
def test_a_bucket_fault_hits_one_value_once(site: str) -> None:
    injector, journal = armed(Fault(site, "scale", 0, 4, factor=2.0, bucket=1))
    tensors = {index: torch.arange(1.0, 101.0) for index in (0, 1)}
    for step in (3, 4, 5):
        for index, tensor in tensors.items():
            injector.bucket(index, tensor, step)
            injector.reduced(index, tensor, step, 0)
    assert torch.equal(tensors[0], torch.arange(1.0, 101.0))
    assert int((tensors[1] != torch.arange(1.0, 101.0)).sum()) == 1
    assert [line[2] for line in journal.lines] == [4]


@pytest.mark.parametrize("name", NAMED)
def test_every_injection_is_an_event_that_the_schema_allows(name: str) -> None:
    injector, journal = armed(fault_named(name, rank=0, step=1))
    training = Training(injector)
    injector.wrap(training.layer)
    training.step(1)
    injector.bucket(0, torch.ones(5), 1)
    injector.reduced(0, torch.ones(5), 1, 0)
    ((kind, data, step),) = journal.lines
    assert (kind, step) == ("injection", 1)
    assert problem("injection", data) is None
    assert {"site", "fault", "step", "rank", "tensor", "detail", "permanent"} <= set(data)
    assert data["site"] == NAMED[name][0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[::2, 1:5]], ids=["plain", "t", "strided"])
@pytest.mark.parametrize("kind", ["bit", "scale", "nan", "inf"])
def test_exactly_the_chosen_values_change_whatever_the_strides(dtype: torch.dtype, view: Any, kind: str) -> None:
    whole = torch.randn(12, 9, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = whole.clone()
    detail = corrupt_(view(whole), kind, seed=3, width=2)
    wrong = ~((view(whole) == view(before)) | (view(whole).isnan() & view(before).isnan()))
    assert 1 <= int(wrong.sum()) == int((whole != before).sum()) <= (1 if kind == "bit" else 2)
    assert detail is not None
    if kind == "bit":
        assert whole.isfinite().all()


@pytest.mark.parametrize("bit", [0, 22, 30, 31])
def test_a_given_bit_is_the_one_that_flips(bit: int) -> None:
    tensor = torch.tensor([1.5])
    corrupt_(tensor, "bit", seed=0, bit=bit)
    difference = int(tensor.view(torch.int32)) ^ int(torch.tensor([1.5]).view(torch.int32))
    assert difference % 2**32 == 1 << bit


def test_a_bit_outside_the_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bit 16 of a torch\.bfloat16 value: it has the bits 0 to 15; choose"):
        corrupt_(torch.ones(2, dtype=torch.bfloat16), "bit", seed=0, bit=16)


@pytest.mark.parametrize("tensor", [torch.zeros(20), torch.zeros(0), torch.arange(5)], ids=["zeros", "empty", "ints"])
def test_where_nothing_can_change_nothing_is_reported(tensor: torch.Tensor) -> None:
    injector, journal = armed(Fault("bucket", "scale", 0, 1))
    injector.bucket(0, tensor, 1)
    assert journal.lines == []
    assert injector.armed


def test_a_scalar_parameter_can_be_hit() -> None:
    tensor = torch.tensor(2.0)
    assert str(corrupt_(tensor, "scale", seed=0)) == "times 10, value at flat index 0: 2 -> 20"
    assert float(tensor) == 20.0


@pytest.mark.parametrize(
    "batch",
    [
        (torch.ones(2, 3), torch.tensor([1, 2])),
        [torch.ones(2, 3), torch.tensor([1, 2])],
        Pair(torch.ones(2, 3), torch.tensor([1, 2])),
        {"labels": torch.tensor([1, 2]), "x": torch.ones(2, 3)},
        {"a": torch.ones(2, 3), "b": torch.tensor([1, 2]), "name": "text"},
        torch.tensor([1, 2]),
    ],
    ids=["tuple", "list", "namedtuple", "named", "dictionary", "tensor"],
)
def test_targets_are_found_in_the_usual_batches(batch: Any) -> None:
    wrong = without_targets(batch)
    assert type(wrong) is type(batch)
    values = wrong.values() if isinstance(wrong, dict) else [wrong] if isinstance(wrong, torch.Tensor) else wrong
    found = [v for v in values if isinstance(v, torch.Tensor) and v.dtype == torch.int64]
    assert [v.tolist() for v in found] == [[-100, -100]]


@pytest.mark.parametrize("batch", ["text", (1, 2), {}])
def test_a_batch_without_tensors_is_refused(batch: Any) -> None:
    with pytest.raises(ConfigError, match="cannot find targets in a batch of type .*; inject at another site"):
        without_targets(batch)


def test_the_journal_can_be_handed_over_later_and_the_first_one_stays() -> None:
    given, late, later = Journal(), Journal(), Journal()
    for injector in (
        Injector(fault_named("reduce-all", rank=0, step=1), 0, given),
        Injector(Fault("bucket", "inf", 0, 1), 0),
    ):
        for write in (late, later):
            injector.journal_to(write)
        injector.arm()
        injector.bucket(0, torch.ones(3), 1)
        injector.reduced(0, torch.ones(3), 1, 0)
    assert [len(journal.lines) for journal in (given, late, later)] == [1, 1, 0]


def test_a_layer_with_several_outputs_is_wrapped_at_the_first() -> None:
    injector, journal = armed(fault_named("gradient", rank=0, step=1))
    lstm = nn.LSTM(4, 6)
    injector.wrap(lstm)
    injector.on_step(1)
    output, (hidden, _) = lstm(torch.randn(5, 2, 4))
    (output.sum() + hidden.sum()).backward()
    assert len(journal.lines) == 1


def test_a_removed_wrap_is_gone() -> None:
    injector, journal = armed(fault_named("gradient", rank=0, step=1))
    training = Training(injector)
    injector.wrap(training.layer).remove()
    training.step(1)
    assert journal.lines == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gradients", "scale", 0, 1), "unknown fault site 'gradients': choose one of batch, activation, gradient"),
        (("weight", "flip", 0, 1), "unknown fault kind 'flip': choose one of bit, sign, exponent"),
        (("batch", "bit", 0, 1), "'bit' at the site 'batch': only 'nan' exists there"),
        (("weight", "bit", -1, 1), "rank -1, step 1: ranks count from 0 and steps from 1"),
        (("weight", "bit", 0, 0), "rank 0, step 0: ranks count from 0 and steps from 1"),
        (
            ("weight", "bit", 0, 1, False, 0, None, 10.0, 0, "exp_avg"),
            "'exp_avg' at the site 'weight': only 'optimizer'",
        ),
        (("optimizer", "bit", 0, 1, False, 0, None, 10.0, 0, "m"), "unknown fault state 'm': choose one of , exp_avg"),
        (("weight", "bit", 0, 1, True, 0, None, 10.0, 0, "", 0.5), "chance 0.5: an intermittent fault has one above 0"),
        (("weight", "bit", 0, 1, False, 0, None, 10.0, 0, "", 1.0), "chance 1.0: an intermittent fault has one above"),
    ],
)
def test_an_impossible_fault_says_the_rule_and_the_way_out(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Fault(*arguments)


@pytest.mark.parametrize("factor", [1.0, math.nan, math.inf])
def test_a_factor_that_makes_nothing_wrong_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="must be finite and not 1"):
        Fault("weight", "scale", 0, 1, factor=factor)


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(ConfigError, match="unknown fault 'flip': choose one of gradient, nan, reduce-all"):
        fault_named("flip", rank=0, step=1)


def test_a_rank_or_step_that_the_job_has_not_is_refused() -> None:
    fault = fault_named("weight", rank=6, step=151)
    with pytest.raises(ConfigError, match="fault rank 6: the job has ranks 0 to 5; choose one of them"):
        fault.check_reach(world_size=6, steps=200)
    with pytest.raises(ConfigError, match="fault step 151: the run has steps 1 to 150; choose one of them"):
        fault.check_reach(world_size=7, steps=150)
    fault.check_reach(world_size=7, steps=151)


def test_no_environment_variable_arms_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LASTGOOD_FAULT", "LASTGOOD_INJECT", "LASTGOOD_INJECTOR", "LASTGOOD_ARM"):
        monkeypatch.setenv(name, "1")
    assert not Injector(fault_named("weight", rank=0, step=1), 0).armed


def test_the_demos_names_are_faults_of_known_sites() -> None:
    assert {site for site, _, _ in NAMED.values()} < set(SITES)


@pytest.mark.parametrize("state", ["exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("seed", range(4))
def test_the_moment_of_the_optimizer_can_be_chosen(state: str, seed: int) -> None:
    injector, journal = armed(Fault("optimizer", "mantissa-high", 0, 2, seed=seed, state=state))
    faulty, clean = Training(injector), Training(NoInjection())
    for step in (1, 2):
        faulty.step(step)
        clean.step(step)
    assert journal.lines[0][1]["tensor"].endswith(f".{state}")
    assert changed(faulty.numbers(), clean.numbers()) == {journal.lines[0][1]["tensor"]: 1}


@pytest.mark.parametrize("seed", range(6))
def test_memory_at_rest_changes_past_the_counter_that_every_write_moves(seed: int) -> None:
    injector, journal = armed(Fault("at-rest", "mantissa-high", 0, 2, seed=seed))
    training = Training(injector)
    training.step(1)
    before = training.numbers()
    held = [*training.model.parameters(), *(s for p in training.optimizer.state.values() for s in p.values())]
    counted = [tensor._version for tensor in held]
    for number in (1, 2, 3):
        injector.resting(number, training.model, training.optimizer)
    assert [line[1]["step"] for line in journal.lines] == [2]
    assert changed(training.numbers(), before) == {journal.lines[0][1]["tensor"]: 1}
    assert [tensor._version for tensor in held] == counted


def test_on_a_gpu_memory_at_rest_changes_after_what_reads_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    injector, journal = armed(Fault("at-rest", "mantissa-high", 0, 2))
    waited: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(len(journal.lines)))
    training = Training(injector)
    for number in (1, 2, 3):
        training.step(number)
        injector.resting(number, training.model, training.optimizer)
    assert (waited, len(journal.lines)) == ([0], 1)


def test_a_wrong_activation_is_wrong_in_the_forward_already() -> None:
    injector, journal = armed(Fault("activation", "scale", 0, 2))
    faulty, clean = Training(injector), Training(NoInjection())
    injector.wrap(faulty.layer)
    losses = []
    for step in (1, 2):
        faulty.step(step)
        clean.step(step)
        losses.append(faulty.loss == clean.loss)
    assert losses == [True, False]
    assert [(line[1]["tensor"], line[1]["replay"]) for line in journal.lines] == [("output of a layer", False)]


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_weight_gradient_is_wrong_for_whoever_looks_later(seed: int) -> None:
    injector, journal = armed(Fault("weight-gradient", "mantissa-high", 0, 1, seed=seed))
    faulty, clean = Training(injector), Training(NoInjection())
    injector.wrap(faulty.layer)
    seen: dict[str, torch.Tensor] = {}
    for name, parameter in faulty.layer.named_parameters():
        parameter.register_hook(lambda gradient, name=name: seen.__setitem__(name, gradient.clone()))
    faulty.step(1)
    right = dict(zip(["0.weight", "0.bias"], clean.gradients(), strict=False))
    wrong = [name for name in seen if not torch.equal(seen[name], right[f"0.{name}"])]
    assert [f"gradient of the layer's {name}" for name in wrong] == [line[1]["tensor"] for line in journal.lines]
    assert len(wrong) == 1


def test_a_replay_is_told_from_the_training() -> None:
    for site in ("activation", "gradient", "weight-gradient"):
        injector, journal = armed(Fault(site, "scale", 0, 1, permanent=True))
        training = Training(injector)
        injector.wrap(training.layer)
        training.step(1)
        training.gradients()
        assert [line[1]["replay"] for line in journal.lines] == [False, True]


def test_an_intermittent_fault_is_drawn_afresh_at_each_execution() -> None:
    counts = []
    for seed in range(20):
        injector, journal = armed(Fault("gradient", "scale", 0, 1, seed=seed, chance=0.5))
        training = Training(injector)
        injector.wrap(training.layer)
        injector.on_step(3)
        for _ in range(20):
            training.gradients()
        counts.append(len(journal.lines))
        assert injector.armed
        assert all(line[1]["chance"] == 0.5 for line in journal.lines)
    assert all(2 < count < 18 for count in counts)
    assert len(set(counts)) > 3


def test_an_intermittent_fault_of_the_reduce_hits_all_ranks_in_the_same_steps() -> None:
    steps = []
    for rank in range(3):
        injector, journal = armed(Fault("reduce-all", "scale", 0, 1, chance=0.4), rank=rank)
        for step in range(1, 40):
            injector.reduced(0, torch.ones(200), step, rank)
        steps.append([line[2] for line in journal.lines])
    assert steps[0] == steps[1] == steps[2]
    assert 5 < len(steps[0]) < 30


def test_what_a_projection_shows_of_one_wrong_value_is_all_of_it() -> None:
    injector, journal = armed(Fault("bucket", "scale", 0, 1))
    injector.bucket(0, torch.linspace(-1, 1, 5000), 1)
    data = journal.lines[0][1]
    assert data["projected_difference"] == pytest.approx(data["largest_difference"], rel=1e-5)
