"""What tests against real servers need: a free port, patience, a Prometheus and a ledger of their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true value of ``what``; a server that does not answer yet is waited for too."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if last := what():
                return last
        except OSError as error:
            last = error
        time.sleep(0.1)
    pytest.fail(f"not within {seconds} s; last seen: {last!r}")


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


class Prometheus:
    """A Prometheus server of our own, on a free port of this machine, that scrapes every second.

    ``jobs`` are the entries of its ``scrape_configs``, as YAML. Its files are in ``folder``.
    """

    def __init__(self, program: str, folder: Path, jobs: str, stack: ExitStack) -> None:
        config = folder / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{jobs}")
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
                   f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=error"]  # fmt: skip
        server = stack.enter_context(subprocess.Popen(command))
        stack.callback(server.terminate)
        wait_for(lambda: urllib.request.urlopen(f"{self.url}/-/ready", timeout=2).close() or True)

    def get(self, path: str, **parameters: object) -> Any:
        """Return the data that its API answers with."""
        return get_json(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def number(self, expression: str) -> float | None:
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None


def start_ledger(run_dir: Path, stack: ExitStack) -> str:
    port = str(free_port())
    command = [sys.executable, "-m", "lastgood.serve", str(run_dir), "--port", port]
    ledger = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    stack.callback(ledger.terminate)
    wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2).close() or True)
    return f"127.0.0.1:{port}"


def scraping(run_dir: Path, ledger: str) -> str:
    """Return the jobs for a run and the ledger, as the documentation shows them."""
    return (
        "- job_name: ranks\n"
        "  honor_labels: true\n"
        f"  file_sd_configs: [{{files: ['{run_dir / 'targets.json'}'], refresh_interval: 1s}}]\n"
        "- job_name: ledger\n"
        "  honor_labels: true\n"
        f"  static_configs: [{{targets: ['{ledger}']}}]\n"
    )
