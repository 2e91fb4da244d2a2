"""Train one rank for real while something around it goes wrong; print what it saw, one JSON line after an '@'.

Started by test_no_harm.py: ``python no_harm_job.py WHAT RUN_DIR [ARGUMENT ...]``, or for several in one process
``python no_harm_job.py WHAT,WHAT,... FOLDER``. Each function is one thing that goes wrong. What the weights must be is
known from the same steps without lastgood.
"""

from __future__ import annotations

import atexit
import gc
import json
import math
import os
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lastgood
from lastgood.fingerprint import digest_tensors

STEPS = 20


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch).square().mean()
    return loss


def built() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def weights(model: nn.Module) -> str:
    return digest_tensors(model.named_parameters(), lanes=2).hex()


class Job:
    """A model, its optimizer, its monitor; every step writes a line of the journal."""

    def __init__(self, run_dir: str, **settings: Any) -> None:
        self.model, self.optimizer = built()
        self.done = 0
        settings = {"loss_fn": loss_fn, "metrics_port": 0, "at_rest_every": 1, "run": "r"} | settings
        self.monitor = lastgood.watch(self.model, self.optimizer, run_dir=run_dir, **settings)

    def steps(self, count: int = STEPS, batch: Any = None) -> None:
        for _ in range(count):
            self.done += 1
            torch.manual_seed(self.done)
            self.monitor.loss(torch.randn(4, 8) if batch is None else batch).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def settle(self) -> None:
        assert self.monitor.publisher.files.settle(10)

    def errors(self, part: str) -> float:
        return self.monitor.metrics._values["exporter_errors_total"][(part,)]

    def saw(self, **more: Any) -> dict[str, Any]:
        return {"weights": weights(self.model), "steps": self.monitor.step} | more


def say(**facts: Any) -> None:
    print("@" + json.dumps(facts), flush=True)


# --- what goes wrong ------------------------------------------------------------------------------------------------


def nothing(run_dir: str) -> dict[str, Any]:
    """The same steps without lastgood."""
    model, optimizer = built()
    for step in range(1, STEPS + 1):
        torch.manual_seed(step)
        loss_fn(model, torch.randn(4, 8)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"weights": weights(model), "steps": STEPS}


def no_port(run_dir: str) -> dict[str, Any]:
    """Every port from the base to the last one is taken."""
    taken = []
    for port in range(65530, 65536):
        held = socket.socket(socket.AF_INET6)
        with suppress(OSError):  # somebody else has it: as good
            held.bind(("::", port))
            held.listen()
        taken.append(held)
    job = Job(run_dir, metrics_port=65530)
    job.steps()
    job.monitor.close()
    return job.saw(errors=job.errors("delivery"), port=job.monitor.session.endpoint.port)


def full_disk(run_dir: str) -> dict[str, Any]:
    """The disk fills up in the middle and has room again before the end."""
    job = Job(run_dir)
    job.steps(5)
    job.settle()
    ballast = Path(run_dir).parent / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 256)
    job.steps(10)
    job.settle()
    while_full = job.errors("journal")
    ballast.unlink()
    job.steps(5)
    job.settle()
    job.monitor.close()
    return job.saw(while_full=while_full, rounds=rounds(run_dir))


def unwritable(run_dir: str) -> dict[str, Any]:
    """The run directory cannot be written at all."""
    job = Job(run_dir)
    job.steps()
    job.monitor.close()
    return job.saw(errors=job.errors("journal"))


def blocked_disk(run_dir: str) -> dict[str, Any]:
    """Every write into the journal blocks, from the sixth step to after the last one: its file is a full pipe."""
    job = Job(run_dir)
    job.steps(5)
    job.settle()
    kept = os.dup(job.monitor.publisher._writer._lines._fd)
    out, into = os.pipe()
    os.set_blocking(into, False)
    with suppress(BlockingIOError):
        while True:
            os.write(into, b"x" * 4096)
    os.set_blocking(into, True)
    os.dup2(into, job.monitor.publisher._writer._lines._fd)
    job.steps(15)
    blocked = not job.monitor.publisher.files.settle(0.01)
    began = time.monotonic()
    job.monitor.close()
    seconds = time.monotonic() - began
    os.dup2(kept, job.monitor.publisher._writer._lines._fd)
    os.set_blocking(out, False)
    with suppress(BlockingIOError):  # now the thread that writes goes on
        while True:
            os.read(out, 1 << 20)
    return job.saw(blocked=blocked, closed_in=seconds, errors=job.errors("journal"))


def deleted_journal(run_dir: str) -> dict[str, Any]:
    """Somebody deletes the run directory in the middle."""
    job = Job(run_dir)
    job.steps(10)
    job.settle()
    shutil.rmtree(run_dir)
    job.steps(10)
    job.settle()
    job.monitor.close()
    return job.saw(errors=job.errors("journal"), rounds=rounds(run_dir))


def rounds(run_dir: str) -> list[int]:
    """Return the steps whose at_rest round can be read in the journal."""
    found, _ = lastgood.journal_read.read_run(Path(run_dir))
    return sorted(e.step for e in found if e.type == "check" and e.step is not None)


class Data(torch.utils.data.Dataset[Tensor]):
    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((8,), float(index % 7))


def workers(run_dir: str, context: str) -> dict[str, Any]:
    """Data-loader workers begin after the watch and end before and after it."""
    job = Job(run_dir, devices="fake", device_seconds=0.1)
    for _epoch in range(2):
        for batch in DataLoader(Data(), batch_size=8, num_workers=2, multiprocessing_context=context):
            job.steps(1, batch)
    job.monitor.close()
    for _ in DataLoader(Data(), batch_size=8, num_workers=2, multiprocessing_context=context):
        pass
    return job.saw(errors=[job.errors(part) for part in ("check", "device", "journal", "delivery")])


