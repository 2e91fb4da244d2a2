"""Try a run directory: everything that the journal does there, in a folder of its own that is removed again.

The journal needs a POSIX file system on storage that outlives the node: exclusive creation, rename within a
directory, fsync, and a clock that agrees with the nodes' own (times in the journal are the nodes').
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lastgood_console.doctor.item import Item, fail, ok, warn

SKEW_WARN_SECONDS: Final = 2.0
SKEW_FAIL_SECONDS: Final = 60.0
NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs")
"""File systems on which another machine sees a new name late."""
MOST_NAME: Final = 200
"""Characters of a path that are shown when it cannot be used."""
IN_MEMORY: Final = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class Tried:
    """What was found. ``failed``: action and reason of each that did not work. ``skew_seconds``: their clock - ours."""

    path: Path
    exists: bool
    filesystem: str = ""
    failed: tuple[tuple[str, str], ...] = ()
    skew_seconds: float | None = None


# --- probes ----------------------------------------------------------------------------------------------------------


def look(path: str) -> list[Item]:
    """Try ``path`` and return what there is to say."""
    if "://" in path:
        return [
            fail("run directory", f"{path} is an object store", "give a POSIX path; mount the store, or copy to it")
        ]
    try:
        return list(judged(tried(Path(path).absolute())))
    except OSError as error:
        return [fail("run directory", f"{path[:MOST_NAME]}: {_reason(error)}", "give a path that can be used here")]


def tried(path: Path) -> Tried:
    """Do what the journal does there, or in the nearest folder above it that there is."""
    if path.exists():
        return try_directory(path)
    parent = next(folder for folder in path.parents if folder.exists())
    return Tried(path, False, filesystem_of(parent), tried_actions(parent)[0])


def try_directory(path: Path) -> Tried:
    """Do in ``path`` what the journal does."""
    failed, skew = tried_actions(path)
    return Tried(path, True, filesystem_of(path), failed, skew)


def tried_actions(path: Path) -> tuple[tuple[tuple[str, str], ...], float | None]:
    """Return what failed, and by how much the file system's clock is ahead of ours."""
    folder = path / f".lastgood-doctor-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        return (("write", _reason(error)),), None
    try:
        failed = [(name, reason) for name, action in _ACTIONS if (reason := _tried(action, folder))]
        return tuple(failed), _skew(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(action: Callable[[Path], None], folder: Path) -> str:
    try:
        action(folder)
    except (OSError, RuntimeError) as error:
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _create_exclusively(folder: Path) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY
    os.close(os.open(folder / "once", flags, 0o644))
    with suppress(FileExistsError):
        os.close(os.open(folder / "once", flags, 0o644))
        raise RuntimeError("a name could be taken twice")


def _append_and_sync(folder: Path) -> None:
    with (folder / "lines").open("ab") as file:
        file.write(b"{}\n")
        file.flush()
        os.fsync(file.fileno())
    if (folder / "lines").read_bytes() != b"{}\n":
        raise RuntimeError("what was written is not what is read")


def _rename(folder: Path) -> None:
    for text in ("old", "new"):
        (folder / "part").write_text(text, encoding="utf-8")
        os.replace(folder / "part", folder / "whole")
    if (folder / "whole").read_text(encoding="utf-8") != "new":
        raise RuntimeError("a rename did not replace the old file")


def _lock(folder: Path) -> None:
    with (folder / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_ACTIONS: Final = (("exclusive creation", _create_exclusively), ("append and fsync", _append_and_sync),
                   ("rename", _rename), ("flock", _lock))  # fmt: skip


def _skew(folder: Path) -> float | None:
    """Compare a new file's time with the clock before and after; within that span there is no skew."""
    try:
        before = time.time()
        (folder / "clock").write_bytes(b"")
        stamp, after = (folder / "clock").stat().st_mtime, time.time()
    except OSError:
        return None
    return max(0.0, stamp - after) + min(0.0, stamp - before + 0.02)  # a file's time is up to a tick (10 ms) old


def filesystem_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system that holds ``path``; empty when it cannot be told."""
    try:
        rows = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    resolved = path.resolve()
    found = [(len(row[1]), number, row[2]) for number, row in enumerate(rows)
             if len(row) > 2 and resolved.is_relative_to(row[1].replace("\\040", " "))]  # fmt: skip
    return max(found)[2] if found else ""


# --- decisions -------------------------------------------------------------------------------------------------------


def judged(tried: Tried) -> Iterator[Item]:
    """Judge what was found."""
    yield _usable(tried)
    if tried.filesystem in NETWORK:
        yield warn("file system", f"{tried.filesystem}: another machine may see a new file up to a minute late",
                   "set LASTGOOD_CONSOLE_URL, so that ranks post findings at once")  # fmt: skip
    elif tried.filesystem in IN_MEMORY:
        yield warn("file system", f"{tried.filesystem}: what is written here is gone with the node",
                   "put runs on storage that outlives the node")  # fmt: skip
    elif tried.filesystem:
        yield ok("file system", tried.filesystem)
    if tried.skew_seconds is not None:
        yield skew_item("clock of the run directory", tried.skew_seconds)


def _usable(tried: Tried) -> Item:
    name, failed = "run directory", dict(tried.failed)
    if "write" in failed:
        where = f"{tried.path}" if tried.exists else f"{tried.path} does not exist, and its parent"
        return fail(
            name, f"{where} cannot be written: {failed['write']}", "make it writable, or give another directory"
        )
    reasons = "; ".join(f"{action}: {reason}" for action, reason in tried.failed)
    if set(failed) == {"flock"}:
        return warn(name, f"{tried.path}: {reasons}", "only lastgood stack needs it: give it another --data")
    if failed:
        return fail(name, f"{tried.path} is no POSIX file system: {reasons}", "put runs on a file system that is one")
    if not tried.exists:
        return ok(name, f"{tried.path} does not exist yet and can be made")
    return ok(name, f"{tried.path}: exclusive creation, append, fsync, rename and flock work")


def skew_item(name: str, seconds: float) -> Item:
    """Judge how far another clock is from ours. ``seconds``: theirs - ours."""
    ahead = f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    if abs(seconds) >= SKEW_FAIL_SECONDS:
        return fail(name, ahead, "run NTP or chrony on both: alerts and the timeline would be wrong")
    if abs(seconds) >= SKEW_WARN_SECONDS:
        return warn(name, ahead, "run NTP or chrony on both")
    return ok(name, "agrees with this machine's")
