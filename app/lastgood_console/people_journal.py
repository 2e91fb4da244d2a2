"""Journal what people say and do: one event a line, under the console's own writer file.

``<run>/journal/console/<host>-<id>.jsonl`` is created exclusively and has one writer, so any number of consoles and
terminals write at once and none touches another's file; a line torn by a crash costs itself. Where the run directory
cannot be written, the event is kept with the posted events of the state folder, which the ledger reads too. Nothing is
told to have been done before it is on the disk.
"""

from __future__ import annotations

import errno
import re
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from urllib.parse import quote

from lastgood import schema
from lastgood.events import Event, plain, utc
from lastgood.line_file import LineFile
from lastgood.posted import PostedEvents
from lastgood_console.actions import ActionError, Deed


@dataclass(frozen=True, slots=True)
class Written:
    """What was journaled, in which file, and why not in the run directory (empty when it is there)."""

    event: Event
    file: Path
    instead: str = ""


class PeopleJournal:
    """Write for one process. Safe to share between threads. ``clock`` returns unix seconds."""

    def __init__(
        self,
        state_dir: Path | None,
        *,
        host: str | None = None,
        clock: Callable[[], float] = time.time,
        identify: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self._state_dir = state_dir
        self._host = writer_name(socket.gethostname() if host is None else host)
        self._clock, self._identify = clock, identify
        self._writers: dict[Path, _Writer] = {}
        self._without = _Writer(f"{self._host}-{identify()}")  # for what goes into the state folder
        self._lock = Lock()

    def write(self, run_id: str, run_dir: Path | None, deed: Deed) -> Written:
        """Journal a deed. ``run_dir`` None: a run that is known from posted events alone.

        Raises :class:`lastgood_console.actions.ActionError` when it can be kept nowhere.
        """
        with self._lock:
            try:
                writer = self._writer(run_dir)
            except OSError as problem:
                return self._in_state(self._event(run_id, self._without, deed), _why(run_dir, problem))
            event = self._event(run_id, writer, deed)
            try:
                return self._in_run(event, writer)
            except OSError as problem:
                self._writers = {place: known for place, known in self._writers.items() if known is not writer}
                return self._in_state(event, _why(run_dir, problem))  # the same event: if both were kept, it is one

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for writer in self._writers.values():
                writer.lines.close()
            self._writers.clear()

    def _writer(self, run_dir: Path | None) -> _Writer:
        if run_dir is None:
            raise OSError(errno.ENOENT, "there is none")
        if run_dir not in self._writers:
            self._writers[run_dir] = self._opened(run_dir)
        return self._writers[run_dir]

    def _opened(self, run_dir: Path) -> _Writer:
        folder = run_dir / "journal" / "console"
        if not folder.parent.is_dir():
            raise OSError(errno.ENOENT, "it has no journal")
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "journal/console is a symbolic link")
        for _ in range(100):
            writer = _Writer(f"{self._host}-{self._identify()}", folder)
            if writer.lines.create(writer.file):
                return writer
        raise OSError(errno.EEXIST, "no free name")

    def _in_run(self, event: Event, writer: _Writer) -> Written:
        writer.lines.keep(event.to_line().encode(), True)
        try:
            writer.lines.flush()
        except OSError:
            writer.lines.close()  # what is torn is the last line of that file; the next word gets a new one
            raise
        return Written(event, writer.file)

    def _in_state(self, event: Event, why: str) -> Written:
        if self._state_dir is None:
            raise ActionError(f"{why}: name a folder to keep it in with --state")
        posted = PostedEvents(self._state_dir)
        try:
            posted.keep([event])
        except OSError as problem:
            also = f"nor can {self._state_dir} ({problem.strerror})"
            raise ActionError(f"{why}, {also}: name a folder that can with --state") from None
        return Written(event, posted.directory / f"{event.run}.jsonl", why)

    def _event(self, run_id: str, writer: _Writer, deed: Deed) -> Event:
        data = plain(deed.data)
        if broken := schema.problem(deed.type, data):
            raise ActionError(f"{deed.type}: {broken}")
        writer.count += 1
        at = max(utc(self._clock()), deed.not_before)
        source = f"/lastgood/{quote(run_id, safe='')}/console/{writer.name}"
        return Event(f"{writer.name}-{writer.count}", source, deed.type, at, run_id, deed.attempt, data, step=deed.step)


@dataclass(slots=True)
class _Writer:
    name: str
    folder: Path = Path()
    lines: LineFile = field(default_factory=lambda: LineFile(keep=1))
    count: int = 0

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.jsonl"


def _why(run_dir: Path | None, problem: OSError) -> str:
    return f"the run directory {run_dir or ''} cannot be written ({problem.strerror})".replace("  ", " ")


def writer_name(host: str) -> str:
    """Return a host name as the beginning of a file name that readers of the journal accept."""
    plain_name = re.sub(r"[^A-Za-z0-9._-]+", "-", host)[:48].strip("-.")
    return plain_name or "host"