def forked_child(run_dir: str) -> dict[str, Any]:
    """A child that the user forks ends as Python programs end, with its exit handlers, long before its parent."""
    job = Job(run_dir)
    job.steps(5)
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        job.steps(5)
        job.monitor.close()
        return job.saw(code=code)
    sys.exit(7)


def watched_twice(run_dir: str) -> dict[str, Any]:
    """A notebook's cell runs twice: two monitors of one model and one optimizer."""
    first = Job(run_dir)
    second = lastgood.watch(first.model, first.optimizer, run_dir=run_dir, loss_fn=loss_fn, metrics_port=0)
    first.monitor = second
    first.steps()
    second.close()
    return first.saw(attempt=second.attempt)


def two_models(run_dir: str) -> dict[str, Any]:
    """Two models are trained in turn in one process, each with its own run."""
    jobs = [Job(f"{run_dir}/{name}", run=name) for name in ("a", "b")]
    for _ in range(STEPS):
        for job in jobs:
            job.steps(1)
    for job in jobs:
        job.monitor.close()
    return jobs[0].saw(other=jobs[1].saw(), ports=[job.monitor.session.endpoint.port for job in jobs])


class MineError(Exception):
    """An exception of the user's own code."""


def raising_loss(run_dir: str) -> dict[str, Any]:
    """The user's ``loss_fn`` raises now and then, and the loop goes on."""
    raised = MineError("mine")

    def sometimes(model: nn.Module, batch: Tensor) -> Tensor:
        if not batch.any():
            raise raised
        return loss_fn(model, batch)

    job = Job(run_dir, loss_fn=sometimes)
    job.steps(10)
    caught: BaseException | None = None
    try:
        job.steps(1, torch.zeros(4, 8))
    except MineError as error:
        caught = error
    job.done -= 1
    job.steps(10)
    job.monitor.close()
    chained = bool(raised.__cause__ or raised.__context__)
    raised_in = traceback.extract_tb(raised.__traceback__)[-1].name
    return job.saw(same=caught is raised, chained=chained, raised_in=raised_in, errors=job.errors("check"))


class Waits:
    """Add up what the main thread waits for others, no wait for more than it asked for: a slow machine adds nothing."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False
        self._count(threading.Thread, "join")
        self._count(threading.Condition, "wait")

    def _count(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(waiting: Any, timeout: float | None = None) -> Any:
            if self._inside or threading.current_thread() is not threading.main_thread():
                return original(waiting, timeout)
            began, self._inside = time.monotonic(), True
            try:
                return original(waiting, timeout)
            finally:
                self._inside = False
                self.seconds += min(time.monotonic() - began, math.inf if timeout is None else timeout)

        setattr(owner, name, counted)


def dead_targets(run_dir: str, push_url: str, console_url: str, how: str) -> dict[str, Any]:
    """Push and events go to targets that are not there; the job ends by ``how``."""
    if "never-resolved" in push_url:  # the one thing here that is made up: a resolver that does not answer
        resolve = socket.getaddrinfo
        socket.getaddrinfo = lambda host, *rest, **more: (
            threading.Event().wait(600) if host == "never-resolved" else resolve(host, *rest, **more)
        )
    waits = Waits()
    atexit.register(lambda: say(waited=waits.seconds))  # runs after the exit handlers that are registered later
    job = Job(run_dir, push_url=push_url, push_seconds=0, console_url=console_url)
    job.steps()
    say(**job.saw())
    waits.seconds = 0.0
    if how == "exception":
        raise MineError
    if how == "close":
        job.monitor.close()
    return {}


def memory(run_dir: str) -> dict[str, Any]:
    """5,000 steps at the default cadences."""
    job = Job(run_dir, at_rest_every=100)
    seen = []
    for _ in range(5):
        job.steps(1000)
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        seen.append((len(gc.get_objects()), pages * os.sysconf("SC_PAGE_SIZE")))
    job.monitor.close()
    return job.saw(objects=[n for n, _ in seen], bytes=[size for _, size in seen])


def until_killed(run_dir: str, where: str) -> dict[str, Any]:
    """Train, or save, until a signal comes. ``where``: loop, save, or handled (SIGTERM has a handler of the user's)."""
    if where == "handled":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    job = Job(run_dir)
    job.steps(5)
    with job.monitor.checkpoint(Path(run_dir) / "before.pt"):
        torch.save(job.model.state_dict(), Path(run_dir) / "before.pt")
    if where == "save":
        with job.monitor.checkpoint(Path(run_dir) / "cut.pt"):
            (Path(run_dir) / "cut.pt").write_bytes(b"half a che")
            say(ready=True)
            time.sleep(60)
    say(ready=True)
    while True:
        job.steps(1)


def exit_in_a_save(run_dir: str) -> dict[str, Any]:
    """The script leaves in the middle of a save."""
    job = Job(run_dir)
    job.steps(5)
    with job.monitor.checkpoint(Path(run_dir) / "cut.pt"):
        (Path(run_dir) / "cut.pt").write_bytes(b"half a che")
        sys.exit(5)


def main(what: str, run_dir: str, *arguments: str) -> None:
    names = what.split(",")
    for name in names:
        one(name, run_dir if len(names) == 1 else f"{run_dir}/{name}", *arguments)


def one(what: str, *arguments: str) -> None:
    function: Callable[..., dict[str, Any]] = globals()[what]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = function(*arguments)
    texts = [str(w.message) for w in caught if str(w.message).startswith("lastgood") or "journal" in str(w.message)]
    if found:
        say(what=what, **found, said=texts)


if __name__ == "__main__":
    main(*sys.argv[1:])
