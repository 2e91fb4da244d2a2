"""Write the journal of one writer: append-only lines that survive whatever happens to the process.

``<run>/journal/<attempt:06>/<writer>.jsonl`` is created exclusively on the first write, has one writer and is never
reopened. Each line is one ``write``; findings, verdicts and saves are synced to the disk before ``write`` returns.

It must never make training worse. Disk full, I/O error, no permission: one warning, a counter, a callback, and the
loop goes on. A line that could not be written is kept (the newest 256) and tried again with the next one; a line that
was cut in half is followed by a line end first, so it costs nothing but itself. Where somebody deleted the file, a new
one is begun. With a :class:`~lastgood.background.Background` a file system that blocks keeps nobody waiting: ``write``
hands its line over and returns; for findings, verdicts, saves, start and end it waits a second for the disk at most.
"""

from __future__ import annotations

import errno
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, Final

from lastgood import schema
from lastgood.background import PATIENCE_SECONDS, Background, Foreground
from lastgood.events import Event, plain, source_of, utc
from lastgood.line_file import LineFile

PROGRESS_BYTES: Final = 400
_PROGRESS_TRIM: Final = ("extremes", "seconds", "grad_norm", "check_share", "step_seconds")
"""Fields of ``progress`` that a line may lose, first to last, when it would be longer than 400 bytes."""
_PER_STEP: Final = ("finite", "conservation")
"""Checks whose passes stand nowhere else between two saves: a line of progress loses them last."""

_SYNCED: Final = ("finding", "verdict", "checkpoint.")
_AWAITED: Final = (*_SYNCED, "run.")
"""Types whose lines are in the file when ``write`` returns: the process may be about to end."""


