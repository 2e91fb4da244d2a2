"""Say who may read over HTTP.

Without sign-in whoever reaches the port may read, as they may open the pages. With it (Streamlit's, by OpenID Connect)
a request shows the console's token or carries the session of a browser that is signed in. Who may write is for
:mod:`lastgood.admission` to say: a session never may, since a page of another site could use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from lastgood.admission import shows_token
from lastgood_console.http.sessions import Sessions

REFUSED: Final = "sign in on the console's pages first, or send 'Authorization: Bearer $LASTGOOD_TOKEN' of this server"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read. ``token``: the console's; ``sessions``: those of who is signed in, None when sign-in is off."""

    token: str | None = None
    sessions: Sessions | None = None

    @property
    def sign_in(self) -> bool:
        """Tell whether sign-in is on."""
        return self.sessions is not None

    def may_read(self, connection: HTTPConnection) -> bool:
        """Tell whether a request may read. A token that is wrong is not made good by a session."""
        if self.sessions is None:
            return True
        if "authorization" in connection.headers:
            return shows_token(connection.headers, self.token)
        return self.sessions.holds(connection)
