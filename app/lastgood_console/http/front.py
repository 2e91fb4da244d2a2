"""Stand before Streamlit: take what is for the HTTP API, and put the path prefix back where a proxy took it off.

With ``base`` (``/lastgood``) everything is served below it, as Streamlit's ``server.baseUrlPath`` has its own routes. A
proxy may pass the prefix on or strip it; and who comes past the proxy, such as a probe or Prometheus on this machine,
need not know of it. So a path without the prefix means the same as one with it. ``//`` is nobody's path.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lastgood_console.http.access import REFUSED, Access
from lastgood_console.http.lost import led_to, page_answer
from lastgood_console.http.responses import problem

OURS = ("/api", "/healthz", "/metrics")
CLOSED = ("/media", "/_stcore/metrics", "/_stcore/upload_file")
"""What Streamlit serves beside pages that is for those who may read: what a page offers for download, and the like."""


class Front:
    """Pass a request to the API, or to Streamlit's application ``app``. ``base``: "" or "/prefix"."""

    def __init__(self, app: ASGIApp, api: ASGIApp, access: Access, base: str = "") -> None:
        self._app, self._api, self._access, self._base = app, api, access, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        path = without_base(scope["path"], self._base)
        if scope["type"] == "http":
            closed = any(is_below(path, one) for one in CLOSED)
            if self._access.sign_in and (closed or is_ours(path)):
                send = not_kept(send)
            if is_ours(path):
                return await self._api({**scope, "path": path}, receive, send)
            if closed and not self._access.may_read(HTTPConnection(scope)):
                return await problem(401, REFUSED)(scope, receive, send)
            if self._base and scope["path"] == self._base:  # links on a page are relative: its folder must be named
                return await led_to(scope, f"{self._base}/")(scope, receive, send)
            if answer := page_answer(scope, path, self._base):
                return await answer(scope, receive, send)
        await self._app({**scope, "path": self._base + path}, receive, send)


def not_kept(send: Send) -> Send:
    """Let no browser keep an answer: it would show it again, by its back button, to whoever comes after a sign-out."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["cache-control"] = "no-store"
        await send(message)

    return sent


def without_base(path: str, base: str) -> str:
    """Return a path without the prefix, whether it had it or not."""
    return path.removeprefix(base) or "/" if base and is_below(path, base) else path


def is_ours(path: str) -> bool:
    """Tell whether a path (without the prefix) is the API's to answer."""
    return any(is_below(path, own) for own in OURS)


def is_below(path: str, folder: str) -> bool:
    """Tell whether a path is a folder or lies in it."""
    return path == folder or path.startswith(f"{folder}/")
