"""Remember which folders and run directories were there and are gone: a mount that failed is no empty folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Gone:
    """What was read and is not there any more; times are unix seconds.

    ``places``: folder -> since when it is gone. ``kept``: the runs in them, which stay as they were last read.
    ``runs``: run whose own directory is gone -> when that was last there (None: before the first whole read).
    """

    places: Mapping[Path, float] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    runs: Mapping[str, float | None] = field(default_factory=dict)


class Watch:
    """Watch the places that a ledger reads. Not thread-safe: the ledger's lock guards it."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._resolved: dict[Path, Path] = {}  # of each place that was there once
        self._devices: dict[Path, int] = {}  # the file system that it then lay on
        self._gone: dict[Path, float] = {}
        self._known: dict[str, Path] = {}  # every run that was found once
        self._runs: dict[str, float | None] = {}
        self._kept: frozenset[str] = frozenset()

    @property
    def gone(self) -> Gone:
        """Return what is gone now."""
        return Gone(dict(self._gone), self._kept, dict(self._runs))

    def look(self, now: float) -> None:
        """See which places are there. ``now``: unix seconds."""
        for place in self._places:
            device = _device_of(place)
            if device is not None and not self._is_bare_mount_point(place, device):
                self._resolved[place], self._devices[place] = place.resolve(), device
                self._gone.pop(place, None)
            elif place in self._resolved:
                self._gone.setdefault(place, now)

    def _is_bare_mount_point(self, place: Path, device: int) -> bool:
        """Tell whether a folder is what an unmounted file system leaves: empty, and on another file system than it."""
        with suppress(OSError):
            return self._devices.get(place, device) != device and not os.listdir(place)
        return False

    def covers(self, path: Path | None) -> bool:
        """Tell whether a run directory lies in a place that is gone."""
        if path is None:
            return False
        return any(self._resolved[place] in (path, path.parent) for place in self._gone)

    def with_kept(self, found: Mapping[str, Path], read_at: float | None) -> dict[str, Path]:
        """Return the runs that are there, and with them those whose whole place is gone.

        ``read_at``: when everything was last read (unix seconds).
        """
        there = set(found.values())
        away = {name: path for name, path in self._known.items() if name not in found and path not in there}
        kept = {name: path for name, path in away.items() if self.covers(path)}
        self._runs = {name: self._runs.get(name, read_at) for name in away.keys() - kept.keys()}
        self._known |= found
        self._kept = frozenset(kept)
        return {**found, **kept}


def _device_of(place: Path) -> int | None:
    """Return the file system that a folder lies on; None where there is no folder, or a stale file handle of one."""
    try:
        return os.stat(place).st_dev if os.path.isdir(place) else None
    except OSError:
        return None
