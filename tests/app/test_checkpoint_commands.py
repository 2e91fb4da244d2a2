from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.app import console_states
from tests.app.checkpoint_cases import recorded, trained
from tests.app.fixtures import states
from tests.exporter.histories import History

from lastgood import checkpoint_verify, checkpoints
from lastgood_console import cli
from lastgood_console.checkpoint_commands import checkpoint_lines


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "a1-step-000050"
    model, optimizer = trained()
    torch.save({"step": 50, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    recorded(path, model, optimizer)
    return path


def changed(path: Path, **parts: Any) -> None:
    """Save again with some parts changed, leaving the record as it was."""
    torch.save(torch.load(path, weights_only=True) | parts, path)


def test_untouched_bytes_pass(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint_verify.main([str(saved)]) == 0
    out = capsys.readouterr().out
    assert "all 27 tensors have the bytes that were saved by attempt 1 at step 50." in out
    assert "not" not in out


def test_one_flipped_bit_in_a_weight_shows_both_fingerprints(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.load(saved, weights_only=True)["model"]
    model["2.weight"].view(torch.int32)[1, 3] ^= 1 << 12
    changed(saved, model=model)
    assert checkpoint_verify.main([str(saved)]) == 1
    out = capsys.readouterr().out
    assert "26 of 27 tensors" in out
    assert "2.weight differs" in out
    stored = "".join(json.loads(checkpoints.record_path(saved).read_text())["model"]["2.weight"])
    assert f"stored {' '.join(stored[i : i + 4] for i in range(0, 32, 4))}" in out
    assert "read   " in out


def test_one_flipped_bit_in_the_optimizer_is_named(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    optimizer = torch.load(saved, weights_only=True)["optimizer"]
    optimizer["state"][4]["exp_avg_sq"].view(torch.int32)[0, 0] ^= 1
    changed(saved, optimizer=optimizer)
    assert checkpoint_verify.main([str(saved)]) == 1
    assert "2.weight/exp_avg_sq differs" in capsys.readouterr().out


def test_two_exchanged_tensors_of_one_shape_are_seen(saved: Path) -> None:
    model = torch.load(saved, weights_only=True)["model"]
    model["1.weight"], model["1.bias"] = model["1.bias"], model["1.weight"]
    changed(saved, model=model)
    assert checkpoint_verify.main([str(saved)]) == 1


def test_a_missing_tensor_is_listed_and_never_passed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(saved, optimizer={})
    assert checkpoint_verify.main([str(saved)]) == 1
    assert "in the record, not found in the checkpoint: 0.weight/exp_avg" in capsys.readouterr().out


def test_an_optimizer_that_is_not_the_recorded_one_stays_without_names(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(saved, optimizer=trained(seed=7)[1].state_dict())
    assert checkpoint_verify.main([str(saved)]) == 1
    assert "without a record, not checked: optimizer state 0/" in capsys.readouterr().out


def test_a_tensor_without_a_record_is_listed_and_does_not_fail(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(saved, extra={"table": torch.ones(3)})
    assert checkpoint_verify.main([str(saved)]) == 0
    assert "in the checkpoint, without a record, not checked: extra.table" in capsys.readouterr().out


@pytest.mark.parametrize("wrap", [lambda m: {"state": {"module": m}}, lambda m: {"a": [{"_orig_mod": m}]}, lambda m: m])
def test_tensors_are_found_wherever_they_are_nested(tmp_path: Path, wrap: Any) -> None:
    path = tmp_path / "weights.pt"
    model, _ = trained()
    torch.save(wrap(dict(model.state_dict())), path)
    recorded(path, model)
    assert checkpoint_verify.main([str(path)]) == 0


def test_an_average_beside_the_weights_does_not_hide_them(tmp_path: Path) -> None:
    path = tmp_path / "with-ema.pt"
    model, _ = trained()
    ema = {name: tensor * 0.5 for name, tensor in model.state_dict().items()}
    torch.save({"ema": ema, "model": model.state_dict()}, path)
    recorded(path, model)
    assert checkpoint_verify.main([str(path)]) == 0


def test_two_optimizers_and_groups_in_another_order_than_the_model_work(tmp_path: Path) -> None:
    path = tmp_path / "two.pt"
    model, _ = trained()
    parameters = list(model.parameters())
    first = torch.optim.AdamW([{"params": parameters[2:4]}, {"params": parameters[:2], "lr": 0.1}])
    second = torch.optim.SGD(parameters[4:], lr=0.1, momentum=0.9)
    model(torch.randn(5, 4)).square().mean().backward()
    first.step()
    second.step()
    torch.save({"m": model.state_dict(), "o": [first.state_dict(), second.state_dict()]}, path)
    recorded(path, model, first, second)
    assert checkpoint_verify.main([str(path)]) == 0


def test_a_directory_has_its_record_inside(tmp_path: Path) -> None:
    path = tmp_path / "step-50"
    path.mkdir()
    model, _ = trained()
    torch.save(model.state_dict(), path / "model.pt")
    recorded(path, model)
    assert (path / "lastgood.json").exists()
    assert checkpoint_verify.main([str(path)]) == 0


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("exploded", "w"))


def test_a_file_that_would_run_code_is_not_loaded(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(saved.parent)
    torch.save({"model": Bomb()}, saved)
    assert checkpoint_verify.main([str(saved)]) == 2
    assert "holds more than tensors and plain values and is not loaded" in capsys.readouterr().err
    assert not Path("exploded").exists()
    saved.write_bytes(pickle.dumps(Bomb()))
    assert checkpoint_verify.main([str(saved)]) == 2
    assert not Path("exploded").exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 torn"])
def test_a_file_that_is_no_checkpoint_is_said_in_one_line(
    saved: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    saved.write_bytes(content)
    assert checkpoint_verify.main([str(saved)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_record_nothing_can_be_said(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints.record_path(saved).unlink()
    assert checkpoint_verify.main([str(saved)]) == 2
    assert "is missing: only a save inside monitor.checkpoint has a record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "it needs a lastgood that reads version 2"),
        ({"fingerprint": "0" * 32}, "contradicts itself"),
        ({"model": {"0.weight": ["12"]}}, "every tensor needs two lanes"),
        ({"model": {"0.weight": ["zz", "zz"]}}, "every tensor needs two lanes"),
    ],
)
def test_a_record_that_was_changed_is_refused(
    saved: Path, change: Mapping[str, Any], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = checkpoints.record_path(saved)
    where.write_text(json.dumps(json.loads(where.read_text()) | change))
    assert checkpoint_verify.main([str(saved)]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_line_verifies_in_a_process_of_its_own(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["checkpoint", "verify", str(saved)]) == 0
    assert "have the bytes that were saved" in capfd.readouterr().out
    assert cli.main(["checkpoint", "verify", str(saved.parent / "nothing")]) == 2
    assert "does not exist: give the path of a saved checkpoint" in capfd.readouterr().err


def test_the_trust_table_names_the_last_good_and_what_trust_means() -> None:
    lines = list(checkpoint_lines(states.gradient()))
    assert lines[0] == "demo · 8 checkpoints"
    (last,) = [line for line in lines if "Last good. " in line]
    assert last.split()[:4] == ["50", "1", "✓", "trusted"]
    assert (
        "Last good: step 50, checkpoints/a1-step-000050, trusted: All six devices passed a replay at step 50." in lines
    )
    assert lines[-1] == "Trusted means audited on both sides, not proven."
    assert [line for line in lines if line.startswith("75    1        ! suspect")]


def test_a_run_without_saves_says_so() -> None:
    (*_, last) = checkpoint_lines(console_states.empty())
    assert last == "Last good: nothing. Nothing saved yet. Resume is possible from step 0 only."


def test_a_run_that_saved_nothing_and_began_from_a_checkpoint_names_that() -> None:
    history = History(run="resumed").start(5000, (1, 5000, "/other/ckpt"), known=False, verified=False)
    (*_, last) = checkpoint_lines(history.state())
    assert last.startswith("Last good: step 5000, /other/ckpt, unverified: Nothing saved yet. Attempt 1 began from")


def test_the_command_line_imports_no_torch() -> None:
    modules = "cli, checkpoint_commands, incident_commands"
    code = f"import sys; from lastgood_console import {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
