"""Show the demo's run in the web console until Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys

from rich.console import Console

from lastgood_console.demo.launcher import GRACE_SECONDS, free_port
from lastgood_console.demo.options import Options
from lastgood_console.ending import end_process


def stay_open(options: Options, console: Console) -> None:
    """Start the console on the run and wait for Ctrl-C; a port that is taken is said."""
    try:
        port = choose_port(options.port, console)
    except OSError as error:
        console.print(f"No console: {error}; give another --port.", highlight=False)
        return
    command = (sys.executable, "-m", "lastgood_console.demo.attached_console", str(os.getpid()))
    log = options.run_dir / "demo" / "console.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, str(options.run_dir), "--port", str(port)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        console.print(f"\nconsole   http://127.0.0.1:{port}   (Ctrl-C ends it)", style="bold", highlight=False)
        if process.wait():
            console.print(f"The console ended with code {process.returncode}; see {log}.", highlight=False)
    except KeyboardInterrupt:
        console.print()
    finally:
        end_process(process, GRACE_SECONDS)


def choose_port(wanted: int, console: Console) -> int:
    """Return the wanted port, or the next free one and say so."""
    port = free_port(wanted)
    if port != wanted:
        console.print(f"Port {wanted} is taken; the console uses {port}.", highlight=False)
    return port
