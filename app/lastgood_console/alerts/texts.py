"""Keep what an alert says by now: its text may change while it fires, but its event is the first one.

Last good moves on while a run trains, so an alert that still fires says another step than when it began. A repeat is
the same fact and no new event; where its text is another one, the newest is kept here, for whoever shows what stands.
The file is replaced as a whole and synced before the sender gets its 200.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from lastgood.events import Event

TextKey = tuple[str, str, str]
"""Which alert a text is of: run, fingerprint, start."""
MOST_TEXTS: Final = 500
"""The alerts whose text changed most recently."""


def text_key(event: Event) -> TextKey:
    """Return which alert an event is of."""
    return event.run, event.data["fingerprint"], event.data["starts_at"]


class AlertTexts:
    """The newest texts of alerts whose text changed. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = Path(path), Lock()
        self._newest = _read(self._path)

    @property
    def newest(self) -> Mapping[TextKey, str]:
        """Return the texts; the mapping is never changed."""
        return self._newest

    def keep(self, repeats: Iterable[Event], first: Mapping[str, str]) -> bool:
        """Keep the texts of repeats that differ from the last known, synced; tell whether any did.

        ``first``: the id of an event -> its own text. Raises ``OSError``.
        """
        with self._lock:
            changed: dict[TextKey, str] = {}
            for event in repeats:
                key, said = text_key(event), str(event.data.get("summary", ""))
                if said != changed.get(key, self._newest.get(key, first.get(event.id))):
                    changed[key] = said
            if not changed:
                return False
            kept = {key: said for key, said in self._newest.items() if key not in changed} | changed
            newest = dict(list(kept.items())[-MOST_TEXTS:])
            _write(self._path, newest)
            self._newest = newest
        return True


def _read(path: Path) -> dict[TextKey, str]:
    """Return the kept texts; a file that is not there or is not ours holds none."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {(str(run), str(of), str(at)): str(said) for run, of, at, said in rows[-MOST_TEXTS:]}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _write(path: Path, texts: Mapping[TextKey, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump([[*key, said] for key, said in texts.items()], file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
