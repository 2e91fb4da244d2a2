"""Jobs on a thread of their own: in order, each waited for as long as was said, and a hanging one only once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastgood.background import PATIENCE_SECONDS, Background
from lastgood.journal import JournalWriter, read_run


class Gate:
    """A job that ends when it is let go."""

    def __init__(self) -> None:
        self.began, self.opened = threading.Event(), threading.Event()
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        self.began.set()
        assert self.opened.wait(60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def test_jobs_are_done_in_the_order_in_which_they_were_asked_for(gate: Gate) -> None:
    done: list[str] = []
    background = Background("test")
    background.do(gate)
    background.do(lambda: done.append("first"))
    background.do(lambda: done.append("second"))
    assert done == []
    gate.opened.set()
    assert background.settle(10)
    assert done == ["first", "second"]


def test_nobody_waits_who_did_not_ask_to(gate: Gate) -> None:
    background = Background("test")
    assert not background.do(gate)
    gate.opened.set()
    assert background.settle(10)


def test_a_job_that_has_not_begun_is_not_queued_again(gate: Gate) -> None:
    done: list[int] = []
    background, job = Background("test"), lambda: done.append(1)
    background.do(gate)
    for _ in range(3):
        background.do(job)
    gate.opened.set()
    assert background.settle(10)
    assert done == [1]


def test_a_hanging_job_is_waited_for_once_and_not_for_every_job_after_it(gate: Gate) -> None:
    background = Background("test")
    background.do(gate)
    assert gate.began.wait(10)
    time.sleep(PATIENCE_SECONDS)
    assert background.hangs
    began = time.monotonic()
    for _ in range(100):
        assert not background.do(gate, wait_seconds=60)
    assert time.monotonic() - began < 30, "waiting for each of them would take 100 minutes"


def test_a_forked_child_does_nothing(gate: Gate) -> None:
    background = Background("test")
    assert background.do(lambda: None, 10)
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    else:
        os._exit(int(background.do(gate, 10) or gate.times or background.settle(10)))


def test_a_journal_in_the_background_has_its_facts_on_disk_when_write_returns(tmp_path: Path) -> None:
    one = JournalWriter(tmp_path, "llama", 1, "rank-0", rank=0, node="node-a", background=Background("test"))
    one.write("checkpoint.started", {"attempt": 1, "step": 1, "path": "c"})
    assert [event.type for event in read_run(tmp_path)[0]] == ["checkpoint.started"]
    one.close()


def test_a_journal_in_the_background_keeps_the_order_of_its_events(tmp_path: Path) -> None:
    one = JournalWriter(tmp_path, "llama", 1, "rank-0", rank=0, node="node-a", background=Background("test"))
    threads = [threading.Thread(target=lambda: [one.write("note", {"text": "x"}) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one.close(10)
    assert [event.id for event in read_run(tmp_path)[0]] == [f"rank-0-{n}" for n in range(1, 201)]
