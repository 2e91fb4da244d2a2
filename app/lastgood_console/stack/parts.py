"""Start the processes of the stack, find out when they are ready, and leave none behind.

Each process has a session of its own, so a Ctrl-C at the terminal reaches only the stack, which then ends them in
turn; a second one kills what still stands. A watchdog ends them when the stack itself was killed; when the watchdog has
ended, the stack ends too, for nothing would end the parts any more.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from lastgood.http_address import HttpAddress
from lastgood_console.ending import end_process

READY_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 10.0


class PartError(Exception):
    """A part cannot start, has ended, or does not answer: the message holds the end of its log where it has one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the stack. ``health`` is the address that answers 200 when it is ready, where it has one.

    ``keeps_back``: it is given no variable of the environment whose name begins so.
    """

    name: str
    command: Sequence[str]
    log: Path
    health: str = ""
    keeps_back: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment that it is given."""
        kept = self.keeps_back
        return {name: value for name, value in os.environ.items() if not (kept and name.startswith(kept))}


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
        problems: list[BaseException] = []
        for name in reversed(list(self._running)):
            try:
                self.end(name)
            except BaseException as problem:  # a second Ctrl-C too: the others are ended all the same
                problems.append(problem)
                self._kill(name)
        self._dismiss_watchdog()
        if problems:
            raise problems[0]

    def start(self, part: Part, tell: Callable[[str], object] | None = None) -> None:
        """Start a part; ``tell`` is given every line that it prints, which go to its log too.

        Raises :class:`PartError` when it has no log or is no program.
        """
        log = _opened(part)
        try:
            process = subprocess.Popen(
                part.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if tell else log,
                stderr=subprocess.STDOUT, start_new_session=True, env=part.environment,
            )  # fmt: skip
        except OSError as problem:
            log.close()
            raise PartError(f"{part.name} cannot start: {part.command[0]}: {problem.strerror}") from problem
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
        """Raise :class:`PartError` when a part, or the watchdog, has ended."""
        if (code := self._watchdog.poll()) is not None:
            raise PartError(f"the watchdog has ended with code {code}; nothing else would end the parts")
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
        end_process(self._running[name][1], GRACE_SECONDS)
        self._forget(name)

    def _forget(self, name: str) -> None:
        _, process = self._running.pop(name)
        self._note(f"-{process.pid}\n")
        if teller := self._tellers.pop(name, None):
            teller.join(1.0)

    def _kill(self, name: str) -> None:
        """End a part by force alone; it may have ended already."""
        if name in self._running:
            process = self._running.pop(name)[1]
            process.kill()
            with suppress(BaseException):  # a third Ctrl-C: it is killed, only not waited for
                process.wait()

    def _note(self, line: str) -> None:
        """Tell the watchdog. One that has ended is found by :meth:`check`, and must not keep the others from ending."""
        assert self._watchdog.stdin
        with suppress(OSError):
            self._watchdog.stdin.write(line.encode())
            self._watchdog.stdin.flush()

    def _dismiss_watchdog(self) -> None:
        """Close its input. When a part could not be ended by name, the watchdog still tries."""
        assert self._watchdog.stdin
        with suppress(OSError):  # a line that it never read
            self._watchdog.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._watchdog.wait(GRACE_SECONDS)


def answers(url: str) -> bool:
    """Tell whether a server of this machine answers 200. No proxy is asked, whatever the environment names."""
    address = HttpAddress(url, "address", "http://127.0.0.1:9090/-/ready")
    try:
        with closing(address.connection(ANSWER_SECONDS)) as connection:
            connection.request("GET", address.path)
            return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def tail(log: Path, lines: int = 10) -> str:
    """Return the last lines of a log."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            return "".join(deque(file, lines)).rstrip() or "(nothing)"
    except OSError as error:
        return f"({log} cannot be read: {error.strerror})"


def _opened(part: Part) -> IO[bytes]:
    try:
        part.log.parent.mkdir(parents=True, exist_ok=True)
        return part.log.open("wb", buffering=0)
    except OSError as problem:
        raise PartError(f"{part.name} has no log: {part.log}: {problem.strerror}") from problem


def _copy(source: IO[bytes], log: IO[bytes], tell: Callable[[str], object]) -> None:
    """Pass a process's lines on until it ends, also where a disk is full or a pipe closed: unread, it stands still."""
    with log, source:
        for line in source:
            with suppress(OSError):
                log.write(line)
            with suppress(OSError):
                tell(line.decode(errors="replace").rstrip())
