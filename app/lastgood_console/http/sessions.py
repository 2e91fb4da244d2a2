"""Know which sessions of browsers hold: those that Streamlit signed, that are not too old and that nobody ended.

A session is a signed cookie, good for 30 days (or ``--session-hours``) to whoever has it. A sign-out that only takes it
from the browser would end nothing: other tabs go on, and so does a copy. So what was ended is remembered, by its digest
and over restarts, until it would have ended by itself. Not covered: what the provider ends; it is asked at the sign-in
alone.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lastgood.serve import warn

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

MOST_HOURS: Final = 30 * 24
"""So long a browser keeps Streamlit's cookie."""
FILE: Final = "signed-out"


class Sessions:
    """The sessions of one console, which last ``hours``.

    ``file``: where those that were ended are kept, one "until digest" a line.
    """

    def __init__(self, file: Path, hours: int = MOST_HOURS, clock: Callable[[], float] = time.time) -> None:
        self._file, self._hours, self._clock = file, hours, clock
        self._ended = dict(self._remembered())

    def holds(self, connection: HTTPConnection) -> bool:
        """Tell whether a request carries the session of somebody who is signed in, now."""
        name = self._name_of(connection)
        return name is not None and name not in self._ended

    def end(self, connection: HTTPConnection) -> None:
        """End the session that a request carries, everywhere and for good."""
        name = self._name_of(connection)
        if name is None or name in self._ended:
            return
        self._ended[name] = self._clock() + MOST_HOURS * 3600
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

    def _name_of(self, connection: HTTPConnection) -> str | None:
        from lastgood_console.http.streamlit_session import signed_session

        session = signed_session(connection.cookies, self._hours)
        return None if session is None else hashlib.sha256(session).hexdigest()


def session_hours(text: str) -> int:
    """Take the length of a session from a command line. Raises ``ArgumentTypeError``."""
    if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST_HOURS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of hours from 1 to {MOST_HOURS}")
