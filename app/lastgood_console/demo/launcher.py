"""Run one attempt of the demo's training: one torchrun agent per simulated node, each in a session of its own.

Nothing is left behind: :class:`Agents` ends what it started, and the agents and their workers end themselves when
this process is gone (``lastgood.demo.orphan``). The agents meet at a port of the loopback device.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lastgood_console.demo.options import Options

GRACE_SECONDS = 5.0
"""From the request to end until a process is killed; from the first failed agent until the others must end."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt: where it runs, what it resumes from, and whether the fault is still to come."""

    number: int
    nodes: tuple[str, ...]
    resume: str | None = None
    armed: bool = True


class Agents:
    """The agents of one attempt. Leaving the ``with`` block ends those that are still running."""

    def __init__(self, options: Options, launch: Launch, run: str) -> None:
        self.launch = launch
        self.logs = {node: options.run_dir / "demo" / f"a{launch.number}-{node}.log" for node in launch.nodes}
        self._options = options
        self._commands = agent_commands(options, launch, run, free_port())
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._failed_at: float | None = None

    def __enter__(self) -> Agents:
        for node, command in self._commands.items():
            self.logs[node].parent.mkdir(parents=True, exist_ok=True)
            with self.logs[node].open("wb") as log:
                self._processes[node] = subprocess.Popen(
                    command,
                    env=environment(node, os.environ) | push_environment(self._options.push, os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def running(self) -> bool:
        """Tell whether an agent still runs. When one has failed, the others are ended after the grace."""
        codes = [process.poll() for process in self._processes.values()]
        if any(codes) and self._failed_at is None:
            self._failed_at = time.monotonic()
        if self._failed_at is not None and time.monotonic() - self._failed_at > GRACE_SECONDS:
            self.stop()
            return False
        return any(code is None for code in codes)

    def failed(self) -> tuple[str, ...]:
        """Return the nodes whose agent ended with an error."""
        return tuple(node for node, process in self._processes.items() if process.poll() not in (0, None))

    def stop(self) -> None:
        """End every agent and with it its workers: by request, then by force."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def agent_commands(options: Options, launch: Launch, run: str, port: int) -> dict[str, list[str]]:
    """Return node -> command line of its agent."""
    worker = worker_arguments(options, launch, run)
    return {
        node: [
            *(sys.executable, "-m", "lastgood.demo.agent", str(os.getpid())),
            *("--nnodes", str(len(launch.nodes)), "--nproc-per-node", str(options.ranks_per_node)),
            *("--node-rank", str(number), "--rdzv-backend", "static", "--local-addr", "127.0.0.1"),
            *("--master-addr", "127.0.0.1", "--master-port", str(port), "--monitor-interval", "0.5"),
            *("-m", "lastgood.demo.train", *worker),
        ]
        for number, node in enumerate(launch.nodes)
    }


def worker_arguments(options: Options, launch: Launch, run: str) -> list[str]:
    """Return the arguments of every rank. The fault is named by its device: where that is absent, nothing happens."""
    arguments = [
        *("--run-dir", str(options.run_dir), "--run-id", run, "--seed", str(options.seed)),
        *(
            "--steps",
            str(options.steps),
            "--save-every",
            str(options.save_every),
            "--audit-every",
            str(options.audit_every),
        ),
        *("--replay", "on" if options.replay else "off"),
    ]
    arguments += ["--save-probe"] if options.save_probe else []
    arguments += ["--resume", launch.resume] if launch.resume else []
    if options.fake_gpu is not None:
        arguments += ["--fake-gpu", options.fake_gpu]
        arguments += ["--fake-node", options.fault_node, "--fake-slot", str(options.fault_slot)]
    if launch.armed and options.fault != "none":
        arguments += ["--fault", options.fault, "--fault-step", str(options.step)]
        arguments += ["--fault-node", options.fault_node, "--fault-slot", str(options.fault_slot)]
    return arguments


def environment(node: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's environment: its node's name, one thread a rank, everything on the loopback device.

    Only where ranks serve their metrics is taken from outside: in a container the scraper is another machine.
    """
    kept = {name: value for name, value in base.items() if not name.startswith(("LASTGOOD_", "TORCHELASTIC_"))}
    kept |= {
        "LASTGOOD_NODE": node,
        "LASTGOOD_METRICS_ADDRESS": base.get("LASTGOOD_METRICS_ADDRESS") or "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return kept | ({"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {})


def push_environment(url: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return what makes a rank push to ``url``, with the login that the terminal has for it.

    Every second, unless the terminal has another time.
    """
    if not url:
        return {}
    taken = ("LASTGOOD_PUSH_SECONDS", "LASTGOOD_PUSH_TOKEN", "LASTGOOD_PUSH_BASIC_AUTH")
    given = {name: base[name] for name in taken if base.get(name)}
    return {"LASTGOOD_PUSH_URL": url, "LASTGOOD_PUSH_SECONDS": "1"} | given


def free_port(first: int = 0, tries: int = 100) -> int:
    """Return a free port of the loopback device: any, or the first from ``first`` on. Raises OSError without one."""
    for port in range(first, first + tries) if first else (0,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port from {first} to {first + tries - 1} on 127.0.0.1")


def log_tail(path: Path, lines: int = 15) -> str:
    """Return what the workers said last in an agent's log, without torchrun's report about their exit codes."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"({path} cannot be read: {error.strerror})"
    said = itertools.takewhile(lambda line: "elastic/multiprocessing/api.py" not in line, text)
    return "\n".join((list(said) or text)[-lines:])
