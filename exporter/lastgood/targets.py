"""Tell Prometheus where the ranks are: ``<run>/targets.json`` for file-based service discovery.

The entries carry no ``run``, ``rank`` or ``node`` label: the series have their own, and a target label of the same
name would rename them. Prometheus re-reads the file when it changes, so it is only ever replaced as a whole.

A server of ours answers the same for all active runs at ``/api/sd``, for HTTP-based service discovery. There each
group says its run in ``__meta_lastgood_run``, which Prometheus offers to relabelling and drops behind it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from lastgood.run_time import last_heard
from lastgood.state import RunState

NAME: Final = "targets.json"
GIVEN_UP_SECONDS: Final = 86_400.0
"""A run that said nothing for a day did not end: it is gone, and its ranks are looked for no longer."""
MOST_BYTES: Final = 16 << 20
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_.:\[\]%-]{1,255}:[0-9]{1,5}", re.ASCII)


class LedgerView(Protocol):
    """What service discovery asks of a ledger."""

    def runs(self) -> Mapping[str, RunState]:
        """Return name -> state of every run."""

    def path_of(self, name: str) -> Path | None:
        """Return the run directory."""


def write_targets(run_dir: Path | str, endpoints: Iterable[tuple[str, int | None]]) -> Path:
    """Replace ``<run_dir>/targets.json`` by the given (host, port) of every rank and return its path.

    A rank without an endpoint (port None) is left out. Raises OSError when the file cannot be written.
    """
    targets = [_address(host, port) for host, port in endpoints if port is not None]
    path = Path(run_dir) / NAME
    # Not a NamedTemporaryFile: its mode 0600 would lock Prometheus, which is another user, out.
    part = path.with_name(f".{NAME}.{os.getpid()}.part")
    part.write_text(json.dumps([{"targets": targets}] if targets else [], indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def withdraw_targets(run_dir: Path | str, written: bytes) -> None:
    """Take an attempt's targets back when it ends, unless a newer attempt has written its own.

    ``written`` is what this attempt's file held. Raises OSError when the file cannot be read or written.
    """
    path = Path(run_dir) / NAME
    if path.read_bytes() == written:
        write_targets(run_dir, [])


def target_groups(ledger: LedgerView, clock: Callable[[], float] = time.time) -> list[dict[str, Any]]:
    """Return the targets of every active run, as Prometheus's HTTP service discovery expects them."""
    groups = []
    for name, state in ledger.runs().items():
        path = ledger.path_of(name)
        if path is not None and state.active and clock() - last_heard(state) < GIVEN_UP_SECONDS:
            targets = read_targets(path)
            if targets:
                groups.append({"targets": targets, "labels": {"__meta_lastgood_run": name}})
    return groups


def read_targets(run_dir: Path) -> list[str]:
    """Return the addresses in ``<run_dir>/targets.json``; none when there is no such file, or it is not ours."""
    try:
        groups = json.loads(_contents(run_dir / NAME))
        named = [target for group in groups for target in group["targets"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return [target for target in named if isinstance(target, str) and _ADDRESS.fullmatch(target)]


def _contents(path: Path) -> bytes:
    """Read a regular file that is no link, up to what 16,384 ranks need."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not a regular file")
        return file.read(MOST_BYTES)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
