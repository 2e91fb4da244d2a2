"""Start Prometheus and VictoriaMetrics on this machine, write samples into them, and time their queries."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lastgood import push_wire

SERIES_PER_REQUEST = 2000
PATIENCE_SECONDS = 300.0

Found = list[dict[str, Any]]


@dataclass
class Server:
    """A server that speaks Prometheus's HTTP API. ``host``: address and port; ``write_path``: of remote write."""

    host: str
    write_path: str
    process: subprocess.Popen[bytes]

    def request(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
        """Return the body of an answer. Raises ``RuntimeError`` when it is no success."""
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status // 100 != 2:
            raise RuntimeError(f"{method} {path.partition('?')[0]}: {answer.status} {content[:300]!r}")
        return content

    def write(self, entries: Iterable[bytes]) -> None:
        """Write series with their samples by remote write."""
        pack = push_wire.packer()
        entries = iter(entries)
        while chunk := b"".join(islice(entries, SERIES_PER_REQUEST)):
            self.request("POST", self.write_path, pack(chunk), dict(push_wire.HEADERS))

    def query(self, expression: str, at: float) -> tuple[float, Found]:
        """Return how long an instant query took, with the transfer of its answer, and what it found."""
        form = urllib.parse.urlencode({"query": expression, "time": f"{at:.3f}"}).encode()
        begin = time.perf_counter()
        content = self.request("POST", "/api/v1/query", form, {"Content-Type": "application/x-www-form-urlencoded"})
        seconds = time.perf_counter() - begin
        data = json.loads(content)["data"]
        return seconds, data["result"] if data["resultType"] == "vector" else []

    def groups(self) -> Found:
        """Return the rule groups with the times of their evaluations."""
        found: Found = json.loads(self.request("GET", "/api/v1/rules"))["data"]["groups"]
        return found

    def resident_bytes(self) -> int:
        """Return the memory that the process holds."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def processor_seconds(self) -> float:
        """Return the processor time that the process has used: other programs disturb it less than the clock."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reload(self) -> None:
        """Make Prometheus read its configuration again."""
        self.process.send_signal(signal.SIGHUP)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def program(name: str) -> str:
    """Return the path of a program. Raises ``SystemExit`` when it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: run `make programs`")
    return found


@contextmanager
def prometheus(folder: Path) -> Iterator[Server]:
    """Run a Prometheus with an empty configuration in ``folder / "prometheus.yml"``."""
    config = folder / "prometheus.yml"
    config.write_text("global: {}\n", encoding="utf-8")
    host = f"127.0.0.1:{free_port()}"
    command = [
        program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={host}", "--web.enable-remote-write-receiver", "--log.level=error",
    ]  # fmt: skip
    with _running(command, host, "/api/v1/write", "/-/ready") as server:
        yield server


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[Server]:
    """Run a VictoriaMetrics that shows what it has at once."""
    host = f"127.0.0.1:{free_port()}"
    command = [
        program("victoria-metrics"), f"-storageDataPath={folder / 'victoria'}", f"-httpListenAddr={host}",
        "-search.latencyOffset=0s", "-search.maxUniqueTimeseries=2000000", "-loggerLevel=ERROR",
    ]  # fmt: skip
    with _running(command, host, "/api/v1/write", "/health") as server:
        yield server


@contextmanager
def _running(command: list[str], host: str, write_path: str, ready_path: str) -> Iterator[Server]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        server = Server(host, write_path, process)
        try:
            _wait(server, ready_path)
            yield server
        finally:
            process.terminate()


def _wait(server: Server, ready_path: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while server.process.poll() is None and time.monotonic() < deadline:
        try:
            server.request("GET", ready_path)
            return
        except (OSError, RuntimeError):
            time.sleep(0.1)
    raise SystemExit(f"{server.process.args!r} did not start")
