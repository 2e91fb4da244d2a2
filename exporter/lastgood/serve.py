"""Serve the ledger alone: ``lastgood serve RUNS``.

``/metrics`` (the run metrics for Prometheus), ``/healthz``, ``/api/sd`` (where the ranks are, for Prometheus) and
``POST /api/events``; JSON errors for everything else. Works from the lean install. The console serves the same beside
its pages, and takes alerts in.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from lastgood._version import __version__
from lastgood.admission import is_loopback
from lastgood.http_address import is_host
from lastgood.ingest import MAX_BODY_BYTES, EventIntake
from lastgood.ledger import Ledger, default_state_dir
from lastgood.run_metrics import RunMetrics
from lastgood.targets import Discovery

DEFAULT_PORT: Final = 8490

REFRESH_SECONDS: Final = 1.0
_LONGEST_SIZE: Final = 19  # digits; Python reads no number of more than 4,300
STALE_SECONDS: Final = 60.0
"""A ledger that has not read the journals for so long is not healthy."""


def main(argv: list[str]) -> int:
    """Run ``lastgood serve`` until SIGTERM or Ctrl-C. Returns 0, or 2 when it cannot serve."""
    options = _parser().parse_args(argv)
    paths = run_paths(options.runs)
    if remote := [path for path in options.runs if "://" in path]:
        return _cannot(f"{remote[0]} is an object store; the runs must lie on a mounted POSIX file system")
    token = os.environ.get("LASTGOOD_TOKEN") or None
    missing = [str(path) for path in paths if not path.exists()]
    ledger = Ledger(paths, state_dir=options.state or default_state_dir(paths))
    intake = EventIntake(options.state or default_state_dir(paths), ledger, token)
    try:
        server = make_server(options.host, options.port, ledger, intake)
    except OSError as problem:
        where, why = f"{options.host}:{options.port}", problem.strerror
        return _cannot(f"cannot listen on {where} ({why}): choose another --port or --host")
    stop = stop_on_signals()
    _announce(server, paths, missing, options.host, token)
    serve_until_stopped(server, ledger, stop)
    return 0


def run_paths(given: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return RUNS: what was given, else ``$LASTGOOD_RUNS`` (several separated by ``:``), else ``./runs``."""
    named = list(given) or [part for part in environ.get("LASTGOOD_RUNS", "").split(os.pathsep) if part]
    return [Path(part) for part in named or ["runs"]]


def make_server(host: str, port: int, ledger: Ledger, intake: EventIntake) -> ThreadingHTTPServer:
    """Return a bound server (port 0: any free one). Raises ``OSError`` when the address cannot be taken."""
    registry = CollectorRegistry()
    registry.register(RunMetrics(ledger))
    server_class = _ServerV6 if ":" in host else _Server
    return server_class((host, port), _handler(registry, ledger, intake))


def stop_on_signals() -> Flag:
    """Return a flag that SIGTERM and Ctrl-C set."""
    stop = Flag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def serve_until_stopped(server: ThreadingHTTPServer, ledger: Ledger, stop: Flag) -> None:
    """Serve, and refresh the ledger every second, until ``stop`` is set."""
    refreshing = Thread(target=keep_fresh, args=(ledger, stop), name="lastgood-refresh", daemon=True)
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="lastgood-http", daemon=True)
    refreshing.start()
    serving.start()
    stop.wait()
    server.shutdown()
    server.server_close()


