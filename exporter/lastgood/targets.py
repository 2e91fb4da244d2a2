"""Tell Prometheus where the ranks are: ``<run>/targets.json`` for file-based service discovery.

The entries carry no ``run``, ``rank`` or ``node`` label: the series have their own, and a target label of the same
name would rename them. Prometheus re-reads the file when it changes, so it is only ever replaced as a whole.

A server of ours answers the same for all active runs at ``/api/sd``, for HTTP-based service discovery. There each
group says its run in ``__meta_lastgood_run``, which Prometheus offers to relabelling and drops behind it. One target
that Prometheus cannot read would cost it all others, and everybody may write into a run directory on shared storage:
what is no address, or more than the largest job has, is left out and said once.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from lastgood.run_time import last_heard
from lastgood.state import RunState

NAME: Final = "targets.json"
GIVEN_UP_SECONDS: Final = 86_400.0
"""A run that said nothing for a day did not end: it is gone, and its ranks are looked for no longer."""
MOST_BYTES: Final = 4 << 20
MOST_TARGETS: Final = 32_768
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?", re.ASCII)
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Targets:
    """What a run's ``targets.json`` holds. ``left_out``: what of it is not taken, in words; empty when all is."""

    addresses: tuple[str, ...]
    left_out: str = ""


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


class Discovery:
    """Find the targets of every active run. ``say``: is told what is left out, once for each run and reason."""

    def __init__(
        self, ledger: LedgerView, say: Callable[[str], None] = lambda _: None, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger, self._say, self._clock = ledger, say, clock
        self._said: dict[str, str] = {}

    def groups(self) -> list[dict[str, Any]]:
        """Return the targets as Prometheus's HTTP service discovery expects them."""
        groups = []
        for name, path in self._active():
            found = read_targets(path)
            if found.left_out and self._said.get(name) != found.left_out:
                self._said[name] = found.left_out
                self._say(f"{path / NAME}: {found.left_out}")
            if found.addresses:
                groups.append({"targets": list(found.addresses), "labels": {"__meta_lastgood_run": name}})
        return groups

    def _active(self) -> Iterable[tuple[str, Path]]:
        for name, state in self._ledger.runs().items():
            path = self._ledger.path_of(name)
            if path is not None and state.active and self._clock() - last_heard(state) < GIVEN_UP_SECONDS:
                yield name, path


def read_targets(run_dir: Path) -> Targets:
    """Return the addresses in ``<run_dir>/targets.json``; none when there is no such file, or it is not ours."""
    try:
        text = _contents(run_dir / NAME)
        if len(text) > MOST_BYTES:
            return Targets((), f"left out: more than the {MOST_BYTES >> 20} MiB that the largest job needs")
        named = [target for group in json.loads(text) for target in group["targets"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return Targets(())
    return _sorted_out(named)


def _sorted_out(named: list[Any]) -> Targets:
    """Keep each address once, and no more than the largest job has."""
    good = dict.fromkeys(target for target in named if isinstance(target, str) and is_address(target))
    bad = next((target for target in named if not isinstance(target, str) or target not in good), None)
    said = [] if bad is None else [f"left out what is no host:port, such as {str(bad)[:60]!r}"]
    if len(good) > MOST_TARGETS:
        said.append(f"left out {len(good) - MOST_TARGETS} targets: {MOST_TARGETS} of one run are taken")
    return Targets(tuple(good)[:MOST_TARGETS], "; ".join(said))


def is_address(target: str) -> bool:
    """Tell whether a text is ``host:port``: a name, an IPv4 address or an IPv6 address in brackets; 1 to 65535."""
    host, colon, port = target.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        return False
    return _is_ipv6(host[1:-1]) if host.startswith("[") and host.endswith("]") else bool(_HOST.fullmatch(host))


def _is_ipv6(host: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(host)) and host.isascii() and host.isprintable() and " " not in host
    except ValueError:
        return False


def _contents(path: Path) -> bytes:
    """Read a regular file that is no link, up to a byte more than what is taken."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not a regular file")
        return file.read(MOST_BYTES + 1)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
