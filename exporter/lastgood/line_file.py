"""Append whole lines to a file that one writer owns; what could not be written is kept and tried again."""

from __future__ import annotations

import errno
import os
from collections import deque
from contextlib import suppress
from pathlib import Path


class LineFile:
    """Append whole lines to a new file. Every method may raise ``OSError``; a later call starts clean."""

    def __init__(self, keep: int) -> None:
        self._fd: int | None = None
        self._torn = False
        self._waiting: deque[tuple[bytes, bool]] = deque(maxlen=keep)

    def create(self, path: Path) -> bool:
        """Create the file exclusively; return False when the name is taken."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        _sync_directory(path.parent)
        return True

    @property
    def is_open(self) -> bool:
        """Tell whether the file was created and not closed."""
        return self._fd is not None

    @property
    def is_gone(self) -> bool:
        """Tell whether somebody deleted the file: what is written into it now, nobody will read."""
        return self._fd is not None and not os.fstat(self._fd).st_nlink

    def keep(self, line: bytes, sync: bool) -> None:
        """Put a line behind those that wait to be written."""
        self._waiting.append((line, sync))

    def flush(self) -> None:
        """Write the lines that wait, oldest first; a line leaves the queue when it is in the file."""
        fd = self._fd
        if fd is None:
            return
        while self._waiting:
            line, sync = self._waiting.popleft()
            try:
                self._append(fd, line)
            except OSError:
                if len(self._waiting) != self._waiting.maxlen:  # else it is the oldest of too many
                    self._waiting.appendleft((line, sync))
                raise
            if sync:
                os.fsync(fd)

    def _append(self, fd: int, line: bytes) -> None:
        whole = (b"\n" if self._torn else b"") + line + b"\n"
        written = os.write(fd, whole)
        self._torn = 0 < written < len(whole) or (self._torn and written == 0)
        if written < len(whole):
            raise OSError(errno.ENOSPC, f"only {written} of {len(whole)} bytes were written")

    def close(self) -> None:
        """Close the file; what still waits is lost."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _sync_directory(directory: Path) -> None:
    """Make a new name durable. Some file systems cannot sync a directory; the file itself is what counts."""
    with suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
