"""Write files of lines so that what was accepted stays: synced, under a lock, whole or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def append_synced(path: Path, lines: bytes) -> None:
    """Append whole lines, synced, also while another process does; a line torn by a crash before is closed first.

    Raises ``OSError`` when the disk is full or fails. Then the file is as long as before: what was not accepted leaves
    neither lines nor half a line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = _open_locked(path)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        try:
            _write_synced(fd, lines)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, size)  # under the lock, so nobody else's lines are behind ours
            raise
    finally:
        os.close(fd)


def rewrite_synced(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Replace a file by one with other lines, synced, while nobody appends to it.

    Raises ``OSError`` when that cannot be done; then the file is as it was.
    """
    fd = _open_locked(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(fd, "rb", closefd=False) as file:
            lines = change(file.read().splitlines(keepends=True))
        new = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _write_synced(new, b"".join(lines))
        finally:
            os.close(new)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _open_locked(path: Path) -> int:
    """Open a file alone; one that was replaced while the lock was waited for is opened again."""
    while True:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _write_synced(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]
    os.fsync(fd)
