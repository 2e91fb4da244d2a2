"""End what a command has started when the command itself is asked to end."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM, as an exception, so that every ``with`` block ends what it started."""


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into :class:`Terminated` meanwhile."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_process(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """End a process: by request, then by force. One that has ended already is only waited for."""
    process.terminate()
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
