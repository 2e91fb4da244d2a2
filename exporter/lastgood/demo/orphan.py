"""End a process when the one that started it is gone, so that nothing of the demo is ever left behind.

The launcher stops what it started; this is for the launcher that cannot, because it was killed. torchrun starts each
worker in a session of its own, so no signal to a process group reaches them all.
"""

from __future__ import annotations

import os
import signal
import threading
import time


def end_with_parent(parent: int | None = None, *, every_seconds: float = 0.5, grace_seconds: float = 3.0) -> None:
    """Watch for the parent's end in the background: then SIGTERM to this process, SIGKILL after the grace.

    ``parent``: process id, given by a parent that may already be gone when this is called; else who it is now.
    """
    expected = os.getppid() if parent is None else parent
    threading.Thread(target=_watch, args=(expected, every_seconds, grace_seconds), daemon=True).start()


def _watch(parent: int, every_seconds: float, grace_seconds: float) -> None:
    while os.getppid() == parent:
        time.sleep(every_seconds)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os.kill(os.getpid(), signal.SIGKILL)
