"""Watching a job of one rank: the loop, the guard, the record, bad input. (Many ranks: test_training.py.)"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lastgood
from lastgood.fold import derive
from lastgood.journal_read import JournalTail
from lastgood.monitor import Monitor


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def watch(model: nn.Module, optimizer: Any, tmp_path: Path, **settings: Any) -> Monitor:
    return lastgood.watch(
        model, optimizer, **({"run_dir": tmp_path / "run", "loss_fn": loss_fn, "metrics_port": 0} | settings)
    )


def step(monitor: Monitor, optimizer: Any, batch: Tensor) -> None:
    monitor.loss(batch).backward()
    optimizer.step()
    optimizer.zero_grad()


def events(tmp_path: Path) -> list[Any]:
    found, unreadable = JournalTail(tmp_path / "run").poll()
    assert not unreadable
    return found


def types(tmp_path: Path) -> list[str]:
    return [event.type for event in events(tmp_path)]


NAN = torch.full((3, 4), math.nan)
GOOD = torch.ones(3, 4)


def test_a_clean_run_of_one_rank_says_what_cannot_run(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer, tmp_path) as monitor:
        step(monitor, optimizer, GOOD)
    started = events(tmp_path)[0]
    assert started.data["not_run"]["replay"] == "one rank"
    assert started.data["cadence"]["finite"] == 1
    assert types(tmp_path)[-1] == "run.ended"


def test_what_the_checks_cost_is_journaled_once_it_is_known(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer, tmp_path) as monitor:
        for _ in range(50):
            step(monitor, optimizer, GOOD)
    (line,) = (tmp_path / "run" / "journal" / "000001" / "rank-00000.progress.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert 20 <= told["step"] <= 25
    assert 0 < told["data"]["check_share"] < 10


def test_a_nan_is_suspicious_skipped_and_leaves_the_weights(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    before = [p.detach().clone() for p in model.parameters()]
    step(monitor, optimizer, NAN)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    step(monitor, optimizer, GOOD)
    assert not torch.equal(before[0], next(model.parameters()))
    monitor.close()
    verdict = next(e for e in events(tmp_path) if e.type == "verdict")
    assert (verdict.data["status"], verdict.data["action"], verdict.data["suspects"]) == ("suspicious", "skip", [])


def test_the_skipped_gradients_are_put_back(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    monitor.loss(NAN).backward()
    before = [p.grad for p in model.parameters()]
    optimizer.step()
    assert all(p.grad is g for p, g in zip(model.parameters(), before, strict=True))
    monitor.close()


def test_three_skipped_steps_in_a_row_stop(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    for batch in (NAN, GOOD, NAN, NAN):
        step(monitor, optimizer, batch)
    with pytest.raises(lastgood.IntegrityError, match="NaN|not finite|non-finite"):
        step(monitor, optimizer, NAN)
    monitor.close()
    assert events(tmp_path)[-1].data["reason"] == "integrity"


def assert_lbfgs_stops(monitor: Monitor, optimizer: torch.optim.Optimizer) -> None:
    """Give LBFGS a gradient that is not finite: it fills gradients again inside its step, so it cannot be skipped."""

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = monitor.loss(NAN)
        loss.backward()
        return loss

    closure()
    with pytest.raises(lastgood.IntegrityError):
        optimizer.step(closure)
    monitor.close()


def test_lbfgs_cannot_be_skipped_so_it_stops(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.LBFGS(model.parameters())
    assert_lbfgs_stops(watch(model, optimizer, tmp_path), optimizer)


def test_evaluation_is_not_recorded(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    with monitor.phase("evaluation"), torch.no_grad():
        monitor.loss(NAN)
    step(monitor, optimizer, GOOD)
    assert monitor.step == 1
    monitor.close()
    assert "finding" not in types(tmp_path)


def test_a_loop_of_its_own_is_watched_without_a_loss_fn(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path, loss_fn=None)
    for _ in range(3):
        loss_fn(model, GOOD).backward()
        optimizer.step()
    assert monitor.step == 3
    monitor.close()


def test_a_save_leaves_a_record_and_resume_goes_on_from_it(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    path = tmp_path / "run" / "save"
    with monitor.checkpoint(path):
        torch.save(model.state_dict(), path)
    monitor.close()
    record = json.loads(path.with_name("save.lastgood.json").read_text())
    assert set(record["model"]) == {"weight", "bias"}
    assert "weight/exp_avg" in record["optimizer"]
    again = watch(model, optimizer, tmp_path)
    again.resume(path)
    assert again.step == 1
    again.close()


def test_changed_bytes_are_refused_with_both_fingerprints(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    path = tmp_path / "save"
    with monitor.checkpoint(path):
        torch.save(model.state_dict(), path)
    monitor.close()
    with torch.no_grad():
        model.get_parameter("bias")[0] += 1
    again = watch(model, optimizer, tmp_path)
    with pytest.raises(lastgood.IntegrityError, match="stored fingerprint [0-9a-f]{32}, loaded [0-9a-f]{32}; .* bias"):
        again.resume(path)
    again.close()
    refused = next(e for e in events(tmp_path) if e.type == "checkpoint.loaded")
    assert refused.data["checks"] == {"fingerprint": "failed"}
    state = derive("run", events(tmp_path))
    assert [c.trust for c in state.checkpoints] == ["tainted"]


def test_a_save_that_raises_is_journaled_as_failed_and_training_goes_on(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    with pytest.raises(OSError, match="No space"), monitor.checkpoint(tmp_path / "save"):
        raise OSError(28, "No space left on device")
    step(monitor, optimizer, GOOD)
    monitor.close()
    failed = next(e for e in events(tmp_path) if e.type == "checkpoint.failed")
    assert "No space left" in failed.data["reason"]


def test_a_save_that_wrote_nothing_is_said(model: nn.Module, tmp_path: Path) -> None:
    monitor = watch(model, torch.optim.SGD(model.parameters(), 0.1), tmp_path)
    with pytest.warns(RuntimeWarning, match="was not written"), monitor.checkpoint(tmp_path / "nothing"):
        pass
    with monitor.checkpoint(tmp_path / "save"):
        torch.save(model.state_dict(), tmp_path / "save")
    monitor.close()
    saved = [e for e in events(tmp_path) if e.type == "checkpoint.saved"]
    assert [e.data["parent"]["path"] for e in saved] == [str(tmp_path / "save")], "what was not written is no parent"


def test_resume_after_the_first_step_is_refused(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    with pytest.raises(lastgood.ConfigError, match="before the first step"):
        monitor.resume(None, step=3)
    monitor.close()


def test_an_unknown_parent_needs_a_step_and_is_journaled_as_unknown(model: nn.Module, tmp_path: Path) -> None:
    monitor = watch(model, torch.optim.SGD(model.parameters(), 0.1), tmp_path)
    with pytest.raises(lastgood.ConfigError, match="step=n"):
        monitor.resume(None)
    monitor.resume(None, step=70)
    monitor.close()
    started = next(e for e in events(tmp_path) if e.type == "run.started")
    assert (started.data["from_step"], started.data["parent"], started.data["parent_known"]) == (70, None, False)


def test_a_checkpoint_of_another_run_is_verified_but_no_known_parent(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = watch(model, optimizer, tmp_path, run_dir=tmp_path / "other")
    with first.checkpoint(tmp_path / "save"):
        torch.save(model.state_dict(), tmp_path / "save")
    first.close()
    monitor = watch(model, optimizer, tmp_path)
    monitor.resume(tmp_path / "save")
    monitor.close()
    started = next(e for e in events(tmp_path) if e.type == "run.started")
    assert (started.data["parent"], started.data["parent_known"]) == (None, False)


def test_a_run_directory_that_was_renamed_keeps_its_run(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch(model, optimizer, tmp_path, run_dir=tmp_path / "before").close()
    first = watch(model, optimizer, tmp_path, run_dir=tmp_path / "before")
    step(first, optimizer, GOOD)
    first.close()
    (tmp_path / "before").rename(tmp_path / "run")
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    monitor.close()
    assert {event.run for event in events(tmp_path)} == {"before"}


def test_another_name_for_a_run_directory_is_refused(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    monitor.close()
    with pytest.raises(lastgood.ConfigError, match="holds the run 'run'"):
        watch(model, optimizer, tmp_path, run="other")


def test_a_full_disk_is_one_warning_and_training_goes_on(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    (tmp_path / "run").write_text("a file where the run directory should be")
    with pytest.warns(RuntimeWarning, match="cannot keep a journal"):
        monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    monitor.close()
    assert monitor.step == 1


def test_a_check_that_breaks_is_one_counter_and_training_goes_on(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    monkeypatch.setattr(monitor.inspector, "after_backward", lambda *a, **k: 1 / 0)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        step(monitor, optimizer, GOOD)
    assert monitor.step == 1
    assert monitor.session.registry.get_sample_value(
        "lastgood_exporter_errors_total",
        {"run": "run", "rank": "0", "node": monitor.session.place.node, "part": "check"},
    )
    monitor.close()


def test_a_plain_module_needs_its_optimizer(model: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(lastgood.ConfigError, match="optimizer is empty"):
        watch(model, [], tmp_path)


WRONG: list[tuple[str, Any]] = [
    ("model", "x"), ("model", [nn.Linear(1, 1)]),
    ("optimizer", "x"), ("optimizer", None), ("optimizer", ["x"]), ("optimizer", nn.Linear(1, 1)),
    ("loss_fn", "x"), ("loss_fn", 5),
    ("scaler", "x"), ("scaler", True), ("scaler", torch.amp.GradScaler),
    ("lossless_hook", "no"), ("lossless_hook", None), ("lossless_hook", 1),
    ("injector", "x"), ("injector", 0), ("registry", "x"), ("registry", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_an_argument_that_is_no_such_thing_is_refused(model: nn.Module, tmp_path: Path, name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)} | {name: value}
    shown = re.escape(" ".join(repr(value).split())[:79])
    with pytest.raises(lastgood.ConfigError, match=f"^{name}={shown}.*: expected .+"):
        watch(arguments.pop("model"), arguments.pop("optimizer"), tmp_path, **arguments)
    assert not (tmp_path / "run").exists()


def test_an_optimizer_that_is_given_twice_is_refused(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(lastgood.ConfigError, match="expected each optimizer once"):
        watch(model, [optimizer, optimizer], tmp_path)


@pytest.mark.parametrize("number", ["3", 3.0, True])
def test_a_step_that_is_no_number_is_refused(model: nn.Module, tmp_path: Path, number: Any) -> None:
    monitor = watch(model, torch.optim.SGD(model.parameters(), 0.1), tmp_path)
    with pytest.raises(lastgood.ConfigError, match="a whole number"):
        monitor.resume(None, step=number)
    monitor.close()


def test_after_close_a_save_goes_on_and_is_said_to_be_unchecked(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    monitor.close()
    before = types(tmp_path)
    with pytest.warns(RuntimeWarning, match="after close: no check ran, and the save has no record"):
        context = monitor.checkpoint(tmp_path / "late.pt")
    with context as save:
        torch.save(model.state_dict(), tmp_path / "late.pt")
        save.future = None
    with monitor.checkpoint(tmp_path / "later.pt"):  # said once
        torch.save(model.state_dict(), tmp_path / "later.pt")
    assert sorted(path.name for path in tmp_path.glob("late*")) == ["late.pt", "later.pt"]
    assert types(tmp_path) == before
    step(monitor, optimizer, GOOD)
    assert monitor.step == 1
    with pytest.raises(lastgood.ConfigError, match="after close"):
        monitor.resume(None, step=3)


def test_loss_without_a_loss_fn_says_what_to_pass(model: nn.Module, tmp_path: Path) -> None:
    monitor = watch(model, torch.optim.SGD(model.parameters(), 0.1), tmp_path, loss_fn=None)
    with pytest.raises(lastgood.ConfigError, match="pass loss_fn"):
        monitor.loss(GOOD)
    monitor.close()


def test_the_skipped_step_of_a_scaler_counts(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    monitor = watch(model, optimizer, tmp_path, scaler=scaler)
    for _ in range(2):
        scaler.scale(monitor.loss(GOOD * 1e6)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert monitor.step == 2
    monitor.close()
    assert "finding" not in types(tmp_path)


SCRIPT = """
    import sys, torch, lastgood
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = lastgood.watch(model, optimizer, run_dir=sys.argv[1], loss_fn=lambda m, x: m(x).sum(), metrics_port=0)
    monitor.loss(torch.ones(1, 2)).backward()
    optimizer.step()
    {end}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "reason", "code"),
    [("", "completed", 0), ("raise RuntimeError('mine')", "exception", 1), ("monitor.close()", "completed", 0)],
)
def test_a_script_that_just_ends_says_how(tmp_path: Path, end: str, reason: str, code: int) -> None:
    text = textwrap.dedent(SCRIPT).format(end=end)
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "run")], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert events(tmp_path)[-1].data["reason"] == reason


class Odd:
    """A learning rate that cannot be compared."""

    def __ne__(self, other: object) -> bool:
        raise TypeError("no number")


class Plain(torch.optim.Optimizer):
    """An optimizer that does nothing with its learning rate."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": Odd()})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass


def test_a_learning_rate_that_cannot_be_compared_costs_a_counter_and_no_step(model: nn.Module, tmp_path: Path) -> None:
    optimizer = Plain(model.parameters())
    monitor = watch(model, optimizer, tmp_path, loss_fn=None)
    model(GOOD).sum().backward()
    with pytest.warns(RuntimeWarning, match="no number"):
        optimizer.step()
    assert monitor.step == 1
    monitor.close()
