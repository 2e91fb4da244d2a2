"""The demo's model and text: small, real, and the same again for the same seed, step and rank."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from lastgood.demo.model import CONTEXT, CharacterTransformer, loss_of
from lastgood.demo.status import StatusFile, status_path
from lastgood.demo.text import IGNORED_TARGET, VOCABULARY, CorpusError, encode, mix, read_corpus, sample
from lastgood.demo.train import devices_here, fault_here

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus() -> torch.Tensor:
    return read_corpus(characters=50_000)


def test_the_text_is_the_standard_library_s() -> None:
    text = "".join(VOCABULARY[index] for index in read_corpus(characters=20_000).tolist())
    assert len(text) == 20_000
    assert "import" in text


def test_characters_outside_the_vocabulary_are_read_as_question_marks() -> None:
    assert encode("aé\t\n").tolist() == [VOCABULARY.index(c) for c in "a??\n"]


def test_a_python_without_sources_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("pass\n")
    with pytest.raises(CorpusError, match="holds 5 characters of Python sources; the demo reads 400000"):
        read_corpus(tmp_path)


def test_a_batch_is_a_function_of_seed_step_and_rank(corpus: torch.Tensor) -> None:
    def draw(seed: int, step: int, rank: int) -> torch.Tensor:
        return sample(corpus, seed=seed, step=step, rank=rank, rows=4, length=16)[0]

    assert torch.equal(draw(0, 67, 3), draw(0, 67, 3))
    others = [draw(0, 67, 2), draw(0, 68, 3), draw(1, 67, 3)]
    assert not any(torch.equal(draw(0, 67, 3), other) for other in others)


def test_no_two_ranks_or_steps_of_a_run_share_a_seed() -> None:
    seeds = {mix(5, step, rank) for step in range(200) for rank in range(16)}
    assert len(seeds) == 200 * 16


def test_targets_are_the_next_characters(corpus: torch.Tensor) -> None:
    inputs, targets = sample(corpus, seed=0, step=1, rank=0, rows=4, length=16)
    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_the_model_is_small_and_learns(corpus: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = CharacterTransformer()
    assert 200_000 < sum(p.numel() for p in model.parameters()) < 300_000
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(1, 41):
        loss = loss_of(model, sample(corpus, seed=0, step=step, rank=0, rows=8, length=CONTEXT))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(math.log(len(VOCABULARY)), abs=0.5)
    assert losses[-1] < 3.0


def test_a_batch_of_ignored_targets_has_no_loss(corpus: torch.Tensor) -> None:
    inputs, targets = sample(corpus, seed=0, step=1, rank=0, rows=2, length=16)
    loss = loss_of(CharacterTransformer(), (inputs, torch.full_like(targets, IGNORED_TARGET)))
    assert math.isnan(float(loss.detach()))


def test_the_model_cannot_see_the_character_it_predicts(corpus: torch.Tensor) -> None:
    model = CharacterTransformer().eval()
    inputs, _ = sample(corpus, seed=0, step=1, rank=0, rows=2, length=16)
    changed = inputs.clone()
    changed[:, 9:] = 0
    assert torch.equal(model(inputs)[:, :9], model(changed)[:, :9])


def test_status_lines_spell_a_nan_as_null(tmp_path: Path) -> None:
    path = status_path(tmp_path, 1)
    with StatusFile(path) as status:
        status.write(67, 2.34567, {"finite": 67})
        status.write(68, math.nan, {})
    first, second = path.read_text().splitlines()
    assert first == '{"step": 67, "loss": 2.3457, "passed": {"finite": 67}}'
    assert second == '{"step": 68, "loss": null, "passed": {}}'


def test_a_fault_sits_on_its_device_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LASTGOOD_NODE": "node-b", "LOCAL_RANK": "1", "RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    here = fault_here("gradient", 67, "node-b", 1)
    assert here is not None
    assert (here.site, here.rank, here.step, here.permanent) == ("gradient", 3, 67, True)
    assert fault_here("gradient", 67, "node-b", 0) is None
    assert fault_here("gradient", 67, "node-a", 1) is None
    assert fault_here(None, 67, "node-b", 1) is None
    assert fault_here("reduce-all", 67, "node-a", 0) is not None


def test_the_mode_of_a_fake_gpu_is_for_the_faulty_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_NODE", "node-b")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert devices_here("hot", "node-b", 1) == "fake:hot"
    assert devices_here("hot", "node-b", 0) == devices_here("hot", "node-a", 1) == "fake"
    assert devices_here(None, "node-b", 1) == "auto"


CHILD = "import time; from lastgood.demo.orphan import end_with_parent; end_with_parent(); print('up', flush=True); {}"


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_process_ends_within_seconds_of_its_killed_parent(stubborn: bool) -> None:
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    child = CHILD.format((ignore if stubborn else "") + "time.sleep(60)")
    parent = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], "
    parent += "start_new_session=True); print(p.pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", parent, child], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = {process.stdout.readline().strip(), process.stdout.readline().strip()}
        orphan = psutil.Process(int(next(line for line in lines if line.isdigit())))
        os.kill(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 8
        while _alive(orphan) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not _alive(orphan)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
