"""Read Streamlit's session cookie: all that this console relies on of how Streamlit keeps who is signed in.

The names are not part of Streamlit's documented interface, so they stand here and nowhere else; ``--sign-in`` does not
start when one of them is gone (:func:`lastgood_console.sign_in_file.check_installed`). Streamlit's own functions read
the cookie, so signature and parts mean here what they mean to the pages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamlit.auth_util import get_cookie_with_chunks, get_origin_from_redirect_uri
from streamlit.web.server.server_util import get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import TOKENS_COOKIE_NAME, USER_COOKIE_NAME

__all__ = ["TOKENS_COOKIE_NAME", "USER_COOKIE_NAME", "origin", "signed_session"]


def origin() -> str:
    """Return scheme and host of the console's address for its visitors."""
    return get_origin_from_redirect_uri() or ""


def signed_session(cookies: Mapping[str, str], hours: float) -> bytes | None:
    """Return the session in a request's cookies as the JSON that was signed, not longer than so many hours ago.

    None where nobody is signed in.
    """
    secret = get_cookie_secret()

    def one(name: str) -> bytes | None:
        given = cookies.get(name)
        return None if given is None else decode_signed_value(secret, name, given, hours / 24)

    try:
        found = get_cookie_with_chunks(one, USER_COOKIE_NAME)
        said = json.loads(found or b"{}")
    except ValueError:  # also a cookie with half a surrogate pair
        return None
    if not isinstance(said, dict) or said.get("origin") != origin():
        return None
    return found if said.get("is_logged_in") is True else None
