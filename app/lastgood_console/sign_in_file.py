"""Read the file of ``--sign-in``: Streamlit's ``secrets.toml`` with an [auth] table, checked before anybody signs in.

What is wrong is said at the start, in one sentence that names keys and never shows a value that may be a secret:
Streamlit itself would say it to the first visitor, or not at all.
"""

from __future__ import annotations

import re
import stat
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lastgood.admission import is_loopback
from lastgood.errors import ConfigError

FEWEST_LETTERS: Final = 32
FEWEST_DIFFERENT: Final = 8
SHOWN: Final = "docs/console.md shows the file"

_NEEDED: Final = ("client_id", "client_secret", "server_metadata_url")
_PROVIDER: Final = frozenset((*_NEEDED, "client_kwargs"))
_SHARED: Final = frozenset(("redirect_uri", "cookie_secret", "expose_tokens"))
_USUAL: Final = {"http": ":80", "https": ":443"}
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,40}", re.ASCII)


def read_auth(file: Path) -> Mapping[str, Any]:
    """Return [auth] of the file. Raises :class:`ConfigError`."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("auth")
    except OSError as problem:
        raise ConfigError(f"--sign-in {file} cannot be read ({problem.strerror})") from None
    except ValueError:  # the reason would quote the file
        raise ConfigError(f"--sign-in {file} is not TOML: {SHOWN}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"--sign-in {file} has no table [auth]: {SHOWN}")
    return found


def providers_of(auth: Mapping[str, Any], base: str = "") -> tuple[str, ...]:
    """Return whom one can sign in with: the names of the tables in [auth]; "" is [auth] itself.

    ``base``: the path prefix of the console. Raises :class:`ConfigError` with what is wrong.
    """
    _check_redirect(str(auth.get("redirect_uri") or ""), f"{base}/oauth2callback")
    _check_secret(auth.get("cookie_secret"))
    named = {name: table for name, table in auth.items() if isinstance(table, Mapping) and name != "client_kwargs"}
    _check_keys("auth", set(auth) - set(named), _PROVIDER | _SHARED)
    for name, table in named.items():
        if not _NAME.fullmatch(name) or name == "default":
            raise ConfigError(f"[auth.{name}] is no name for a provider: letters, digits and -, not 'default'")
        _check_keys(f"auth.{name}", set(table), _PROVIDER)
    found = {"": auth, **named} if not named or "client_id" in auth else named
    for name, table in found.items():
        _check_provider(f"auth.{name}" if name else "auth", table)
    return tuple(found)


def _check_redirect(uri: str, ends: str) -> None:
    where = urlsplit(uri)
    if where.scheme not in _USUAL or not where.netloc or where.path != ends or where.query:
        must = f"must be the console's address for its visitors followed by {ends}, such as https://console.example.org"
        raise ConfigError(f"[auth] redirect_uri {uri!r} {must}{ends}; register the same at the provider")
    if where.netloc.lower() != where.netloc or where.netloc.endswith(_USUAL[where.scheme]) or "@" in where.netloc:
        must = "must name the host as browsers do, in small letters and without a user or the usual port"
        raise ConfigError(f"[auth] redirect_uri {uri!r} {must}: a session is good at that address alone")


def _check_secret(secret: object) -> None:
    """Refuse a secret that could be guessed. The example of the documentation, copied, is one."""
    if not isinstance(secret, str) or len(secret) < FEWEST_LETTERS:
        raise ConfigError(f"[auth] cookie_secret needs {FEWEST_LETTERS} letters or more: `openssl rand -hex 32`")
    if any(letter.isspace() for letter in secret) or len(set(secret)) < FEWEST_DIFFERENT:
        raise ConfigError("[auth] cookie_secret is not random: put the output of `openssl rand -hex 32` there")


def _check_keys(table: str, found: set[str], known: frozenset[str]) -> None:
    if unknown := sorted(found - known):
        raise ConfigError(
            f"[{table}] has {', '.join(unknown)}, which nobody reads: it may have {', '.join(sorted(known))}"
        )


def _check_provider(table: str, found: Mapping[str, Any]) -> None:
    if missing := [key for key in _NEEDED if not isinstance(found.get(key), str) or not found[key]]:
        raise ConfigError(f"[{table}] has no {', '.join(missing)}: {SHOWN}")
    url = urlsplit(found["server_metadata_url"])
    if url.scheme not in ("http", "https") or not url.netloc:
        raise ConfigError(
            f"[{table}] server_metadata_url {found['server_metadata_url']!r} is no address: it begins with https:// "
            "and ends, with most providers, with /.well-known/openid-configuration"
        )


def doubts(file: Path, auth: Mapping[str, Any]) -> Iterator[str]:
    """Say what is allowed and should not be: a file that all may read, secrets that go over a wire in the clear."""
    if file.stat().st_mode & stat.S_IROTH:
        yield f"--sign-in {file} holds secrets and every user of this machine can read it: chmod 600"
    tables = (auth, *(table for table in auth.values() if isinstance(table, Mapping)))
    places = (str(table[key]) for table in tables for key in ("redirect_uri", "server_metadata_url") if key in table)
    for place in map(urlsplit, places):
        if place.scheme == "http" and not is_loopback(place.hostname or ""):
            yield f"sign-in goes to {place.netloc} over http: who listens on the way can sign in too; use https"


def check_installed() -> None:
    """Raise :class:`ConfigError` when what Streamlit's sign-in needs is not installed, or Streamlit changed it."""
    from streamlit import __version__
    from streamlit.auth_util import is_authlib_installed

    missing = "" if is_authlib_installed() else "Authlib 1.3.2 or later"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Authlib, about its own parts; not for who starts a console
            import_module("authlib.integrations.starlette_client")
    except ImportError as problem:
        missing = missing or f"{problem.name}, which this Authlib wants"
    if missing:
        raise ConfigError(f'--sign-in needs {missing}: pip install "lastgood[sign-in]"')
    try:
        import lastgood_console.http.streamlit_session  # noqa: F401
    except ImportError as problem:
        raise ConfigError(f"Streamlit {__version__} keeps sessions in another way than is known ({problem}): "
                          "install an earlier one, or a later lastgood") from None  # fmt: skip
