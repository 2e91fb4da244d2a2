"""Wait for an answer no longer than a number of seconds, whatever the other side does.

A time-out of a socket is for each wait alone: a server that sends a byte now and then, or a look-up of a name that
hangs, holds its client for ever. So what asks runs on a thread of its own. Past the deadline nobody waits for it any
more; it keeps no process from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, do: Callable[[], T]) -> T:
    """Return what ``do`` returns, or raise what it raises; ``TimeoutError`` when it takes longer than ``seconds``."""
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(do())
        except BaseException as problem:  # for whoever waits, not for this thread
            done.set_exception(problem)

    threading.Thread(target=work, name="lastgood-answer", daemon=True).start()
    return done.result(seconds)
