"""Post remote-write messages to one receiver, and tell what its answer means for a sender.

2xx: taken. 429, 5xx, no answer: :class:`TryLater`. Everything else is :class:`Refused`: the receiver will not take the
same samples later either (older than what it has, a wrong token, a wrong path).
"""

from __future__ import annotations

import base64
import http.client
import time
from email.utils import parsedate_to_datetime
from typing import Final

from lastgood.http_address import HttpAddress
from lastgood.http_answer import Answer, post
from lastgood.push_wire import HEADERS

EXAMPLE: Final = "http://prometheus.example:9090/api/v1/write (LASTGOOD_PUSH_URL)"
_ANSWER_BYTES: Final = 200


class Refused(Exception):
    """The receiver will never take this message."""


class TryLater(OSError):
    """The receiver cannot take this message now. ``after``: seconds it asks to wait, 0 when it does not say."""

    def __init__(self, text: str, after: float = 0.0) -> None:
        super().__init__(text)
        self.after = after


def push_address(url: str) -> HttpAddress:
    """Return the parsed address of a receiver. Raises :class:`lastgood.errors.ConfigError`."""
    return HttpAddress(url, "push_url", EXAMPLE)


class Receiver:
    """One receiver. ``basic_auth`` is ``user:password``. The connection stays open until :meth:`rest`."""

    def __init__(self, url: str, *, token: str = "", basic_auth: str = "", version: str = "") -> None:
        address = push_address(url)
        self.shown = address.shown
        self._address = address
        self._path = (address.path or "/") + (f"?{address.query}" if address.query else "")
        self._headers = {**HEADERS, "User-Agent": f"lastgood/{version}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif basic_auth:
            self._headers["Authorization"] = f"Basic {base64.b64encode(basic_auth.encode()).decode()}"
        self._connection: http.client.HTTPConnection | None = None

    def send(self, body: bytes, timeout: float) -> None:
        """Post one message, within ``timeout`` seconds, the answer's last byte included.

        Raises :class:`Refused`, or ``OSError`` (with :class:`TryLater`) or ``HTTPException``.
        """
        seconds = max(timeout, 0.01)
        if self._connection is None:
            self._connection = self._address.connection(seconds)
        self._judge(post(self._connection, self._path, body, self._headers, seconds=seconds, text_bytes=_ANSWER_BYTES))

    def rest(self) -> None:
        """Close the connection; the next message opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _judge(self, answer: Answer) -> None:
        said = f"it answered {answer.status} {answer.text}".rstrip()
        if answer.status == 429 or answer.status >= 500:
            raise TryLater(said, retry_after(answer.headers.get("Retry-After"), time.time()))
        if not 200 <= answer.status < 300:
            raise Refused(said)


def retry_after(text: str | None, now: float) -> float:
    """Return the seconds that a ``Retry-After`` header asks to wait (a number or a date); 0 when it says nothing."""
    try:
        if text is None:
            return 0.0
        return max(0.0, float(text) if text.strip().isdecimal() else parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return 0.0
