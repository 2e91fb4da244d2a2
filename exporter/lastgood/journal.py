"""Find, claim, write and read the journals of runs.

A run directory holds ``journal/<attempt:06>/<writer>.jsonl``. Rank 0 claims the next attempt by creating its directory
exclusively and tells the others; then each writer has its own file::

    attempt = claim_attempt(run_dir)
    writer = JournalWriter(run_dir, "llama-7b", attempt, "rank-0", rank=0, node="node-a")
    writer.write("run.ended", {"reason": "completed", "exit_code": 0, "last_step": 150}, step=150)

    tail = JournalTail(run_dir)
    events, unreadable = tail.poll()
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

from lastgood.errors import RunDirError
from lastgood.events import slug
from lastgood.journal_read import FileTail, JournalTail, read_line, read_run
from lastgood.journal_write import JournalWriter

__all__ = ["JournalTail", "JournalWriter", "claim_attempt", "find_runs", "is_run_dir", "read_run", "run_id_of"]


def claim_attempt(run_dir: Path) -> int:
    """Create the journal directory of the next attempt exclusively and return its number; the first is 1.

    Two launchers that start at the same moment get two numbers. Raises :class:`RunDirError` when the run directory
    cannot be used.
    """
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(run_dir)):
        raise RunDirError(f"run_dir {run_dir} is an object store; it must be a POSIX path on shared storage")
    try:
        return _claim(Path(run_dir) / "journal")
    except OSError as problem:
        raise RunDirError(
            f"run_dir {run_dir} cannot be used ({problem.strerror}): make it writable, or name another with run_dir="
        ) from problem


def _claim(journal: Path) -> int:
    journal.mkdir(parents=True, exist_ok=True)
    taken = [int(entry.name) for entry in journal.iterdir() if re.fullmatch(r"[0-9]{6,9}", entry.name)]
    number = max(taken, default=0) + 1
    while True:
        try:
            (journal / f"{number:06}").mkdir()
            return number
        except FileExistsError:
            number += 1


def is_run_dir(path: Path) -> bool:
    """Tell whether ``path`` is a run directory: it has a ``journal`` directory."""
    try:
        return (path / "journal").is_dir()
    except OSError:
        return False


def find_runs(paths: Sequence[Path], *, run_ids: MutableMapping[Path, str] | None = None) -> dict[str, Path]:
    """Return name -> run directory for each path that is one, or is a folder of them (one level deep), in that order.

    The name is the run id that the journal holds, or the directory's name as a slug while the journal is empty. Of two
    directories with one run id (a run and its copy) the one that is called like the run keeps it, else the first; the
    other goes by its directory's name, then ``<parent>.<name>``, then a hash. A path that does not exist (yet) has no
    runs. ``run_ids`` remembers the run ids between calls.
    """
    known: MutableMapping[Path, str] = {} if run_ids is None else run_ids
    found = list(dict.fromkeys(path for given in paths for path in _run_dirs(Path(given))))
    for path in found:
        if path not in known and (run_id := run_id_of(path)):
            known[path] = run_id
    owners = _owners(found, known)
    names = dict(owners)
    for path in found:
        if owners.get(known.get(path, "")) != path:
            names[_free_name(path, known.get(path), names)] = path
    order = {path: place for place, path in enumerate(found)}
    return dict(sorted(names.items(), key=lambda named: order[named[1]]))


def _owners(found: Sequence[Path], run_ids: Mapping[Path, str]) -> dict[str, Path]:
    """Return run id -> the directory that is called like it, else the first that holds it."""
    owners: dict[str, Path] = {}
    for path in found:
        run_id = run_ids.get(path)
        if run_id is None:
            continue
        owner = owners.setdefault(run_id, path)
        if run_id in (path.name, _slug(path.name)) and run_id not in (owner.name, _slug(owner.name)):
            owners[run_id] = path
    return owners


def run_id_of(run_dir: Path) -> str | None:
    """Return the run id in the first readable line of the journals, or None when there is none yet."""
    for attempt in sorted((run_dir / "journal").glob("[0-9]*")):
        for path in sorted(attempt.glob("*.jsonl")):
            with suppress(OSError):
                for _, line in FileTail(path).poll():
                    event = read_line(line)
                    if not isinstance(event, str):
                        return event.run
    return None


def _run_dirs(path: Path) -> list[Path]:
    """Return resolved run directories, so that one directory given twice is one run."""
    try:
        if is_run_dir(path):
            return [path.resolve()]
        return [entry.resolve() for entry in sorted(path.iterdir()) if entry.name[0] != "." and is_run_dir(entry)]
    except OSError:
        return []


def _free_name(path: Path, run_id: str | None, taken: Container[str]) -> str:
    name = _slug(path.name)
    longer = _slug(f"{path.parent.name}.{path.name}")
    hashed = f"{name[:55]}-{hashlib.sha256(str(path).encode(errors='replace')).hexdigest()[:8]}"
    return next(candidate for candidate in (run_id or name, name, longer, hashed) if candidate not in taken)


def _slug(text: str) -> str:
    try:
        return slug(text)
    except ValueError:
        return "run"
