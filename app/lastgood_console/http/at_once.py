"""Send each answer at once.

Streamlit binds its socket in a way from which asyncio cannot tell that it is TCP, so nothing turns Nagle's algorithm
off: the body of an answer then waits for the visitor to confirm its headers, which takes 40 ms on a connection that is
used again, and so does every second message to a page.
"""

from __future__ import annotations

import socket


def answer_at_once() -> None:
    """Let the connections of Streamlit's server wait for no confirmation. Must come before it is started."""
    from streamlit.web.server.starlette import starlette_server

    bind = starlette_server._bind_socket

    def bound(address: str, port: int, backlog: int) -> socket.socket:
        found = bind(address, port, backlog)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
        return found

    starlette_server._bind_socket = bound
