"""Say who may read over HTTP, and who is signed in.

Without sign-in whoever reaches the port may read, as they may open the pages. With it (Streamlit's, by OpenID Connect)
a request shows the console's token or carries the session of the browser: the cookie that Streamlit signed when its
visitor signed in. Streamlit's own function reads that cookie, so signature, age and chunks mean here what they mean to
the pages. Who may write is for :mod:`lastgood.admission` to say: a session never may, since another site could use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection, Request

from lastgood.admission import shows_token

REFUSED: Final = "sign in on the console's pages first, or send 'Authorization: Bearer $LASTGOOD_TOKEN' of this server"


def signed_in(connection: HTTPConnection) -> bool:
    """Tell whether a request carries the session of somebody who is signed in."""
    from streamlit.auth_util import get_origin_from_redirect_uri
    from streamlit.web.server.starlette.starlette_auth_routes import _get_cookie_value_from_request
    from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

    try:
        found = json.loads(_get_cookie_value_from_request(Request(connection.scope), USER_COOKIE_NAME) or b"{}")
    except ValueError:  # also a cookie that is no Latin-1
        return False
    if not isinstance(found, dict) or found.get("origin") != get_origin_from_redirect_uri():
        return False
    return found.get("is_logged_in") is True


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read. ``token``: the console's; ``sign_in``: whether it is on; ``session``: who is signed in."""

    token: str | None = None
    sign_in: bool = False
    session: Callable[[HTTPConnection], bool] = signed_in

    def may_read(self, connection: HTTPConnection) -> bool:
        """Tell whether a request may read. A token that is wrong is not made good by a session."""
        if not self.sign_in:
            return True
        if "authorization" in connection.headers:
            return shows_token(connection.headers, self.token)
        return self.session(connection)
