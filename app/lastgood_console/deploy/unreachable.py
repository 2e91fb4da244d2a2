"""Say in one sentence why a server could not be reached. Pure.

The HTTP library wraps the operating system's word several times, and its own message shows the wrapping. What a person
can act on is inside: refused, no such name, no answer in time, TLS. Each is found along causes, contexts and arguments.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Final

MOST_WRAPPINGS: Final = 50


def why(error: BaseException) -> str:
    """Return what failed, as the end of a sentence."""
    found = [*_inside(error)]
    for inner in found:
        if said := _word(inner):
            return said
    kept = [inner.strerror for inner in found if isinstance(inner, OSError) and isinstance(inner.strerror, str)]
    return kept[-1].lower() if kept else f"the connection broke ({type(found[-1]).__name__})"


def _inside(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it wraps, from the outside in, each once."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < MOST_WRAPPINGS:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        waiting += [each for each in inner if isinstance(each, BaseException)]


def _word(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused: nothing listens there, or a firewall stands before it"
    if isinstance(error, socket.gaierror):
        return "the name was not found: look for a slip in the address, or ask DNS"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({_reason(error)}): does it speak https on this port?"
    if isinstance(error, TimeoutError):
        return "the connection timed out"
    return "the connection was cut" if isinstance(error, ConnectionResetError | BrokenPipeError) else ""


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason).replace("_", " ").lower() if error.reason else "no reason given"
