"""End the stack's processes when the stack is gone without having ended them, because it was killed.

``python -m lastgood_console.stack.watchdog``: its input names process ids, one a line, ``+123`` when one has started
and ``-123`` when it has ended. The input ends when the stack does, however that came about; then whatever still
stands is asked to end, and killed after a grace. Prometheus and Alertmanager know nothing of a parent to watch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

GRACE_SECONDS: Final = 10.0


def main() -> None:
    """Watch until the input ends, then end what still runs."""
    running = left_over(sys.stdin)
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(running, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while running and time.monotonic() < deadline:
            running = {pid for pid in running if _lives(pid)}
            time.sleep(0.05)


def left_over(lines: Iterable[str]) -> set[int]:
    """Return the process ids that have started and not ended when the lines end."""
    running: set[int] = set()
    for line in lines:
        sign, pid = line[0], int(line[1:])
        (running.add if sign == "+" else running.discard)(pid)
    return running


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
