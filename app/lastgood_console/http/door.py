"""Stand between the front and Streamlit when sign-in is on: keep out what ended, and lead back to where one came from.

Streamlit looks at a session once, when a tab connects. A tab stays open for days, and its pages draw themselves again
without asking who looks. So the session is looked at here with every message: where it ended (sign-out in any tab, age)
the connection is closed, nothing more is told and nothing more is done. The tab connects again by itself, as nobody,
and shows the way in. Streamlit also comes back from the provider to its first page; here it is the page one asked for.
"""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lastgood_console.http.sessions import Sessions

BACK: Final = "lastgood_back"
"""The cookie that holds, on the way to the provider and back, which page was asked for."""
FAILED: Final = "lastgood_sign_in_failed"
"""The cookie that tells the page, for a minute, that somebody came back without being signed in."""
WAY_SECONDS: Final = 900
LONGEST: Final = 1500
POLICY_VIOLATION: Final = 1008


class Door:
    """Pass a request on to Streamlit's application ``app``. ``base``: "" or "/prefix"; every path here has it."""

    def __init__(self, app: ASGIApp, sessions: Sessions, base: str = "") -> None:
        self._app, self._sessions, self._base = app, sessions, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or one connection."""
        if scope["type"] == "websocket":
            return await self._connected(scope, receive, send)
        path = scope["path"].removeprefix(self._base) if scope["type"] == "http" else ""
        if path == "/auth/login":
            send = self._leaving(HTTPConnection(scope), send)
        elif path == "/oauth2callback" and b"state=" not in scope["query_string"]:  # from a sign-out at the provider
            return await RedirectResponse(f"{self._base}/")(scope, receive, send)
        elif path == "/oauth2callback":
            send = self._coming_back(HTTPConnection(scope), send)
        elif path == "/auth/logout":
            self._sessions.end(HTTPConnection(scope))
        await self._app(scope, receive, send)

    async def _connected(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        if not self._sessions.holds(connection):
            return await self._app(without_session(scope), receive, send)

        async def heard() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive" or self._sessions.holds(connection):
                return message
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "signed out"})
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}

        async def told(message: Message) -> None:
            if message["type"] != "websocket.send" or self._sessions.holds(connection):
                await send(message)

        await self._app(scope, heard, told)

    def _leaving(self, connection: HTTPConnection, send: Send) -> Send:
        """Let a browser that goes to the provider remember its page, and lead it back where no provider answers."""
        page = page_of(connection.headers.get("referer", ""), _origin(), self._base)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.append("set-cookie", self._cookie(BACK, quote(page, safe=""), WAY_SECONDS if page else 0))
                failed = message["status"] >= 400
                headers.append("set-cookie", self._cookie(FAILED, "1" if failed else "", 60 if failed else 0))
                if failed:
                    message["status"], headers["location"] = 302, page or f"{self._base}/"
            await send(message)

        return sent

    def _coming_back(self, connection: HTTPConnection, send: Send) -> Send:
        """Lead a browser that comes from the provider to its page, and let it tell when nobody is signed in."""
        page = page_of(_origin() + unquote(connection.cookies.get(BACK, "")), _origin(), self._base)
        asked = parse_qs(connection.scope["query_string"].decode("latin-1"))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (302, 303, 307):
                headers = MutableHeaders(scope=message)
                if page and headers.get("location") == f"{self._base}/":
                    headers["location"] = page
                headers.append("set-cookie", self._cookie(BACK, "", 0))
                if {"code", "error"} & asked.keys() and not signs_in(headers) and not self._sessions.holds(connection):
                    headers.append("set-cookie", self._cookie(FAILED, "1", 60))
                if _origin().startswith("https:"):
                    secure(headers)
            await send(message)

        return sent

    def _cookie(self, name: str, value: str, seconds: int) -> str:
        return f"{name}={value}; Path={self._base or '/'}; Max-Age={seconds}; HttpOnly; SameSite=Lax"


def page_of(address: str, origin: str, base: str) -> str:
    """Return path and query of an address of this console's; "" for any other. ``base``: "" or "/prefix".

    A path that a browser would take for another host's name ("//host") is none of ours.
    """
    if len(address) > LONGEST or not address.isascii() or not address.isprintable() or set(address) & set(' "\\<>'):
        return ""
    try:
        where = urlsplit(address)
    except ValueError:
        return ""
    if not origin or f"{where.scheme}://{where.netloc}" != origin or not where.path.startswith(f"{base}/"):
        return ""
    if where.path.startswith("//") or where.path.removeprefix(base) in ("/auth/login", "/oauth2callback"):
        return ""
    return f"{where.path}?{where.query}" if where.query else where.path


def signs_in(headers: Headers) -> bool:
    """Tell whether an answer gives the browser a session."""
    from lastgood_console.http.streamlit_session import USER_COOKIE_NAME

    found = (SimpleCookie(line).get(USER_COOKIE_NAME) for line in headers.getlist("set-cookie"))
    return any(cookie is not None and cookie.value for cookie in found)


def secure(headers: MutableHeaders) -> None:
    """Let a browser send the cookies of an answer over https alone; Streamlit does not ask for that."""
    lines = headers.getlist("set-cookie")
    del headers["set-cookie"]
    for line in lines:
        headers.append("set-cookie", line if "; secure" in line.lower() else f"{line}; Secure")


def without_session(scope: Scope) -> Scope:
    """Return a scope without the cookies of a session: it ended, and Streamlit would take it for good."""
    from lastgood_console.http.streamlit_session import TOKENS_COOKIE_NAME, USER_COOKIE_NAME

    def rest(value: bytes) -> bytes:
        parts = (part.strip() for part in value.split(b";"))
        names = (USER_COOKIE_NAME.encode(), TOKENS_COOKIE_NAME.encode())
        return b"; ".join(part for part in parts if not part.startswith(names))

    headers = [(name, rest(value) if name == b"cookie" else value) for name, value in scope["headers"]]
    return {**scope, "headers": headers}


def _origin() -> str:
    from lastgood_console.http.streamlit_session import origin

    return origin()
