"""Know which sessions of browsers hold: those that Streamlit signed, that are not too old and that nobody ended.

A session is a signed cookie, good for 30 days to whoever has it. A sign-out that only takes it from the browser would
end nothing: other tabs go on, and so does a copy. So what was ended is remembered, by its digest and over restarts,
until it would have ended by itself. Not covered: what the provider ends; it is asked at the sign-in alone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from starlette.requests import HTTPConnection

from lastgood.serve import warn

REMEMBERED_SECONDS: Final = 32 * 86_400
"""Longer than Streamlit takes a session for good."""
FILE: Final = "signed-out"


class Sessions:
    """The sessions of one console. ``file``: where those that were ended are kept, one "until digest" a line."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock
        self._ended = dict(self._remembered())

    def holds(self, connection: HTTPConnection) -> bool:
        """Tell whether a request carries the session of somebody who is signed in, now."""
        name = _name_of(connection)
        return name is not None and name not in self._ended

    def end(self, connection: HTTPConnection) -> None:
        """End the session that a request carries, everywhere and for good."""
        name = _name_of(connection)
        if name is None or name in self._ended:
            return
        self._ended[name] = self._clock() + REMEMBERED_SECONDS
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="ascii") as kept:
                kept.write(f"{self._ended[name]:.0f} {name}\n")
        except OSError as problem:
            warn(f"a sign-out holds until this console ends: {self._file} cannot be written ({problem.strerror})")

    def _remembered(self) -> list[tuple[str, float]]:
        """Return digest and end of what was ended and would still be good."""
        found = []
        with suppress(OSError, UnicodeDecodeError):
            for line in self._file.read_text(encoding="ascii").splitlines():
                until, _, name = line.partition(" ")
                if until.isdecimal() and float(until) > self._clock():
                    found.append((name, float(until)))
        return found


def _name_of(connection: HTTPConnection) -> str | None:
    from lastgood_console.http.streamlit_session import signed_session

    session = signed_session(connection.cookies)
    return None if session is None else hashlib.sha256(session).hexdigest()
