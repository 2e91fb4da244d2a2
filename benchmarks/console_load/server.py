"""Start the console as a process of its own, and read from the kernel what it uses."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@contextmanager
def console(runs: Path, folder: Path) -> Iterator[tuple[str, int, float]]:
    """Start the console; yield its address, its process id, and the seconds until it knew the runs.

    ``folder`` takes what it prints, and the alerts that are posted to it: ``runs`` is read only.
    """
    command = [sys.executable, "-m", "lastgood_console.cli", "console", str(runs), "--port", "0"]
    command += ["--state", str(folder / "state")]
    log = folder / "console.log"
    began = time.perf_counter()
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        address = ""
        while not address or not healthy(address):
            if process.poll() is not None:
                raise RuntimeError(f"the console did not start: {log.read_text()}")
            time.sleep(0.05)
            found = re.search(r"http://\S+", log.read_text())
            address = found[0] if found else ""
        yield address, process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(timeout=30)


def healthy(address: str) -> bool:
    """Tell whether the console answers."""
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def processor_seconds(pid: int) -> float:
    """Return the processor's time that a process has used, of all its threads."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(used[11]) + int(used[12])) / TICKS_PER_SECOND


def peak_gigabytes(pid: int) -> float:
    """Return the most memory that the process has held, as the kernel counts it."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024**2 if found else math.nan


def say(text: str) -> None:
    """Tell whoever waits what is being done."""
    print(text, file=sys.stderr, flush=True)
