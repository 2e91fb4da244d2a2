"""Start a real console on a run directory that a made-up history wrote, for tests that need the server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from tests.exporter.histories import History

from lastgood.topology_files import write_topology

RUN = "demo-run"
PEERS = {
    "kind": "peers", "rank": 3, "metric": "grad_norm_local", "steps": list(range(1, 101)),
    "suspect": [1.0 if step < 67 else 1.2 for step in range(1, 101)],
    "median": [1.0] * 100, "p10": [0.95] * 100, "p90": [1.05] * 100,
}  # fmt: skip


def story(run: str = RUN, *, recovered: bool = False) -> History:
    """Return the default story: rank 3 accused at 100, step 75 suspect; ``recovered``: with the second attempt."""
    history = History(run=run)
    history.start().save(0).audit(1, phase="first").save(25).wait(20).save(50).audit(50).wait(20).save(75).wait(20)
    history.audit(100, failed=[3]).find("replay", 100, [3], tensor="blocks.1.mlp.up.weight")
    finding = history.events[-1]
    finding.data["evidence"].append(PEERS)
    first = history.path(50)
    history.rule("attributed", ("replay", 100, "audit"), accused=[3], nature="persistent", resume=(1, 50, first))
    history.end(100)
    if recovered:
        history.wait(10).start(50, (1, 50, first), nodes=("node-a", "node-c", "node-d"))
        history.audit(51, phase="first").wait(20).save(75).wait(20).save(100).audit(100).wait(20).save(150).audit(150)
        history.end(150, "completed")
    return history


def run_directory(runs: Path, history: History | None = None) -> Path:
    """Write a history's journals and topologies as a run directory, with its checkpoints as files."""
    history = history or story()
    place = runs / history.run
    for event in history.events:
        folder = place / "journal" / f"{event.attempt:06}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "rank-0.jsonl").open("a", encoding="utf-8") as journal:
            journal.write(event.to_line() + "\n")
        if event.type == "checkpoint.saved":
            saved = place / event.data["path"]
            saved.parent.mkdir(parents=True, exist_ok=True)
            saved.write_bytes(b"weights")
    for attempt, places in history.topologies.items():
        write_topology(place, attempt, places)
    return place


class Console:
    """``lastgood console`` as a process of its own, with more ``options`` and a ``token``."""

    def __init__(
        self, runs: Path, *, port: int = 0, state: Path | None = None, options: Sequence[str] = (), token: str = ""
    ) -> None:
        self._lines: list[str] = []
        command = [sys.executable, "-m", "lastgood_console.cli", "console", str(runs), "--port", str(port)]
        command += ["--state", str(state or runs / ".lastgood"), *options]
        environment = os.environ | ({"LASTGOOD_TOKEN": token} if token else {})
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        self._lines.extend(self.process.stdout)

    def said(self) -> str:
        """Return what it has printed so far."""
        return "".join(self._lines)

    @property
    def address(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Console:
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.said())
            if found:
                self.port = int(found[1])
                try:
                    if self.get("/healthz").status_code == 200:
                        return self
                except httpx.TransportError:
                    pass
            time.sleep(0.1)
        self.__exit__(None, None, None)
        raise AssertionError(f"the console did not start: {self.said()}")

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(timeout=5)
        if self.process.stdout:
            self.process.stdout.close()

    def get(self, path: str) -> httpx.Response:
        """GET a path."""
        return self.request("GET", path)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request."""
        headers: Mapping[str, str] = more.pop("headers", {})
        return httpx.request(method, self.address + path, headers=dict(headers), timeout=30, **more)
