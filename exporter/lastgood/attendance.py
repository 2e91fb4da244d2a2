"""Name the ranks that do not come: every rank enters a save or a resume, and one that never does blocks the others.

Each rank says in the job's key-value store that it has arrived. After ``timeout`` seconds, whoever still waits reads
the list and warns with the names of the missing. The wait itself is not cut short: the job's own time-out does that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch.distributed as dist

from lastgood.notice import warn


class Attendance:
    """Wait for all ranks at a meeting with a name; a context around its first collective. ``call``: what they call."""

    def __init__(
        self,
        rank: int,
        size: int,
        meeting: str,
        call: str,
        timeout: float,
        on_missing: Callable[[list[int]], None] | None = None,
    ) -> None:
        self.rank, self.size, self.call, self.timeout = rank, size, call, timeout
        self._key = f"lastgood/{meeting}"
        self._on_missing = on_missing
        self._store = job_store() if size > 1 else None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        if self._store is None:
            return
        self._store.set(f"{self._key}/{self.rank}", "1")
        self._timer = threading.Timer(self.timeout, self._report)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def missing(self) -> list[int]:
        """Return the ranks that have not arrived."""
        if self._store is None:
            return []
        return [r for r in range(self.size) if not self._store.check([f"{self._key}/{r}"])]

    def _report(self) -> None:
        try:
            missing = self.missing()
        except Exception:  # the store went away with the rank that held it: nothing to say
            return
        arrived = [r for r in range(self.size) if r not in missing]
        if not missing or not arrived or arrived[0] != self.rank:
            return  # one voice: the lowest rank that waits
        names = ", ".join(map(str, missing))
        warn(
            f"{self.call} waits since {self.timeout:g} s for rank {names}: every rank must call it, also those that "
            "read or write nothing."
        )
        if self._on_missing is not None:
            self._on_missing(missing)


def job_store() -> Any:
    """Return the job's store, None without one. Private in torch: without it, nobody knows who is missing."""
    try:
        return dist.distributed_c10d._get_default_store()
    except Exception:
        return None
