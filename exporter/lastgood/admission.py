"""Decide who may post to a server of ours, and read what is posted. Framework-free: body, headers, client address.

Who may post: whoever shows the token, from wherever; on a server that has no token, this machine alone. A web page must
not be able to post through a visitor's browser, so without a token the request has to name a loopback host, must not
have come through a proxy, and needs a JSON content type (which a page cannot send to another origin unasked). Not
covered: quotas.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

MOST_NESTED: Final = 64
_PROXY_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class Refusal(Exception):
    """Why a request is not taken: HTTP status and a sentence."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with their names in lower case, as the functions below expect them."""
    return {name.lower(): value for name, value in headers.items()}


def authorise(headers: Mapping[str, str], client_host: str, token: str | None) -> None:
    """Let the token pass, and where there is none this machine. Raises :class:`Refusal` 401.

    ``headers``: lower-case names. ``token``: the server's; where it has one, this machine has to show it too.
    """
    if "authorization" in headers:
        if not shows_token(headers, token):
            raise Refusal(401, "this is not the token: send 'Authorization: Bearer $LASTGOOD_TOKEN' of this server")
    elif token:
        raise Refusal(401, "no token was shown: send 'Authorization: Bearer $LASTGOOD_TOKEN' of this server")
    elif not is_local(headers, client_host):
        raise Refusal(401, "only this machine may post without a token: set LASTGOOD_TOKEN here and there")


def shows_token(headers: Mapping[str, str], token: str | None) -> bool:
    """Tell whether a request shows the token as a bearer. ``headers``: lower-case names; no token: nobody does."""
    scheme, _, shown = headers.get("authorization", "").partition(" ")
    return bool(token) and scheme.lower() == "bearer" and same(shown.strip(), str(token))


def expect_type(headers: Mapping[str, str], types: Collection[str]) -> None:
    """Raise :class:`Refusal` 415 for another content type than ``types``, or a packed body: none is unpacked here.

    ``headers``: lower-case names.
    """
    if (packed := headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
        raise Refusal(415, f"Content-Encoding {packed[:20]!r} is not unpacked here: send the body as it is")
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in types:
        raise Refusal(415, f"Content-Type must be one of {', '.join(types)}")


def read_json(body: bytes, most_bytes: int) -> Any:
    """Return what a body holds.

    Raises :class:`Refusal` 413 when it is too large, 400 when it is not JSON or nested deeper than ``MOST_NESTED``.
    """
    if len(body) > most_bytes:
        raise Refusal(413, f"{len(body)} bytes are more than the {most_bytes} one request may have: post fewer")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Refusal(400, f"the body is not JSON: {str(problem)[:200]}") from None
    if _is_nested(content, MOST_NESTED):
        raise Refusal(400, f"the body is nested deeper than the {MOST_NESTED} levels that are read")
    return content


def _is_nested(content: Any, levels: int) -> bool:
    """Tell whether JSON data is nested deeper than so many levels. Level by level: recursion has an end of its own."""
    held = [content]
    for _ in range(levels + 1):
        held = [value for one in held for value in _values(one)]
    return bool(held)


def _values(content: Any) -> Iterable[Any]:
    if isinstance(content, dict):
        return content.values()
    return content if isinstance(content, list) else ()


def same(given: str, token: str) -> bool:
    """Compare secrets in a time that does not tell how much of them agrees."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode(errors="replace"))


def is_loopback(host: str) -> bool:
    """Tell whether an address or host name is this machine's own."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_local(headers: Mapping[str, str], client_host: str) -> bool:
    """Tell whether a request comes from this machine, under its name and past no proxy. Header names: lower case."""
    if not is_loopback(client_host) or any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        named = urlsplit(f"//{headers.get('host', 'localhost')}").hostname or ""
    except ValueError:
        return False
    return is_loopback(named)
