"""Saves that go on after their context: recorded when they are complete, never before, and never when they are not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.exporter.test_monitor import GOOD, events, model, step, watch
from torch import nn

from lastgood import checkpoints
from lastgood.checkpoint_verify import main as verify
from lastgood.fold import derive

__all__ = ["model"]  # a fixture

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


class Slow:
    """A save in a thread of its own that takes until it is let go."""

    def __init__(self, path: Path, model: nn.Module) -> None:
        self.go = threading.Event()
        self.path, self.state = path, {name: t.clone() for name, t in model.state_dict().items()}
        self.pool = ThreadPoolExecutor(1)
        self.future: Future[None] = self.pool.submit(self._save)

    def _save(self) -> None:
        self.go.wait(60)
        torch.save(self.state, self.path)


def saves(tmp_path: Path) -> list[Any]:
    return [e for e in events(tmp_path) if e.type in ("checkpoint.saved", "checkpoint.failed")]


def until(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_it_is_recorded_when_it_is_complete_and_of_the_step_that_it_holds(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    slow = Slow(path := tmp_path / "save", model)
    with monitor.checkpoint(path) as save:
        save.future = slow.future
    for _ in range(3):
        step(monitor, optimizer, GOOD)
    time.sleep(0.3)
    assert (saves(tmp_path), checkpoints.read_record(path)) == ([], None), "it is not complete"
    slow.go.set()
    until(lambda: saves(tmp_path))
    (saved,) = saves(tmp_path)
    assert (saved.type, saved.step, saved.data["step"], monitor.step) == ("checkpoint.saved", 1, 1, 4)
    assert saved.data["seconds"] > max(0.3, saved.data["blocked_seconds"])
    assert verify([str(path)]) == 0, "the record is of the weights at the save, not of those at its completion"
    monitor.close()
    (checkpoint,) = derive("run", events(tmp_path)).checkpoints
    assert (checkpoint.step, checkpoint.seconds) == (1, saved.data["seconds"])


def test_one_that_fails_is_journaled_with_its_reason_and_never_recorded(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    future: Future[None] = Future()
    with monitor.checkpoint(path := tmp_path / "save") as save:
        torch.save(model.state_dict(), path)
        save.future = future
    future.set_exception(OSError(28, "No space left on device"))
    step(monitor, optimizer, GOOD)
    monitor.close()
    (failed,) = saves(tmp_path)
    assert (failed.type, "No space left" in failed.data["reason"]) == ("checkpoint.failed", True)
    assert checkpoints.read_record(path) is None
    assert derive("run", events(tmp_path)).checkpoints == ()


def test_close_waits_for_it(model: nn.Module, tmp_path: Path) -> None:
    monitor = watch(model, torch.optim.SGD(model.parameters(), 0.1), tmp_path)
    slow = Slow(path := tmp_path / "save", model)
    with monitor.checkpoint(path) as save:
        save.future = slow.future
    threading.Timer(0.5, slow.go.set).start()
    monitor.close()
    assert [e.type for e in events(tmp_path)][-2:] == ["checkpoint.saved", "run.ended"]
    assert checkpoints.read_record(path) is not None


def test_an_attempt_that_ends_by_an_exception_does_not_wait_and_gives_it_up(model: nn.Module, tmp_path: Path) -> None:
    slow = Slow(path := tmp_path / "save", model)
    began = [0.0]

    def train() -> None:
        with watch(model, torch.optim.SGD(model.parameters(), 0.1), tmp_path) as monitor:
            with monitor.checkpoint(path) as save:
                save.future = slow.future
            began[0] = time.monotonic()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        train()
    assert time.monotonic() - began[0] < 10, "it takes a minute"
    slow.go.set()
    slow.pool.shutdown()
    time.sleep(0.3)
    (failed,) = saves(tmp_path)
    assert failed.data["reason"] == "the attempt ended before the save was complete"
    assert path.exists()
    assert checkpoints.read_record(path) is None, "what completes later is nobody's to vouch for"


def test_what_is_no_future_is_said_and_not_recorded(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    what = r"save\.future is a str, not a future: give what async_save returned"
    path = tmp_path / "save"
    torch.save(model.state_dict(), path)
    with pytest.warns(RuntimeWarning, match=what), monitor.checkpoint(path) as save:
        save.future = "done"
    step(monitor, optimizer, GOOD)
    monitor.close()
    (failed,) = saves(tmp_path)
    assert (failed.type, failed.data["reason"][:34]) == ("checkpoint.failed", "save.future is a str, not a future")


def test_several_at_once_are_each_recorded_and_the_newest_is_the_parent(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = watch(model, optimizer, tmp_path)
    slow = []
    for n in range(3):
        slow.append(Slow(tmp_path / f"save-{n}", model))
        with monitor.checkpoint(tmp_path / f"save-{n}") as save:
            save.future = slow[-1].future
        step(monitor, optimizer, GOOD)
    for one in reversed(slow):  # the last one is complete first
        before = len(saves(tmp_path))
        one.go.set()
        until(lambda before=before: len(saves(tmp_path)) > before)
    monitor.close()
    assert [e.data["step"] for e in saves(tmp_path)] == [2, 1, 0]
    assert monitor.saver.parent == {"attempt": 1, "step": 2, "path": str(tmp_path / "save-2")}
    state = derive("run", events(tmp_path))
    assert [(c.step, c.parent and c.parent.step) for c in state.checkpoints] == [(0, 0), (1, 0), (2, 1)]


def test_a_torch_future_and_the_two_futures_of_a_stager_are_followed(model: nn.Module, tmp_path: Path) -> None:
    class Response:
        def __init__(self, upload: Any) -> None:
            self.staging_completion, self.upload_completion = Future[None](), upload

    monitor = watch(model, torch.optim.SGD(model.parameters(), 0.1), tmp_path)
    futures: list[Any] = [torch.futures.Future(), torch.futures.Future()]
    for n, given in enumerate([futures[0], Response(futures[1])]):
        with monitor.checkpoint(path := tmp_path / f"save-{n}") as save:
            torch.save(model.state_dict(), path)
            save.future = given
    time.sleep(0.2)
    assert saves(tmp_path) == []
    for future in futures:
        future.set_result(None)
    monitor.close()
    assert [e.type for e in saves(tmp_path)] == ["checkpoint.saved", "checkpoint.saved"]


SCRIPT = """
    import sys, torch, torch.distributed.checkpoint as dcp, lastgood
    model = torch.nn.Linear(4, 2)
    monitor = lastgood.watch(model, torch.optim.SGD(model.parameters(), 0.1), run_dir=sys.argv[1], metrics_port=0)
    with monitor.checkpoint(sys.argv[2]) as save:
        save.future = dcp.async_save({"model": model.state_dict()}, checkpoint_id=sys.argv[2], no_dist=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "monitor.close()", "raise ValueError('mine')", "sys.exit(3)"])
