"""Talk to a console's pages as a browser's tab does, over the websocket, and keep every byte that comes back.

It can ask for what no browser would: a page or a part of one that another tab was told of, after it was signed out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from tests.app.console_server import Console
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

XSRF = "_streamlit_xsrf"


class Tab:
    """One connection. ``cookies``: those of the browser; ``base``: the path prefix of the console.

    ``session``: that of a connection before, which it asks to go on with; ``origin``: the address that the browser has.
    """

    def __init__(
        self, console: Console, cookies: Mapping[str, str], base: str = "", *, session: str = "", origin: str = ""
    ) -> None:
        health = httpx.get(f"{console.address}{base}/_stcore/health")
        token = health.cookies[XSRF]
        sent = "; ".join(f"{name}={value}" for name, value in {**cookies, XSRF: token}.items())
        self._connecting = connect(
            f"{console.address.replace('http', 'ws', 1)}{base}/_stcore/stream",
            origin=origin or console.address, subprotocols=["streamlit", token, *([session] if session else [])],
            additional_headers={"Cookie": sent},
            max_size=None,
        )  # fmt: skip
        self._socket: Any = None
        self.heard = b""
        self.said: list[ForwardMsg] = []
        self.closed: int | None = None

    def __enter__(self) -> Self:
        self._socket = self._connecting.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connecting.__exit__(kind, problem, trace)

    def ask(
        self, *, query: str = "", page: str = "", page_hash: str = "", part: str = "", wait_seconds: float | None = None
    ) -> bytes:
        """Ask for a page by its name or hash, or for a part of one; return all that comes until the script ends.

        When the connection is closed instead, ``closed`` has the code. ``wait_seconds``: after so many
        without a word nothing more is expected: a part that a session does not know may stay without an answer.
        """
        asked: Any = BackMsg()
        asked.rerun_script.query_string = query
        asked.rerun_script.page_name, asked.rerun_script.page_script_hash = page, page_hash
        asked.rerun_script.fragment_id = part
        self.said, heard = [], b""
        try:
            self._socket.send(asked.SerializeToString())
            while not self._ended():
                raw = self._socket.recv(timeout=wait_seconds or 30)
                heard += raw
                self.said.append(ForwardMsg.FromString(raw))
        except TimeoutError:
            if wait_seconds is None:
                raise
        except ConnectionClosed as end:
            self.closed = end.rcvd.code if end.rcvd else 1006
        self.heard += heard
        return heard

    def _ended(self) -> bool:
        last: Any = self.said[-1] if self.said else ForwardMsg()
        ended = last.WhichOneof("type") == "script_finished"
        return ended and last.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN

    def drawn(self) -> int:
        """Return how many elements the last answer drew."""
        return sum(message.WhichOneof("type") == "delta" for message in self.said)

    def session(self) -> str:
        """Return the name of the session, as the last answer told it."""
        told: Any = next(message for message in self.said if message.WhichOneof("type") == "new_session")
        return str(told.new_session.initialize.session_id)

    def pages(self) -> dict[str, str]:
        """Return the pages that the last answer told of, name -> hash."""
        told: Any = [message for message in self.said if message.WhichOneof("type") == "navigation"]
        return {page.page_name: page.page_script_hash for message in told for page in message.navigation.app_pages}

    def parts(self) -> list[str]:
        """Return the parts of the page that the last answer told to be asked for again and again."""
        told: Any = [message for message in self.said if message.WhichOneof("type") == "auto_rerun"]
        return [message.auto_rerun.fragment_id for message in told]
