"""A job ends as it would without lastgood: by a signal, out of a save, with dead targets; and its journal is whole.

The table of all lines is in test_no_harm.py. The second that an end may take is counted in what its main thread waits
for, not on a clock that a busy machine moves too.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.exporter.test_no_harm import SCRIPT, STEPS, said_by

from lastgood.events import Event
from lastgood.fold import derive
from lastgood.journal_read import read_run

pytestmark = pytest.mark.slow

LEEWAY_SECONDS = 60.0
"""A job that does not end by itself would go on for ever."""


@dataclass(frozen=True)
class Ended:
    """How a job ended. ``seconds``: from the signal, or from what it said last, to its end."""

    code: int
    seconds: float
    said: list[dict[str, Any]]
    errors: str
    run_dir: Path

    @property
    def events(self) -> list[Event]:
        events, unreadable = read_run(self.run_dir)
        assert not unreadable
        return events

    @property
    def reasons(self) -> list[str]:
        return [event.data["reason"] for event in self.events if event.type == "run.ended"]


def started(run_dir: Path, what: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), what, str(run_dir), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], run_dir: Path, sent: signal.Signals | None = None) -> Ended:
    """Wait for the line in which the job says that it is there, send the signal, and wait for the end."""
    assert process.stdout
    assert process.stderr
    line = process.stdout.readline()
    began = time.monotonic()
    if sent is not None:
        assert line, process.stderr.read()
        process.send_signal(sent)
    out, errors = process.stdout.read(), process.stderr.read()  # a line may be in the reader's buffer already
    process.wait(60)
    return Ended(process.returncode, time.monotonic() - began, said_by(line + out), errors, run_dir)


SIGNALS: Mapping[str, tuple[str, signal.Signals]] = {
    "term in the loop": ("loop", signal.SIGTERM),
    "term in a save": ("save", signal.SIGTERM),
    "int in the loop": ("loop", signal.SIGINT),
    "int in a save": ("save", signal.SIGINT),
    "kill in the loop": ("loop", signal.SIGKILL),
    "kill in a save": ("save", signal.SIGKILL),
    "term with a handler": ("handled", signal.SIGTERM),
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """How each job ended that got a signal; they start together."""
    root = tmp_path_factory.mktemp("killed")
    with ExitStack() as stack:
        jobs = {}
        for name, (where, _) in SIGNALS.items():
            jobs[name] = stack.enter_context(started(root / name.replace(" ", "-"), "until_killed", where))
            stack.callback(jobs[name].kill)
        return {name: ended(job, root / name.replace(" ", "-"), SIGNALS[name][1]) for name, job in jobs.items()}


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_ends_the_job_at_once_and_as_it_would_without(killed: dict[str, Ended], name: str) -> None:
    where, sent = SIGNALS[name]
    assert killed[name].code == (9 if where == "handled" else -sent), killed[name].errors
    assert killed[name].seconds < LEEWAY_SECONDS


@pytest.mark.parametrize("name", SIGNALS)
def test_what_was_saved_before_a_signal_is_still_the_last_good_one(killed: dict[str, Ended], name: str) -> None:
    state = derive("r", killed[name].events)
    assert [(c.path, c.step) for c in state.checkpoints] == [("before.pt", 5)]
    assert (state.last_good.path, state.findings) == ("before.pt", ())


@pytest.mark.parametrize("name", ["int in the loop", "int in a save", "term with a handler"])
def test_an_end_that_python_sees_is_journaled(killed: dict[str, Ended], name: str) -> None:
    assert len(killed[name].reasons) == 1


@pytest.mark.parametrize("name", ["int in the loop", "int in a save"])
def test_the_interrupt_that_the_user_sees_is_their_own(killed: dict[str, Ended], name: str) -> None:
    assert "KeyboardInterrupt" in killed[name].errors
    assert "During handling of the above exception" not in killed[name].errors
    assert killed[name].reasons == ["exception"]


def test_an_exit_in_a_save_keeps_its_code_and_saves_nothing(tmp_path: Path) -> None:
    with started(tmp_path / "run", "exit_in_a_save") as job:
        end = ended(job, tmp_path / "run")
    assert (end.code, len(end.reasons)) == (5, 1)
    assert derive("r", end.events).checkpoints == ()


# --- targets that are dead --------------------------------------------------------------------------------------------

HOWS = ("close", "exception", "nothing")


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Ended]]:
    """How each job ended whose targets do not answer: by kind of target, and by how the script ends."""
    root = tmp_path_factory.mktemp("dead")
    with ExitStack() as stack:
        mute = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))  # accepts, and never answers
        gone = socket.create_server(("127.0.0.1", 0))
        refusing = gone.getsockname()[1]
        gone.close()
        hosts = {
            "mute": f"127.0.0.1:{mute.getsockname()[1]}",
            "refusing": f"127.0.0.1:{refusing}",
            "unresolved": "never-resolved:9",
        }
        jobs = {}
        for kind, host in hosts.items():
            for how in HOWS:
                urls = (f"http://{host}/api/v1/write", f"http://{host}")
                job = stack.enter_context(started(root / f"{kind}-{how}", "dead_targets", *urls, how))
                stack.callback(job.kill)
                jobs[kind, how] = job
        yield {(kind, how): ended(job, root / f"{kind}-{how}") for (kind, how), job in jobs.items()}


def test_an_end_waits_for_what_may_still_come(dead: dict[tuple[str, str], Ended]) -> None:
    assert all(dead[kind, how].said[-1]["waited"] > 0.1 for kind in ("mute", "unresolved") for how in HOWS)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["mute", "refusing", "unresolved"])
def test_dead_targets_delay_no_end_by_more_than_a_second(
    dead: dict[tuple[str, str], Ended], kind: str, how: str
) -> None:
    end = dead[kind, how]
    assert end.code == (1 if how == "exception" else 0), end.errors
    assert end.said[0]["steps"] == STEPS
    assert end.said[-1]["waited"] < 1.3
    assert end.reasons == ["exception" if how == "exception" else "completed"]


def test_dead_targets_change_no_weight(dead: dict[tuple[str, str], Ended]) -> None:
    assert len({end.said[0]["weights"] for end in dead.values()}) == 1
