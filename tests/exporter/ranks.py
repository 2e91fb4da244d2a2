"""Start the ranks of a real gloo job as processes of their own and collect what each of them says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(
    script: Path,
    arguments: Sequence[str],
    *,
    nodes: Sequence[str],
    timeout: float = 240,
    environ: Mapping[str, str] | None = None,
) -> list[list[Any]]:
    """Run ``script`` once per entry of ``nodes``; return the JSON lines that each rank printed after an '@'."""
    port = free_port()
    processes = []
    for rank, node in enumerate(nodes):
        env = {**os.environ, **(environ or {}), "RANK": str(rank), "WORLD_SIZE": str(len(nodes))}
        env |= {"LOCAL_RANK": str(list(nodes[:rank]).count(node)), "LASTGOOD_NODE": node}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore::FutureWarning", str(script), *arguments]
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    out: list[list[Any]] = []
    try:
        for process in processes:
            stdout, stderr = process.communicate(timeout=timeout)
            assert process.returncode == 0, stderr[-4000:]
            out.append([json.loads(line[1:]) for line in stdout.splitlines() if line.startswith("@")])
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return out
