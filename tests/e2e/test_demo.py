"""``lastgood demo`` as people run it: the story, the files, the exit codes, and nothing left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import httpx
import psutil
import pytest

from lastgood_console.demo.options import Options
from lastgood_console.demo.outcome import complaints
from lastgood_console.demo.reading import Follower

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]

DEMO = [sys.executable, "-m", "lastgood_console.cli", "demo"]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DEMO, *arguments], capture_output=True, text=True, timeout=240)


def test_the_default_story_is_told_to_its_end(tmp_path: Path) -> None:
    done = demo("--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    story = [
        "The nodes are simulated",
        "saved checkpoints/a1-step-000075",
        "replay failed on rank 3",
        "verdict: attributed to rank 3 (node-b, slot 1); resume from checkpoints/a1-step-000050",
        "attempt 1 stopped: every rank raised IntegrityError",
        "attempt 2 starts: 6 ranks on node-a, node-d and node-c, from checkpoints/a1-step-000050",
        "attempt 2 ran to its end",
        "◆ ATTRIBUTED",
        "Rank 3 (node-b, slot 1) computed wrong gradients in steps (50, 100].",
        "recovered by attempt 2",
        "! suspect",
        f"lastgood console {tmp_path / 'run'}",
    ]
    places = [done.stdout.find(line) for line in story]
    assert -1 not in places, dict(zip(story, places, strict=True))
    assert places == sorted(places)
    assert "\x1b" not in done.stdout
    _holds_the_files(tmp_path / "run")


def _holds_the_files(run_dir: Path) -> None:
    state = Follower(run_dir, run_dir.name).poll(1)
    assert state is not None
    assert complaints(state, Options(run_dir=run_dir)) == ()
    incident = state.incidents[0]
    document = json.loads((run_dir / "exports" / f"{incident.id}.json").read_text())
    assert document["incident"]["id"] == incident.id
    assert "computed wrong gradients" in (run_dir / "exports" / f"{incident.id}.html").read_text()
    assert (run_dir / "checkpoints" / "a1-step-000050").is_file()


def test_fake_gpus_are_named_as_fakes_in_the_terminal_and_the_files(tmp_path: Path) -> None:
    done = demo("--fault", "nan", "--step", "20", "--steps", "30", "--fake-gpu", "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every rank has a fake GPU (--fake-gpu)" in done.stdout
    assert "◆ ATTRIBUTED to a fake GPU" in done.stdout
    (report,) = (tmp_path / "run" / "exports").glob("*.html")
    assert "Rank 3 (node-b, fake GPU " in report.read_text()
    suspects = json.loads(report.with_suffix(".json").read_text())["suspects"]
    assert [suspect["gpu_uuid"][:9] for suspect in suspects] == ["FAKE-GPU-"]
    state = Follower(tmp_path / "run", "run").poll(1)
    assert state
    assert all(place.gpu_uuid.startswith("FAKE-GPU-") for attempt in state.attempts for place in attempt.places)


def test_a_run_without_a_fault_finds_nothing(tmp_path: Path) -> None:
    done = demo("--fault", "none", "--run-dir", str(tmp_path / "run"), "--no-console")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No finding in 150 steps. Replay last passed 0 steps ago." in done.stdout
    again = demo("--run-dir", str(tmp_path / "run"))
    assert again.returncode == 2
    assert "already holds a run" in again.stderr


class Terminal:
    """A demo at a pseudo-terminal of 40 x 120."""

    def __init__(self, *arguments: str) -> None:
        self.text = ""
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.execve(DEMO[0], [*DEMO, *arguments], {**os.environ, "TERM": "xterm-256color"})
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def read_until(self, word: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while word not in self.text:
            assert time.monotonic() < deadline, self.text[-3000:]
            if select.select([self._file], [], [], 0.5)[0]:
                self.text += os.read(self._file, 65536).decode(errors="replace")

    def press_ctrl_c(self) -> int:
        os.write(self._file, b"\x03")
        _, status = os.waitpid(self.pid, 0)
        os.close(self._file)
        return os.waitstatus_to_exitcode(status)


def test_at_a_terminal_the_console_stays_until_ctrl_c(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        terminal = Terminal("--fault", "none", "--steps", "10", "--run-dir", str(run_dir), "--port", str(port))
        terminal.read_until("(Ctrl-C ends it)", 90)
    assert f"Port {port} is taken; the console uses " in terminal.text
    address = re.search(r"http://127\.0\.0\.1:\d+", terminal.text)
    assert address is not None
    assert _answers(address[0])
    assert terminal.press_ctrl_c() == 0
    assert processes_of(run_dir) == []


def _answers(address: str) -> bool:
    """Tell whether the console comes up within half a minute."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if httpx.get(address).status_code == 200:
                return True
        except httpx.TransportError:
            time.sleep(0.3)
    return False


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """Return the living processes whose command line names the run."""
    return [p for p in psutil.process_iter(["cmdline"]) if str(run_dir) in " ".join(p.info["cmdline"] or [])]


def start(run_dir: Path) -> subprocess.Popen[str]:
    """Start a demo and wait until every rank is training."""
    command = [*DEMO, "--run-dir", str(run_dir)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    while not (run_dir / "demo" / "a1-status.jsonl").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert len(processes_of(run_dir)) == 1 + 3 + 6
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stopped_demo_leaves_no_process_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run_dir = tmp_path / "run"
    process = start(run_dir)
    os.kill(process.pid, number)
    process.communicate(timeout=20)
    assert process.returncode == code
    deadline = time.monotonic() + 10
    while processes_of(run_dir) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_of(run_dir) == []


def test_a_rank_that_is_killed_ends_the_demo_with_its_log(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    process = start(run_dir)
    workers = [
        p
        for p in processes_of(run_dir)
        if "lastgood.demo.agent" not in " ".join(p.cmdline()) and "--steps" in p.cmdline()
    ]
    workers[-1].kill()
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 2
    assert "attempt 1 failed on node-" in output
    assert processes_of(run_dir) == []
