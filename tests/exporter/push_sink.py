"""A remote-write receiver for tests: a real HTTP server that keeps every sample and answers as it is told."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from cramjam import snappy

Sample = tuple[dict[str, str], bytes, int]
"""Labels, the eight bytes of the value, Unix milliseconds."""


def decode(message: bytes) -> Iterator[Sample]:
    """Yield the samples of a WriteRequest; the labels in the order in which they came."""
    for _, content in fields(message):
        parts = list(fields(content))
        labels = dict(tuple(text.decode() for _, text in fields(part)) for number, part in parts if number == 1)
        for number, part in parts:
            if number == 2:
                assert (part[0], part[9]) == (0x09, 0x10)
                yield labels, part[1:9], varint(part, 10)[0]


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each length-delimited field."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        assert tag & 7 == 2
        size, at = varint(message, at)
        yield tag >> 3, message[at : at + size]
        at += size


def varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


@dataclass
class Sink:
    """What came in, and what to answer: each of ``answers`` once, then 204."""

    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    taken: list[list[Sample]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    gate: Event = field(default_factory=Event)
    port: int = 0

    def values(self, name: str, **labels: str) -> list[tuple[float, int]]:
        """Return (value, time) of every sample of a series that was taken."""
        wanted = {"__name__": name, **labels}.items()
        return [
            (struct.unpack("<d", value)[0], at)
            for message in self.taken
            for found, value, at in message
            if wanted <= found.items()
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1/write"


@contextmanager
def receiving(sink: Sink | None = None, port: int = 0) -> Iterator[Sink]:
    """Run a receiver meanwhile."""
    sink = sink or Sink()
    sink.gate.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sink.gate.wait(10)
            sink.heads.append(dict(self.headers.items()))
            sink.paths.append(self.path)
            status, headers, text = sink.answers.pop(0) if sink.answers else (204, {}, "")
            if status < 300:
                sink.taken.append(list(decode(bytes(snappy.decompress_raw(body)))))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(text))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    sink.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield sink
    finally:
        sink.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
