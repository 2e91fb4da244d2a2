"""One run of a replay: the gradient of autograd bit for bit, no trace of it in the job, and no second copy of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lastgood.fingerprint import fingerprint
from lastgood.recorder import Recorder
from lastgood.replay_package import LOSS, pack, run_package


class Net(nn.Module):
    """A tied weight, a complex one, a sparse gradient, a frozen and an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(7, 8, sparse=True)
        self.first = nn.Linear(8, 8)
        self.tied = self.first
        self.turn = nn.Parameter(torch.randn(8, dtype=torch.complex64))
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.tied(torch.tanh(self.first(self.rows(x))))
        return (hidden * self.turn * self.frozen).abs()


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch).square().mean()
    return loss


def recorded(module: nn.Module, batch: Tensor) -> tuple[Recorder, bytes]:
    """Train one micro-batch, so that a package of it can be run."""
    recorder = Recorder(module, loss_fn, torch.device("cpu"))
    recorder.run(module, batch, 1, audit=False).backward()
    return recorder, pack(recorder.current, recorder)


def test_the_digests_are_those_of_the_gradient_that_the_step_had() -> None:
    torch.manual_seed(0)
    module = Net()
    module.first.weight.register_hook(lambda grad: grad * 0.5)  # as clipping in a hook: the replay runs it, too
    recorder, blob = recorded(module, torch.arange(7))
    outcome = run_package(blob, recorder)
    values = dict(zip(outcome.names, outcome.values.tolist(), strict=True))
    expected = {n: p.grad for n, p in module.named_parameters() if p.grad is not None and not p.grad.is_sparse}
    assert set(values) == {*expected, LOSS}
    assert "turn" in expected
    assert values == {LOSS: values[LOSS]} | {n: int(fingerprint(g, n)) for n, g in expected.items()}
    assert not outcome.nonfinite


@pytest.mark.parametrize("where", ["rows.weight", "first.weight", "turn"])
def test_a_value_that_is_not_finite_is_counted_in_every_kind_of_gradient(where: str) -> None:
    module = Net()
    recorder, blob = recorded(module, torch.arange(7))
    dict(module.named_parameters())[where].data.view(-1)[0] = float("nan")
    assert run_package(blob, recorder).nonfinite


def test_no_trace_is_left_in_the_job() -> None:
    module = Net()
    seen: list[str] = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name))
    recorder, blob = recorded(module, torch.arange(7))
    trained, seen[:] = len(seen), []
    grads = {n: p.grad for n, p in module.named_parameters()}
    values = {n: g.clone() for n, g in grads.items() if g is not None}
    state = torch.get_rng_state()
    hooks = [len(p._backward_hooks or ()) for p in module.parameters()]
    run_package(blob, recorder)
    assert trained
    assert seen == [], "an optimizer that steps in such a hook would have stepped"
    assert all(p.grad is grads[n] for n, p in module.named_parameters())
    assert all(torch.equal(grads[n].to_dense(), v.to_dense()) for n, v in values.items())
    assert torch.equal(state, torch.get_rng_state())
    assert hooks == [len(p._backward_hooks or ()) for p in module.parameters()]


def peak(action: Callable[[], Any], path: Path) -> int:
    """Return the bytes that were allocated at most, beyond those before, as torch's allocator says."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        action()
    profile.export_chrome_trace(str(path))
    events = [e["args"] for e in json.loads(path.read_text())["traceEvents"] if e.get("name") == "[memory]"]
    totals = [e["Total Allocated"] for e in events if e["Device Type"] == 0]
    return int(max(totals) - totals[0])


def test_the_gradient_is_never_held_a_second_time(tmp_path: Path) -> None:
    module = nn.Sequential(*(nn.Linear(256, 256) for _ in range(12)))
    recorder, blob = recorded(module, torch.randn(2, 256))
    gradient = sum(p.nbytes for p in module.parameters())
    run_package(blob, recorder)
    assert peak(lambda: run_package(blob, recorder), tmp_path / "trace.json") < 0.5 * gradient