def keep_fresh(ledger: Ledger, stop: Flag, interval_seconds: float = REFRESH_SECONDS) -> None:
    """Refresh the ledger until ``stop`` is set. A refresh that fails is said on stderr, once per reason."""
    said = ""
    while not stop.is_set():
        try:
            ledger.refresh()
            said = ""
        except Exception as problem:  # the next refresh may succeed, and the last states still stand
            if repr(problem) != said:
                said = repr(problem)
                print(f"lastgood: the journals could not be read: {said}", file=sys.stderr, flush=True)
        stop.wait(interval_seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # every rank of a job may post in the same moment

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong with a request, but not that a client left in the middle of one."""
        problem = sys.exception()
        if not isinstance(problem, (ConnectionError, TimeoutError)):
            print(f"lastgood: a request failed: {problem!r}", file=sys.stderr, flush=True)


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """Answer one connection. The class attributes are set by :func:`_handler`."""

    server_version = f"lastgood/{__version__}"
    sys_version = ""
    timeout = 10.0
    registry: CollectorRegistry
    ledger: Ledger
    discovery: Discovery
    intake: EventIntake

    def do_GET(self) -> None:
        """Answer ``/metrics``, ``/healthz`` and ``/api/sd``."""
        routes = {"/metrics": self._metrics, "/healthz": self._health, "/api/sd": self._targets}
        routes.get(self.path.partition("?")[0], self._nothing_here)()

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Take events in."""
        if self.path.partition("?")[0] != "/api/events":
            return self._nothing_here()
        size = self.headers.get("Content-Length", "")
        if not (size.isascii() and size.isdecimal()):
            return self._json(411, {"error": "send a Content-Length"}, close=True)
        if len(size) > _LONGEST_SIZE or int(size) > MAX_BODY_BYTES:
            reason = f"more than the {MAX_BODY_BYTES} bytes one request may have: post fewer events"
            return self._json(413, {"error": reason}, close=True)
        body = self.rfile.read(int(size))
        self._json(*self.intake.accept(body, dict(self.headers.items()), self.client_address[0]))

    def _metrics(self) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._send(200, content_type, encode(self.registry))

    def _health(self) -> None:
        status, answer = health(self.ledger, time.time())
        self._json(status, answer)

    def _targets(self) -> None:
        self._json(200, self.discovery.groups())

    def _nothing_here(self) -> None:
        there = "/metrics, /healthz, /api/sd and POST /api/events"
        self._json(404, {"error": f"nothing here; there are {there}"}, close=True)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request in JSON too."""
        self._json(code, {"error": message or explain or self.responses.get(code, ("error",))[0]}, close=True)

    def _json(self, status: int, content: Mapping[str, Any] | Sequence[Any], close: bool = False) -> None:
        self._send(status, "application/json", json.dumps(content).encode() + b"\n", close)

    def _send(self, status: int, content_type: str, body: bytes, close: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if close:  # what the client still sends is not read
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet: a scrape every few seconds is no news."""


def _handler(registry: CollectorRegistry, ledger: Ledger, intake: EventIntake) -> type[_Handler]:
    parts = {"registry": registry, "ledger": ledger, "discovery": Discovery(ledger, warn), "intake": intake}
    return type("Handler", (_Handler,), parts)


def health(ledger: Ledger, now: float) -> tuple[int, dict[str, Any]]:
    """Return status and answer of ``/healthz``: 503 before the first read and when the last one is a minute old.

    Nothing is read as long as a folder of runs is gone; where it lay is not said, as anybody may ask.
    """
    read_at = ledger.last_read_at
    age = None if read_at is None else max(0.0, now - read_at)
    fresh = age is not None and age < STALE_SECONDS
    answer = {
        "status": "ok" if fresh else "stale",
        "version": __version__,
        "runs": len(ledger.runs()),
        "folders_gone": len(ledger.gone.places),
        "last_read_age_seconds": age,
        "unreadable": sum(ledger.unreadable_lines().values()),
    }
    return (200 if fresh else 503), answer


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lastgood serve",
        description="Serve the run metrics (/metrics) and take posted events in (/api/events), without the console.",
    )
    add_arguments(parser, "0 takes any free one")
    return parser


def add_arguments(parser: argparse.ArgumentParser, when_taken: str) -> None:
    """Add what every server of ours takes: RUNS, address, port and the folder for posted events."""
    parser.add_argument("runs", nargs="*", metavar="RUNS", help="run directories or folders of them; default: "
                        "$LASTGOOD_RUNS, else ./runs")  # fmt: skip
    parser.add_argument("--host", type=_host, default="127.0.0.1", help="address to listen on; default: %(default)s")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help=f"{when_taken}; default: %(default)s")
    parser.add_argument("--state", type=Path, metavar="DIR", help="where posted events are kept; default: "
                        ".lastgood in the first of RUNS")  # fmt: skip


def _host(text: str) -> str:
    if text and not is_host(text):  # "" is every address of this machine
        raise argparse.ArgumentTypeError(f"{text!r} can be no host: give a name or an address of this machine")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give 0 to 65535")
    return int(text)


def _announce(
    server: ThreadingHTTPServer, paths: Sequence[Path], missing: Sequence[str], host: str, token: str | None
) -> None:
    address = f"http://{f'[{host}]' if ':' in host else host}:{server.server_address[1]}"
    print(f"lastgood serves {', '.join(map(str, paths))} on {address}/metrics", flush=True)
    if missing:
        warn(f"{', '.join(missing)} does not exist yet; runs that appear there will be found")
    if not token and not is_loopback(host):
        warn("open to other machines without LASTGOOD_TOKEN: anyone there reads the metrics; nobody there can post")


def warn(text: str) -> None:
    """Print a warning to the terminal."""
    print(f"lastgood: warning: {text}", file=sys.stderr, flush=True)


def _cannot(text: str) -> int:
    print(f"lastgood serve: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
