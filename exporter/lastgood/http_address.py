"""Reach one HTTP address and no other: no redirect is followed and no proxy used, so a token goes there alone."""

from __future__ import annotations

import http.client
import re
import ssl
from urllib.parse import urlsplit

from lastgood.errors import ConfigError


def is_host(text: str) -> bool:
    """Tell whether a text can be the name or address of a host: what Python cannot encode for a look-up is none."""
    try:
        return bool(text.encode("idna")) and "\0" not in text
    except UnicodeError:
        return False


class HttpAddress:
    """A parsed ``http`` or ``https`` address.

    ``what`` and ``example`` are for the :class:`ConfigError` that a wrong one raises. ``shown`` is the address without
    what may be secret: a login, a query.
    """

    def __init__(self, url: str, what: str, example: str) -> None:
        host: str | None = None
        try:
            parts = urlsplit(url)
            host, self.port = parts.hostname, parts.port
        except ValueError:
            pass
        if (
            not host
            or not is_host(host)
            or parts.scheme not in ("http", "https")
            or not url.isascii()
            or not url.isprintable()
            or " " in url
        ):
            public = re.sub(r"//[^/]*@", "//", url)
            raise ConfigError(f"{what} {public!r} must look like {example}")
        self.host = host
        self.secure = parts.scheme == "https"
        self.path, self.query = parts.path, parts.query
        self.has_login = "@" in parts.netloc
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def connection(self, timeout: float, authorities: str | None = None) -> http.client.HTTPConnection:
        """Return a connection that its first request opens. ``timeout``: seconds that each wait may take.

        ``authorities``: file of the certificates to trust instead of the system's. Raises ``OSError`` when it is none.
        """
        if self.secure:
            context = ssl.create_default_context(cafile=authorities)
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
