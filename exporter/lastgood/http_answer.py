"""Post over HTTP and take the answer within one deadline and one size, whatever the other side sends.

A socket's time-out is for each wait alone, so a server that sends a byte now and then would hold its client for ever,
and one that never stops would fill its memory. Here status, headers and body share one deadline, however many reads
they take, and what nobody needs of a body is not read: the connection is closed instead. Not covered: the look-up of
a name, which the resolver bounds; and each address of a name may use up the time-out until one of them connects.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

MOST_BYTES: Final = 1 << 16
"""Of a whole answer, where nobody says otherwise: status, headers, what is read of the body."""
REST_BYTES: Final = 4096
"""Of a body beyond its text, to find its end and use the connection again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said; ``text`` is the beginning of the body."""

    status: int
    headers: http.client.HTTPMessage
    text: str


def post(
    connection: http.client.HTTPConnection,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    text_bytes: int,
    most_bytes: int = MOST_BYTES,
) -> Answer:
    """Post, and return the answer. The connection stays open only where all of the answer was read.

    ``text_bytes``: what is read of the body; ``most_bytes``: what the whole answer may have. Raises ``OSError``
    (``TimeoutError`` after ``seconds``) or ``HTTPException``; the connection is closed then.
    """
    deadline = time.monotonic() + seconds
    connection.timeout = seconds
    if connection.sock is not None:
        connection.sock.settimeout(seconds)
    connection.response_class = cast(type[http.client.HTTPResponse], partial(_Response, deadline, most_bytes))
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        text = response.read(text_bytes).decode(errors="replace").strip()
        response.read(REST_BYTES)
    except TimeoutError as problem:
        connection.close()
        raise TimeoutError(f"no whole answer within {seconds:.3g} s") from problem
    except BaseException:
        connection.close()
        raise
    if response.will_close or not response.isclosed():
        connection.close()
    return Answer(response.status, response.headers, text)


class _Response(http.client.HTTPResponse):
    """A response whose every byte is read before ``deadline``, monotonic seconds."""

    def __init__(self, deadline: float, most_bytes: int, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()  # the file, not the socket
        self.fp = io.BufferedReader(_Bounded(sock, deadline, most_bytes))


class _Bounded(io.RawIOBase):
    """What comes from a socket, until a deadline and up to a size."""

    def __init__(self, sock: socket.socket, deadline: float, most_bytes: int) -> None:
        self._sock, self._deadline, self._most_bytes, self._left_bytes = sock, deadline, most_bytes, most_bytes
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read once. Raises ``TimeoutError`` after the deadline, ``HTTPException`` beyond the size."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        size = self._file.readinto(buffer)
        self._left_bytes -= size or 0
        if self._left_bytes < 0:
            raise http.client.HTTPException(f"the answer is longer than {self._most_bytes} bytes")
        return size

    def close(self) -> None:
        """Let the socket go."""
        self._file.close()
        super().close()
