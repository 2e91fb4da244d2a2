"""Take the address of a web page or a server from a command line. It ends up in alerts, dashboards and messages."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from lastgood.errors import ConfigError
from lastgood.http_address import is_host

UNSAFE: Final = frozenset("{}`\"'<>\\$?# ")
"""What would end a text that an address stands in, begin a template in it, or begin what no path can follow."""


def web_address(option: str, text: str, example: str) -> str:
    """Return an http(s) address without its last slash. Raises :class:`ConfigError`, which never shows a password."""
    try:
        parts = urlsplit(text)
        login = "@" in (parts.netloc or text)
        good = parts.scheme in ("http", "https") and is_host(parts.hostname or "")
        _ = parts.port
    except ValueError:
        login, good = "@" in text, False
    if login:
        raise ConfigError(f"{option} holds a name or a password: give the address alone, and a secret by a token")
    if not good or not text.isprintable() or UNSAFE & {*text}:
        raise ConfigError(f"{option} {text!r}: not an address that a browser opens: give one such as {example}")
    return text.rstrip("/")
