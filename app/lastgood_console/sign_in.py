"""Let nobody see a page who is not signed in, when sign-in is on: Streamlit's, by OpenID Connect.

It is on when the console is started with ``--sign-in FILE``; the file is Streamlit's ``secrets.toml`` with an [auth]
table. That is decided once, at the start: a file that is changed or lost later shuts people out and lets nobody in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lastgood.errors import ConfigError

FEWEST_LETTERS: Final = 32
_NEEDED: Final = ("client_id", "client_secret", "server_metadata_url")

_providers: tuple[str, ...] = ()


def require(providers: Sequence[str]) -> None:
    """Ask every visitor of this process to sign in with one of these; with none, nobody is asked."""
    global _providers
    _providers = tuple(providers)


def gate() -> None:
    """Draw the way in, and nothing behind it, for a visitor who is not signed in."""
    import streamlit as st

    if not _providers or getattr(st.user, "is_logged_in", False) is True:
        return
    st.html('<div class="lg-empty">This console shows its runs to people who are signed in.</div>')
    for name in _providers:
        said = f"Sign in with {name}" if name else "Sign in"
        st.button(said, type="primary", on_click=st.login, args=(name,) if name else (), key=f"sign-in-{name}")
    st.stop()


def read_auth(file: Path) -> Mapping[str, Any]:
    """Return [auth] of a secrets.toml. Raises :class:`ConfigError`, which never shows a secret."""
    import tomllib

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("auth")
    except OSError as problem:
        raise ConfigError(f"--sign-in {file} cannot be read ({problem.strerror})") from None
    except ValueError:  # the reason would quote the file
        raise ConfigError(f"--sign-in {file} is not TOML: write it as docs/api.md shows") from None
    if not isinstance(found, dict):
        raise ConfigError(f"--sign-in {file} has no table [auth]: write it as docs/api.md shows")
    return found


def providers_of(auth: Mapping[str, Any], base: str = "") -> tuple[str, ...]:
    """Return whom one can sign in with: the names of the tables in [auth]; "" is [auth] itself.

    ``base``: the path prefix of the console. Raises :class:`ConfigError` with what is missing.
    """
    secret, ends = auth.get("cookie_secret"), f"{base}/oauth2callback"
    where = urlsplit(str(auth.get("redirect_uri")))
    if where.scheme not in ("http", "https") or not where.netloc or where.path != ends:
        raise ConfigError(f"[auth] redirect_uri must be the console's address for its visitors followed by {ends}")
    if not isinstance(secret, str) or len(secret) < FEWEST_LETTERS:
        raise ConfigError(f"[auth] cookie_secret needs {FEWEST_LETTERS} letters or more: `openssl rand -hex 32`")
    named = {name: table for name, table in auth.items() if isinstance(table, Mapping) and name != "client_kwargs"}
    found = {"": auth, **named} if not named or "client_id" in auth else named
    for name, table in found.items():
        if missing := [key for key in _NEEDED if not isinstance(table.get(key), str) or not table[key]]:
            raise ConfigError(f"[auth{name and f'.{name}'}] has no {', '.join(missing)}")
    return tuple(found)


def check_installed() -> None:
    """Raise :class:`ConfigError` when what Streamlit's sign-in needs is not installed."""
    from streamlit.auth_util import is_authlib_installed

    if not is_authlib_installed():
        raise ConfigError('--sign-in needs Authlib: pip install "lastgood[sign-in]"')
