"""Decide how the stack runs: its ports, its files and the command lines of its parts."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lastgood.errors import ConfigError
from lastgood_alerts.prometheus import rules_yaml
from lastgood_alerts.server_configs import alertmanager_config, prometheus_config
from lastgood_console.server import free_port
from lastgood_console.sources.client import VARIABLE
from lastgood_console.stack.parts import Part

HOST: Final = "127.0.0.1"
GROUP_WAIT_SECONDS: Final = 10
RESEND_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Ports:
    """Where each part listens on this machine."""

    console: int
    prometheus: int
    alertmanager: int

    def url(self, part: str) -> str:
        """Return the address of a part."""
        return f"http://{HOST}:{getattr(self, part)}"


@dataclass(frozen=True, slots=True)
class Layout:
    """One stack. ``folder``: data, configurations and logs of the servers; ``state``: what the console keeps."""

    runs: Sequence[Path]
    folder: Path
    state: Path
    ports: Ports
    scrape_seconds: int
    token: str | None = None

    def parts(self, programs: dict[str, str]) -> tuple[Part, Part, Part]:
        """Return console, Alertmanager and Prometheus, in the order in which they start.

        The console asks the Prometheus of this stack: what is shown to another is none of its business.
        """
        console = self._part("console", "/healthz", *console_command(self.runs, self.ports, self.state))
        return (
            replace(console, keeps_back=VARIABLE),
            self._part(
                "alertmanager", "/-/ready", programs["alertmanager"],
                f"--config.file={self.folder / 'alertmanager.yml'}",
                f"--storage.path={self.folder / 'alertmanager'}",
                f"--web.listen-address={HOST}:{self.ports.alertmanager}",
                f"--web.external-url={self.ports.url('alertmanager')}",  # else links name this host
                "--cluster.listen-address=",  # no gossip: there is nobody to gossip with
            ),
            self._part(
                "prometheus", "/-/ready", programs["prometheus"],
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'prometheus'}",
                f"--web.listen-address={HOST}:{self.ports.prometheus}",
                f"--web.external-url={self.ports.url('prometheus')}",
                "--web.enable-remote-write-receiver",
                # Finding Alertmanager takes Prometheus a few seconds; what fires before goes out with the next resend,
                # by default a minute later.
                f"--rules.alert.resend-delay={RESEND_SECONDS}s",
            ),
        )  # fmt: skip

    def write_configs(self) -> None:
        """Write what the servers read. Raises :class:`ConfigError` where a file cannot be written."""
        token_file = self._token_file()
        console = self.ports.url("console")
        texts = {
            "lastgood.rules.yml": rules_yaml(console_url=console, interval_seconds=self.scrape_seconds),
            "alertmanager.yml": alertmanager_config(
                console_url=console, token_file=token_file, group_wait_seconds=GROUP_WAIT_SECONDS
            ),
            "prometheus.yml": prometheus_config(
                console_url=console,
                alertmanagers=(f"{HOST}:{self.ports.alertmanager}",),
                token_file=token_file,
                scrape_interval_seconds=self.scrape_seconds,
                evaluation_interval_seconds=self.scrape_seconds,
            ),
        }
        for name, text in texts.items():
            with writing(self.folder / name) as path:
                path.write_text(text, encoding="utf-8")

    def _token_file(self) -> str | None:
        """Keep the console's token where only this user reads it; the configurations name the file alone."""
        with writing(self.folder / "token") as path:
            path.unlink(missing_ok=True)
            if self.token is None:
                return None
            path.touch(mode=0o600)
            path.write_text(self.token, encoding="utf-8")
            return str(path.absolute())

    def _part(self, name: str, health: str, *command: str) -> Part:
        return Part(name, command, self.folder / f"{name}.log", f"{self.ports.url(name)}{health}")


def console_command(runs: Sequence[Path], ports: Ports, state: Path) -> list[str]:
    """Return the command line of the console. It starts first, and waits for Prometheus by itself."""
    command = [sys.executable, "-m", "lastgood_console.cli", "console", *map(str, runs)]
    command += ["--host", HOST, "--port", str(ports.console), "--state", str(state)]
    return [*command, "--prometheus", ports.url("prometheus")]


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Turn what keeps a file from being written into a :class:`ConfigError` with the way out."""
    try:
        yield path
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror}; give a directory that can be written with --data") from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep a second stack out of a folder meanwhile. Raises :class:`ConfigError` when there is one."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with writing(folder / "lock") as path:
        lock = path.open("wb")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"another stack runs on {folder}: end it, or give another directory with --data"
            ) from None
        yield


def demo_part(folder: Path, run_dir: Path, fault: str) -> Part:
    """Return the demo as a part that ends by itself."""
    demo = [sys.executable, "-m", "lastgood_console.cli", "demo", "--no-console"]
    return Part("demo", [*demo, "--fault", fault, "--run-dir", str(run_dir)], folder / "demo.log")


def missing_folders(runs: Sequence[Path]) -> list[Path]:
    """Return the folders of runs that are not there yet. Raises :class:`ConfigError` for a file."""
    if file := next((path for path in runs if path.exists() and not path.is_dir()), None):
        raise ConfigError(f"{file} is a file; give run directories, or the folder that runs lie in")
    return [path for path in runs if not path.exists()]


def choose_ports(console: int) -> Ports:
    """Return the usual ports, or the next free ones. Raises OSError when there are none."""
    return Ports(free_port(HOST, console), free_port(HOST, 9090), free_port(HOST, 9093))