def test_a_script_that_ends_has_its_last_save_recorded_when_torch_has_written_it(tmp_path: Path, end: str) -> None:
    path = tmp_path / "save"
    script = textwrap.dedent(SCRIPT) + end
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "run", path], capture_output=True, text=True)
    assert done.returncode == {"r": 1, "s": 3}.get(end[:1], 0), done.stderr
    assert [e.type for e in saves(tmp_path)] == ["checkpoint.saved"], done.stderr
    assert verify([str(path)]) == 0


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_record(tmp_path: Path) -> None:
    path = tmp_path / "save"
    script = textwrap.dedent(SCRIPT).replace("dcp.async_save(", "late(") + "\nimport os; os.kill(os.getpid(), 9)"
    late = "import time\nfrom concurrent.futures import Future\ndef late(*a, **k):\n    return Future()\n"
    done = subprocess.run([sys.executable, "-c", late + script, tmp_path / "run", path], capture_output=True)
    assert done.returncode == -9
    assert [e.type for e in events(tmp_path)] == ["run.started", "checkpoint.started"]
    assert derive("run", events(tmp_path)).checkpoints == ()


def test_dcp_async_save_is_followed(model: nn.Module, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    monitor = watch(model, optimizer, tmp_path)
    step(monitor, optimizer, GOOD)
    with monitor.checkpoint(path := tmp_path / "save") as save:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        save.future = dcp.async_save(state, checkpoint_id=path, no_dist=True)
    step(monitor, optimizer, GOOD)
    monitor.close()
    (saved,) = saves(tmp_path)
    assert (saved.type, saved.data["step"]) == ("checkpoint.saved", 1)
    assert verify([str(path)]) == 0
