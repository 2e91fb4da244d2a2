"""Do slow jobs one after the other on a daemon thread, so that a disk that blocks keeps nobody waiting.

The caller says how long it wants to wait for a job, usually not at all. A job that still waits to begin is not queued
a second time. Once a job has kept the thread for a second, nobody waits any more until it has ended: a hanging disk
costs that second once, not once for every event.

In a forked child (a data-loader worker) there is no such thread, and the files are its parent's: nothing is done there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

PATIENCE_SECONDS: Final = 1.0

Job = Callable[[], None]


class Background:
    """A thread for jobs that do not raise; it starts with the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = Condition()
        self._waiting: dict[Job, int] = {}  # job -> its number, in the order they were asked for
        self._asked = self._done = 0
        self._busy_since: float | None = None
        self._thread: Thread | None = None
        self._process = os.getpid()

    def do(self, job: Job, wait_seconds: float = 0.0) -> bool:
        """Do ``job`` after those before it; return whether it was done within ``wait_seconds``."""
        if os.getpid() != self._process:
            return False
        if not self._started():
            job()
            return True
        with self._changed:
            if job not in self._waiting:
                self._asked += 1
                self._waiting[job] = self._asked
            number = self._waiting[job]
            self._changed.notify_all()
            return self._await(number, wait_seconds)

    def settle(self, wait_seconds: float) -> bool:
        """Wait until all that was asked for so far is done; return whether it is."""
        if os.getpid() != self._process:
            return False
        with self._changed:
            return self._await(self._asked, wait_seconds)

    @property
    def hangs(self) -> bool:
        """Tell whether the job at work has taken about a second or more."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > 0.8 * PATIENCE_SECONDS

    def _await(self, number: int, seconds: float) -> bool:
        if seconds > 0 and not self.hangs:
            self._changed.wait_for(lambda: self._done >= number, seconds)
        return self._done >= number

    def _started(self) -> bool:
        if self._thread is None:
            thread = Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                return False
            self._thread = thread
        return True

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                job, number = next(iter(self._waiting.items()))
                del self._waiting[job]
                self._busy_since = time.monotonic()
            try:
                job()
            finally:
                with self._changed:
                    self._done, self._busy_since = number, None
                    self._changed.notify_all()


class Foreground(Background):
    """Do every job at once, on the thread that asks: for tools that have nothing else to do."""

    def do(self, job: Job, wait_seconds: float = 0.0) -> bool:
        """Do ``job`` now."""
        job()
        return True

    def settle(self, wait_seconds: float) -> bool:
        """Return at once: nothing ever waits."""
        return True