class JournalWriter:
    """Write one writer's events of one attempt. Safe to use from several threads and from signal handlers.

    ``errors`` counts what went wrong (lines not written at once, events that break their schema, callbacks that
    raised). The first of them is a ``RuntimeWarning``; ``on_error(exc)`` is called for each. ``on_event(event)`` is
    called for every event, progress included, whether or not it could be written.
    """

    def __init__(
        self,
        run_dir: Path,
        run: str,
        attempt: int,
        writer: str,
        *,
        rank: int | None = None,
        node: str | None = None,
        clock: Callable[[], float] = time.time,
        on_event: Callable[[Event], None] | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        background: Background | None = None,
    ) -> None:
        self.run, self.attempt, self.writer, self.rank, self.node = run, attempt, writer, rank, node
        self.errors = 0
        self._directory = Path(run_dir) / "journal" / f"{attempt:06}"
        self._clock, self._on_event, self._on_error = clock, on_event, on_error
        self._lines, self._progress = LineFile(keep=256), LineFile(keep=1)
        self._count = self._progress_count = 0
        self._warned = self._closed = self._named = False
        self._lock = RLock()  # of the counts and the queues: nobody who holds it waits for a disk
        self._files = RLock()
        self._background = background or Foreground("")

    @property
    def path(self) -> Path:
        """Return the journal file (it exists once something was written)."""
        return self._directory / f"{self.writer}.jsonl"

    def write(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        step: int | None = None,
        event_id: str | None = None,
        source: str | None = None,
    ) -> Event:
        """Write an event and return it, also when it could not be written.

        A collective fact passes ``event_id`` (:func:`lastgood.events.fact_id`) and ``source``
        (:func:`lastgood.events.source_of` without a rank); otherwise both name this writer.
        """
        self._name()
        with self._lock:
            self._count += 1
            event = self._event(type, plain(data), step, event_id or f"{self.writer}-{self._count}", source)
            self._lines.keep(event.to_line().encode(), type.startswith(_SYNCED))
        self._do(self._write_lines, PATIENCE_SECONDS if type.startswith(_AWAITED) else 0.0)
        self._published(event)
        return event

    def progress(self, data: Mapping[str, Any], step: int) -> Event:
        """Write where the attempt stands: one line of at most 400 bytes, to which the data is trimmed."""
        self._name()
        with self._lock:
            self._progress_count += 1
            name = f"{self.writer}-p{self._progress_count}"
            event = _trimmed(self._event("progress", _short(plain(data)), step, name, None))
            self._progress.keep(event.to_line().encode(), False)
        self._do(self._write_progress)
        self._published(event)
        return event

    def close(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Try once more to write what waits, then close. Later events are only passed to ``on_event``.

        ``timeout`` (seconds) is what a disk in the background gets for it.
        """
        self._background.do(self._end, timeout)

    # --- on the thread that has the files ----------------------------------------------------------------------------

    def _write_lines(self) -> None:
        with self._files:
            self._guarded(self._create)
            self._guarded(self._lines.flush)

    def _write_progress(self) -> None:
        with self._files:
            self._guarded(self._create)
            self._guarded(self._create_progress)
            self._guarded(self._progress.flush)

    def _end(self) -> None:
        with self._files:
            for file in (self._lines, self._progress):
                self._guarded(file.flush)
                self._guarded(file.close)
            self._closed = True

    def _create_first(self) -> None:
        with self._files:
            self._guarded(self._create)

    def _event(self, type: str, data: dict[str, Any], step: int | None, name: str, source: str | None) -> Event:
        source = source or source_of(self.run, self.attempt, self.rank)
        at = utc(self._clock())
        node = self.node or None
        return Event(name, source, type, at, self.run, self.attempt, data, rank=self.rank, node=node, step=step)

    def _create(self) -> None:
        """Take the first free name: another file of that name means another writer, whose ids must not return."""
        if self._lines.is_gone:
            self._begin_anew()
        if self._lines.is_open or self._closed:
            return
        wanted = self.writer
        for n in range(2, 1000):
            if self._lines.create(self.path):
                return
            self.writer = f"{wanted}.{n}"

    def _begin_anew(self) -> None:
        self._lines.close()
        self._progress.close()
        gone = FileNotFoundError(errno.ENOENT, "it was deleted")
        self._failed(gone, f"the journal {self.path} was deleted; a new one is begun, and what it held is lost")

    def _create_progress(self) -> None:
        if not self._progress.is_open and not self._closed and self._lines.is_open:
            self._progress.create(self._directory / f"{self.writer}.progress.jsonl")

    def _name(self) -> None:
        """Have the name settled before the first event takes it, as far as the disk answers."""
        if not self._named:
            self._named = True
            self._do(self._create_first, PATIENCE_SECONDS)

    def _do(self, job: Callable[[], None], wait_seconds: float = 0.0) -> None:
        done = self._background.do(job, wait_seconds)
        if not done and self._background.hangs:
            problem = TimeoutError(f"the disk has not answered for {PATIENCE_SECONDS:g} s")
            self._failed(problem, f"the journal {self.path} waits: {problem}; training goes on, and the lines are kept")

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as problem:
            self._failed(problem, f"cannot write the journal {self.path}: {problem}; training goes on and tries again")

    def _published(self, event: Event) -> None:
        try:
            if broken := schema.problem(event.type, event.data):
                raise ValueError(f"{event.type}: {broken}")
            if self._on_event:
                self._on_event(event)
        except Exception as problem:
            self._failed(problem, f"an event was journaled, but: {problem!r}; training goes on")

    def _failed(self, problem: BaseException, text: str) -> None:
        self.errors += 1
        if not self._warned:
            self._warned = True
            _warn(text)
        if self._on_error:
            with suppress(Exception):
                self._on_error(problem)


def _warn(text: str) -> None:
    """Warn once, and never raise: also where warnings are made errors, training goes on."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=5)
    except RuntimeWarning:
        print(f"lastgood: {text}", file=sys.stderr)


def _short(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of progress with four significant digits: enough to read, short enough to keep."""
    return {key: _rounded(value) for key, value in data.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return plain(float(f"{value:.4g}"))  # the largest floats round to infinity
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value


def _trimmed(event: Event) -> Event:
    """Return the event without what makes its line longer than 400 bytes; the passes of per-step checks go last."""
    for data in _shorter(event.data):
        event = replace(event, data=data, node=event.node if data.keys() & _PROGRESS_TRIM else None)
        if len(event.to_line().encode()) < PROGRESS_BYTES:
            break
    return event


def _shorter(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the data with less and less in it."""
    left = dict(data)
    yield left
    for name in _PROGRESS_TRIM:
        left = {key: value for key, value in left.items() if key != name}
        yield left
    passed = left.get("passed", {})
    yield left | {"passed": {check: passed[check] for check in _PER_STEP if check in passed}}
    yield {}
