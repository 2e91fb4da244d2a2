"""Answer a browser that goes to a page that is none: Streamlit would show the overview, or nothing but white.

Only what a person opens is answered here. What a page loads by itself goes on to Streamlit, whose files stand in
folders of their own.
"""

from __future__ import annotations

from html import escape
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from lastgood_console.export.tokens import TOKENS
from lastgood_console.http.responses import SAFE

PAGES: Final = frozenset({"", "incident", "nodes", "checkpoints", "alerts", "runbook"})
"""What follows the address of the console, page by page."""
NO_PAGES: Final = frozenset({"_stcore", "static", "media", "component", "app", "auth", "oauth2callback"})
"""Folders of Streamlit: its connection, its files, signing in."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page_answer(scope: Scope, path: str, base: str) -> Response | None:
    """Return the answer to a visit of no page; None for a page, or for no visit. ``path``: without ``base``."""
    name = path.strip("/")
    if scope["method"] not in ("GET", "HEAD") or "text/html" not in Headers(scope=scope).get("accept", ""):
        return None
    if name in PAGES:  # links on a page are relative: a slash at its end would put them into a folder
        return None if path in ("/", f"/{name}") else led_to(scope, f"{base}/{name}")
    return None if name.partition("/")[0] in NO_PAGES else _lost(base)


def led_to(scope: Scope, place: str) -> Response:
    """Return the answer that leads a browser to another path, with the query that it has."""
    query = scope["query_string"].decode("latin-1")
    return RedirectResponse(f"{place}{'?' if query else ''}{query}")


def _lost(base: str) -> Response:
    overview = escape(f"{base}/", quote=True)
    page = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>lastgood</title><style>{_style()}</style>"
        "<h1>Nothing at this address.</h1><p>No page of the console is called that.</p>"
        f"<a href='{overview}'>Open overview</a></html>"
    )
    return HTMLResponse(page, 404, headers={**SAFE, "Content-Security-Policy": _POLICY})


def _style() -> str:
    light, dark = ("".join(f"--{name}:{TOKENS[name][i]};" for name in ("bg", "ink", "ink2")) for i in (0, 1))
    return (
        f":root{{{light}color-scheme:light dark}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        "body{margin:4rem 2rem;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}"
        "h1{font-size:1.4rem}p{color:var(--ink2)}a{color:inherit}"
    )
