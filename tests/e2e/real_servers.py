"""What tests against real servers need: a free port, and patience."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true value of ``what``; a server that does not answer yet is waited for too."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if last := what():
                return last
        except OSError as error:
            last = error
        time.sleep(0.1)
    pytest.fail(f"not within {seconds} s; last seen: {last!r}")
