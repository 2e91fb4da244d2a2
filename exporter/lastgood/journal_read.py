"""Read the journals of a run while they grow. Files belong to others here: everything in them may be broken.

A reader must tell apart a line that is not finished yet (left for the next poll), a line cut off by a crash at the end
of a file (nothing was lost that anybody was told about: skipped) and anything else that cannot be read (named with
file and line, counted, skipped). However the polls and the writes interleave, the same events come out.

On NFS a file looks unchanged until it is opened again, so the files of the newest attempts are opened at every poll;
older ones when their size has changed. Nothing outside the run directory is ever opened: symbolic links, pipes and
devices below ``journal/`` are named and left alone.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from lastgood.errors import JournalError
from lastgood.events import Event, event_from_line
from lastgood.state import Unreadable

MAX_LINE_BYTES: Final = 4 << 20
"""A longer line is named and skipped, so a foreign file cannot fill the memory."""
MAX_NAMED_LINES: Final = 1000
"""So many unreadable lines of one file are named; then the file is, once."""
_CHUNK_BYTES: Final = 1 << 20
_PROGRESS_TAIL_BYTES: Final = 2 << 10  # five lines, of which the newest counts
_FRESH_ATTEMPTS: Final = 2
_ATTEMPT = re.compile(r"[0-9]{6,9}", re.ASCII)
_WRITER = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*?)(\.progress)?\.jsonl", re.ASCII)


class FileTail:
    """Read the new lines of one file. ``poll`` opens it, reads from where it stopped and closes it."""

    def __init__(self, path: Path, *, last_bytes: int | None = None) -> None:
        self.path = path
        self.size = -1  # as of the last poll
        self._last_bytes = last_bytes
        self._identity: tuple[int, int] | None = None
        self._start()

    def _start(self) -> None:
        self._offset = self._line = 0
        self._skipping = False

    def poll(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield (line number, line) for each finished new line; None stands for a line that is too long.

        With ``last_bytes`` only that much of the new bytes is read, and line numbers count from there. Raises
        ``OSError`` when the file cannot be opened or read, or is not a regular file.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._look(os.fstat(fd))
            while chunk := self._chunk(fd):
                before = self._offset
                yield from self._split(chunk)
                if self._offset == before:
                    return  # an unfinished line, left for later
        finally:
            os.close(fd)

    def _look(self, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        identity = (info.st_dev, info.st_ino)
        if identity != self._identity or info.st_size < self._offset:
            self._identity = identity
            self._start()
        if self._last_bytes is not None and info.st_size - self._offset > self._last_bytes:
            self._offset = info.st_size - self._last_bytes
            self._skipping = True
        self.size = info.st_size

    def _chunk(self, fd: int) -> bytes:
        """Return the next megabyte, or as much as the longest line when there is no line end in it."""
        chunk = os.pread(fd, _CHUNK_BYTES, self._offset)
        if b"\n" in chunk or len(chunk) < _CHUNK_BYTES:
            return chunk
        return os.pread(fd, MAX_LINE_BYTES + 1, self._offset)

    def _split(self, chunk: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Yield the finished lines of a chunk and move on behind them."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._line += 1
            self._offset += len(line) + 1
            if self._skipping:
                self._skipping = False
            elif line.strip():
                yield self._line, line
        if len(rest) > MAX_LINE_BYTES:
            if not self._skipping:
                yield self._line + 1, None
            self._skipping = True
            self._offset += len(rest)


class JournalTail:
    """Read a run directory's journals again and again; each ``poll`` returns what is new.

    ``progress`` holds the newest progress of each (attempt, writer). ``unreadable`` holds all places that could not be
    read so far; a file that can be opened again leaves it.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = Path(run_dir)
        self._tails: dict[str, FileTail] = {}
        self._progress: dict[tuple[int, str], Event] = {}
        self._unreadable: dict[tuple[str, int], Unreadable] = {}
        self._named: Counter[str] = Counter()  # file -> unreadable lines
        self._runs: dict[str, Counter[str]] = {}  # file -> run id -> lines
        self._last_line: dict[str, int] = {}

    @property
    def progress(self) -> Mapping[tuple[int, str], Event]:
        """Return the newest progress of each (attempt, writer)."""
        return dict(self._progress)

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Return every place that could not be read, in the order of files and lines."""
        return tuple(self._unreadable[key] for key in sorted(self._unreadable))

    def foreign(self, run_id: str) -> tuple[Unreadable, ...]:
        """Return the files that hold events of other runs, one place a file; none before an event of this run came."""
        if not any(run_id in runs for runs in self._runs.values()):
            return ()
        others = ((name, {run: n for run, n in self._runs[name].items() if run != run_id}) for name in self._runs)
        return tuple(Unreadable(name, 0, _foreign_reason(found)) for name, found in sorted(others) if found)

    def poll(self) -> tuple[list[Event], list[Unreadable]]:
        """Return the new events and the new unreadable places. Never raises for what it finds in the directory."""
        known = set(self._unreadable)
        events: list[Event] = []
        for name, attempt, fresh in self._files():
            events += self._read(name, attempt, fresh)
        return events, [self._unreadable[key] for key in sorted(set(self._unreadable) - known)]

    def _files(self) -> Iterator[tuple[str, int | None, bool]]:
        """Yield (name relative to the run directory, attempt or None for console files, fresh) of each journal file."""
        attempts: list[tuple[str, int | None]] = []
        for name in self._names("journal"):
            if name == "console":
                attempts.append((name, None))
            elif _ATTEMPT.fullmatch(name):
                attempts.append((name, int(name)))
            else:
                self._name(f"journal/{name}", 0, "neither the directory of an attempt nor of a console")
        newest = [number for _, number in attempts if number is not None][-_FRESH_ATTEMPTS:]
        for folder, number in attempts:
            for name in self._names(f"journal/{folder}"):
                yield f"journal/{folder}/{name}", number, number is None or number in newest

    def _names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; hidden ones (``.nfs...``) are nobody's business."""
        path = self.run_dir / folder
        try:
            if folder != "journal" and path.is_symlink():
                raise OSError(errno.ELOOP, "a symbolic link is not followed")
            if folder == "journal" and not path.resolve().is_relative_to(self.run_dir.resolve()):
                raise OSError(errno.ELOOP, "leads out of the run directory")
            names = [name for name in os.listdir(path) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as problem:
            self._name(folder, 0, f"cannot be listed: {problem.strerror}")
            return []
        self._unreadable.pop((folder, 0), None)
        return sorted(names)

    def _read(self, name: str, attempt: int | None, fresh: bool) -> list[Event]:
        match = _WRITER.fullmatch(name.rpartition("/")[2])
        if match is None:
            self._name(name, 0, "not a journal file: a foreign file")
            return []
        tail = self._tails.get(name)
        if tail is None:
            limit = _PROGRESS_TAIL_BYTES if match[2] else None
            tail = self._tails[name] = FileTail(self.run_dir / name, last_bytes=limit)
        elif not fresh and _size(tail.path) == tail.size:
            return []
        events = self._lines(tail, name, attempt)
        if not match[2]:
            return [event for event in events if event.type != "progress"]
        if events:
            self._progress[(events[-1].attempt, match[1])] = events[-1]
        return []

    def _lines(self, tail: FileTail, name: str, attempt: int | None) -> list[Event]:
        events = []
        try:
            for number, line in tail.poll():
                event = read_line(line)
                if isinstance(event, str):
                    self._name(name, number, event)
                elif attempt not in (None, event.attempt):
                    self._name(name, number, f"belongs to attempt {event.attempt}, not {attempt}: a foreign line")
                else:
                    events.append(event)
                    self._count(name, number, event.run)
            if self._named[name] <= MAX_NAMED_LINES:
                self._unreadable.pop((name, 0), None)
        except OSError as problem:
            reason = "a symbolic link is not followed" if problem.errno == errno.ELOOP else str(problem.strerror)
            self._name(name, 0, f"cannot be read: {reason}")
        return events

    def _count(self, name: str, number: int, run: str) -> None:
        """Count a line for its run; a file that was replaced is counted anew."""
        counts = self._runs.get(name)
        if counts is None or number <= self._last_line.get(name, 0):
            counts = self._runs[name] = Counter()
        self._last_line[name] = number
        counts[run] += 1

    def _name(self, file: str, line: int, reason: str) -> None:
        if line:
            self._named[file] += 1
            if self._named[file] > MAX_NAMED_LINES:
                line, reason = 0, f"more than {MAX_NAMED_LINES} lines cannot be read; the others are not listed"
        self._unreadable.setdefault((file, line), Unreadable(file, line, reason))


def _foreign_reason(lines: Mapping[str, int]) -> str:
    """Say whose events a file holds, and how many: ``3 events of run 'x', which is not this run``."""
    named = [f"{n} event{'' if n == 1 else 's'} of run {run!r}" for run, n in sorted(lines.items())]
    shown = ", ".join(named[:3]) + (f" and of {len(named) - 3} more runs" if len(named) > 3 else "")
    return f"{shown}, which {'is' if len(named) == 1 else 'are'} not this run"


def read_line(line: bytes | None) -> Event | str:
    """Return the event in a line of :class:`FileTail`, or the reason why there is none."""
    if line is None:
        return f"longer than {MAX_LINE_BYTES >> 20} MiB"
    try:
        return event_from_line(line)
    except JournalError as problem:
        return str(problem)


def read_run(run_dir: Path) -> tuple[list[Event], list[Unreadable]]:
    """Return all events of a run directory as they stand, and what could not be read."""
    return JournalTail(run_dir).poll()


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1
