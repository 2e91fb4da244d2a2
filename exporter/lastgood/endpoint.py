"""Serve ``/metrics`` from inside the training process, and never get in its way.

Ranks of one node share its ports, so a rank takes the first free one from a base and ``targets.json`` says which.
When no port can be had the training goes on: one warning, one count, ``port`` is None. A scrape runs in a daemon
thread on values that are already there. Not covered: TLS and passwords (let a proxy on the node do it), and counters
of a rank that dies before it is scraped (the ledger reads the journal for that).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

BASE_PORT: Final = 9470
TRIES: Final = 256
"""Ports to try: several jobs of 16 ranks can share a node."""
_SLOW_CLIENT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05  # how long close() waits for the server thread, at most

log = logging.getLogger("lastgood")


class Endpoint:
    """The metrics endpoint of one process. ``port`` is None when none could be had.

    ``address`` defaults to ``LASTGOOD_METRICS_ADDRESS``, else all interfaces; ``base_port`` to
    ``LASTGOOD_METRICS_PORT``, else 9470 (0: any free port). ``on_error`` is called with "delivery" for every failure.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        address: str | None = None,
        base_port: int | None = None,
        tries: int = TRIES,
        on_error: Callable[[str], object] = lambda part: None,
    ) -> None:
        self.address = os.environ.get("LASTGOOD_METRICS_ADDRESS", "") if address is None else address
        self.port: int | None = None
        self._server: _Server | None = None
        try:
            base = int(os.environ.get("LASTGOOD_METRICS_PORT", BASE_PORT)) if base_port is None else base_port
            self._server = _first_free(self.address, base, tries, registry, on_error)
            self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
            self._thread.name = "lastgood-metrics"
            self._thread.start()
        # TypeError: an address that is no text that could be sent; RuntimeError: no more threads.
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            log.warning("no metrics endpoint on %s: %s. Training goes on.", self.address or "all interfaces", error)
            on_error("delivery")
        else:
            self.port = self._server.server_address[1]

    def close(self) -> None:
        """Stop serving within a fraction of a second. May be called twice, and in a forked child."""
        server, self._server = self._server, None
        if server is None:
            return
        if self._thread.is_alive():
            server.shutdown()
        server.server_close()


def _first_free(
    address: str, base: int, tries: int, registry: CollectorRegistry, on_error: Callable[[str], object]
) -> _Server:
    """Return a server on the first free port from ``base``. Raises the OSError of the last try."""
    for port in range(base, min(base + tries, 65536)):
        try:
            return _Server(address, port, registry, on_error)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no free port from {base} to {min(base + tries, 65536) - 1}")


class _Server(ThreadingHTTPServer):
    """Serve one registry. ``address`` "" is every interface, IPv6 included where the machine has it."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: str, port: int, registry: CollectorRegistry, on_error: Callable[[str], object]) -> None:
        self.registry = registry
        self.on_error = on_error
        dual = not address and socket.has_dualstack_ipv6()
        self._dual = dual
        self.address_family = socket.AF_INET6 if dual or ":" in address else socket.AF_INET
        super().__init__((address, port), _Handler)
        _close_in_children(self)

    def server_bind(self) -> None:
        """Bind without the reverse look-up of the standard library, which can hang for seconds."""
        if self._dual:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "lastgood", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Count it instead of printing: a scraper that hangs up is no news for the training log."""
        self.on_error("delivery")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SLOW_CLIENT_SECONDS
    server_version = "lastgood"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a scrape."""
        if urlsplit(self.path).path != "/metrics":
            return self._answer(404, "text/plain; charset=utf-8", b"metrics are at /metrics\n")
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        return self._answer(200, content_type, encode(self.server.registry))

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: the terminal belongs to the training."""


def _close_in_children(server: _Server) -> None:
    """Close the inherited socket in forked children, such as data-loader workers.

    Otherwise a worker that outlives its rank keeps the port and scrapes of it hang.
    """
    socket_of = weakref.ref(server.socket)

    def close() -> None:
        inherited = socket_of()
        if inherited is not None:
            with contextlib.suppress(OSError):
                inherited.close()

    os.register_at_fork(after_in_child=close)
