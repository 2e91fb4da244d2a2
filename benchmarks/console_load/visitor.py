"""Visit a page of the console as Streamlit's own frontend does, and draw nothing.

The same messages go over ``/_stcore/stream``: a rerun with the page's name, the hashes of the large messages that were
kept, and a rerun of the page's fragment each time its timer fires. What a browser adds is missing: the scripts and
fonts that it downloads, and the time in which it draws.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from types import TracebackType

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

PATIENCE_SECONDS = 120.0
DONE = {ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY}


@dataclass
class Seen:
    """What came back of one rerun. ``bytes``: on the wire; ``kept``: messages that were named by their hash alone."""

    seconds: float = 0.0
    messages: int = 0
    kept: int = 0
    bytes: int = 0


@dataclass
class Visitor:
    """One browser window on a page (``overview`` is the first page, which has no name in its address)."""

    address: str
    page: str
    page_hash: str = ""
    fragment: str = ""
    every_seconds: float = 0.0
    hashes: set[str] = field(default_factory=set)
    stream: ClientConnection | None = None

    async def __aenter__(self) -> Visitor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            await self.stream.close()

    async def open(self) -> Seen:
        """Connect and ask for the page; return once its script has run. Raises ``RuntimeError`` when it fails."""
        began = time.perf_counter()
        place = self.address.replace("http", "ws", 1) + "/_stcore/stream"
        self.stream = await connect(place, subprotocols=[Subprotocol("streamlit")], max_size=None, compression=None)
        seen = await self._rerun(self._asked(fragment=False))
        seen.seconds = time.perf_counter() - began
        return seen

    async def tick(self) -> Seen:
        """Let the page's timer fire; return once its fragment has run."""
        return await self._rerun(self._asked(fragment=True))

    def _asked(self, *, fragment: bool) -> BackMsg:
        asked = BackMsg()
        rerun = asked.rerun_script
        rerun.page_script_hash = self.page_hash
        if not self.page_hash and self.page != "overview":
            rerun.page_name = self.page
        if fragment:
            rerun.fragment_id, rerun.is_auto_rerun = self.fragment, True
        rerun.cached_message_hashes.extend(sorted(self.hashes))
        context = rerun.context_info
        context.timezone, context.locale, context.color_scheme = "UTC", "en-US", "light"
        context.url = f"{self.address}/{'' if self.page == 'overview' else self.page}"
        return asked

    async def _rerun(self, asked: BackMsg) -> Seen:
        assert self.stream is not None
        seen, began = Seen(), time.perf_counter()
        await self.stream.send(asked.SerializeToString())
        while True:
            body = await asyncio.wait_for(self.stream.recv(), PATIENCE_SECONDS)
            assert isinstance(body, bytes)
            message = ForwardMsg.FromString(body)
            seen.messages, seen.bytes = seen.messages + 1, seen.bytes + len(body)
            if self._take(message, seen):
                seen.seconds = time.perf_counter() - began
                return seen

    def _take(self, message: ForwardMsg, seen: Seen) -> bool:
        """Take a message in; tell whether it is the last of its rerun."""
        kind = message.WhichOneof("type")
        if kind == "ref_hash":
            if message.ref_hash not in self.hashes:
                raise RuntimeError("the console named a message that it had not sent")
            seen.kept += 1
        elif kind == "new_session":
            self.page_hash = message.new_session.page_script_hash
        elif kind == "auto_rerun":
            self.fragment, self.every_seconds = message.auto_rerun.fragment_id, message.auto_rerun.interval
        elif kind == "delta" and message.delta.new_element.HasField("exception"):
            raise RuntimeError(message.delta.new_element.exception.message)
        elif kind == "script_finished":
            if message.script_finished not in (*DONE, ForwardMsg.FINISHED_EARLY_FOR_RERUN):
                raise RuntimeError(f"the page's script ended with {message.script_finished}")
            return message.script_finished in DONE  # else the page had news at a tick, and is drawn again as a whole
        if message.metadata.cacheable:
            self.hashes.add(message.hash)
        return False
