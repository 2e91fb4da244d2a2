"""Send each answer at once.

Streamlit binds its socket in a way from which asyncio cannot tell that it is TCP, so nothing turns Nagle's algorithm
off: the body of an answer then waits for the visitor to confirm its headers, which takes 40 ms on a connection that is
used again, and so does every second message to a page.
"""

from __future__ import annotations

import socket


def answer_at_once() -> None:
    """Let the connections of Streamlit's server wait for no confirmation. Must come before it is started.

    What binds the socket is no documented part of Streamlit: where it is gone, answers are 40 ms later and no worse.
    """
    from streamlit.web.server.starlette import starlette_server

    bind = getattr(starlette_server, "_bind_socket", None)
    if bind is None:
        return

    def bound(address: str, port: int, backlog: int) -> socket.socket:
        found: socket.socket = bind(address, port, backlog)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
        return found

    starlette_server._bind_socket = bound
