"""Start the processes of the stack, find out when they are ready, and leave none behind.

Each process has a session of its own, so a Ctrl-C at the terminal reaches only the stack, which then ends them in
turn. A watchdog ends them when the stack itself was killed.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final

READY_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 10.0


class PartError(Exception):
    """A part has ended, or does not answer: the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the stack. ``health`` is the address that answers 200 when it is ready, where it has one."""

    name: str
    command: Sequence[str]
    log: Path
    health: str = ""


class Parts:
    """The running processes. Leaving the ``with`` block ends them, the last started first."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Part, subprocess.Popen[bytes]]] = {}
        self._tellers: dict[str, threading.Thread] = {}

    def __enter__(self) -> Parts:
        self._watchdog = subprocess.Popen(
            [sys.executable, "-m", "lastgood_console.stack.watchdog"], stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part, _ in reversed(list(self._running.values())):
            self.end(part.name)
        assert self._watchdog.stdin
        self._watchdog.stdin.close()
        self._watchdog.wait(GRACE_SECONDS)

    def start(self, part: Part, tell: Callable[[str], object] | None = None) -> None:
        """Start a part; ``tell`` is given every line that it prints, which go to its log too."""
        part.log.parent.mkdir(parents=True, exist_ok=True)
        log = part.log.open("wb")
        process = subprocess.Popen(
            part.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if tell else log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._running[part.name] = (part, process)
        self._note(f"+{process.pid}\n")
        if tell and process.stdout:
            self._tellers[part.name] = threading.Thread(target=_copy, args=(process.stdout, log, tell), daemon=True)
            self._tellers[part.name].start()
        else:
            log.close()

    def wait_until_ready(self, name: str, seconds: float = READY_SECONDS) -> None:
        """Wait until a part answers. Raises :class:`PartError` when it ends first, or never does."""
        part, _ = self._running[name]
        deadline = time.monotonic() + seconds
        while not answers(part.health):
            self.check()
            if time.monotonic() > deadline:
                raise PartError(f"{name} does not answer at {part.health}; {part.log} ends with:\n{tail(part.log)}")
            time.sleep(0.1)

    def check(self) -> None:
        """Raise :class:`PartError` when a part has ended."""
        for part, process in self._running.values():
            if process.poll() is not None:
                raise PartError(
                    f"{part.name} has ended with code {process.returncode}; {part.log} ends with:\n{tail(part.log)}"
                )

    def code_of(self, name: str) -> int | None:
        """Return the exit code of a part that has ended, all it said being told, and forget it; None while it runs."""
        code = self._running[name][1].poll()
        if code is not None:
            self._forget(name)
        return code

    def end(self, name: str) -> None:
        """End a part: by request, then by force."""
        _, process = self._running[name]
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget(name)

    def _forget(self, name: str) -> None:
        _, process = self._running.pop(name)
        self._note(f"-{process.pid}\n")
        if teller := self._tellers.pop(name, None):
            teller.join(1.0)

    def _note(self, line: str) -> None:
        assert self._watchdog.stdin
        self._watchdog.stdin.write(line.encode())
        self._watchdog.stdin.flush()


def answers(url: str) -> bool:
    """Tell whether a server answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return int(answer.status) == 200
    except (OSError, http.client.HTTPException):  # HTTPError is an OSError
        return False


def tail(log: Path, lines: int = 10) -> str:
    """Return the last lines of a log."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            return "".join(deque(file, lines)).rstrip() or "(nothing)"
    except OSError as error:
        return f"({log} cannot be read: {error.strerror})"


def _copy(source: IO[bytes], log: IO[bytes], tell: Callable[[str], object]) -> None:
    """Pass a process's lines on until it ends."""
    with log, source:
        for line in source:
            log.write(line)
            log.flush()
            tell(line.decode(errors="replace").rstrip())
