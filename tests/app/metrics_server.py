"""A metrics server that answers as a test says, and what a real one would hold of a run."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from tests.app.pages import NOW
from tests.exporter.test_run_metrics import View

from lastgood.run_metrics import RunMetrics
from lastgood.state import RunState
from lastgood_console.sources.client import Series
from lastgood_console.sources.ledger_series import by_run
from lastgood_console.sources.runs_from_metrics import run_state

Answer = Callable[["Asked"], tuple[int, bytes]]
EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}


class Asked:
    """One request as it came."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path, self.headers = path, headers
        self.form = {name: values[0] for name, values in parse_qs(body.decode()).items()}


class Metrics:
    """A real HTTP server that answers as a test says, and remembers what it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self.answer: Answer = lambda asked: (200, json.dumps(EMPTY).encode())
        self.headers: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(Asked(self.path, dict(self.headers.items()), body))
                status, content = outer.answer(outer.asked[-1])
                self.send_response(status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def handle(self) -> None:
                with suppress(OSError):  # a client that was told to wait no longer is gone
                    super().handle()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def says(self, content: Any, status: int = 200) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.answer = lambda asked: (status, body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def slowly(seconds: float, status: int) -> Answer:
    def answer(asked: Asked) -> tuple[int, bytes]:
        time.sleep(seconds)
        return status, b"{}"

    return answer


def series_of(*states: RunState, read_at: float = NOW, **more: str) -> tuple[Series, ...]:
    """Return what a metrics server holds of these states after a scrape of their ledger."""
    registry = CollectorRegistry()
    registry.register(RunMetrics(View({s.run: s for s in states}, last_read_at=read_at), lambda: NOW))
    found = (sample for family in registry.collect() for sample in family.samples)
    target = {"job": "ledger", "instance": "ledger:8490"} | more
    return tuple(Series({"__name__": s.name} | target | s.labels, ((NOW, s.value),)) for s in found)


def told(state: RunState) -> RunState:
    """Return a state as metrics alone tell it."""
    return run_state(by_run(series_of(state))[state.run])
