"""``lastgood stack``: a fault of the demo becomes an alert in its incident's timeline, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.app.console_server import RUN, run_directory
from tests.e2e.real_servers import free_port, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, pytest.mark.usefixtures("programs")]

SLACK_SECONDS = 5.0
"""For a machine that trains six ranks meanwhile."""


@pytest.fixture
def programs(prometheus_program: str, alertmanager_program: str) -> None:
    """Fail, rather than test nothing, where the programs are missing."""


class Stack:
    """A stack of our own, at a free port, and what it has printed."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.console = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "lastgood_console.cli", "stack", str(folder / "runs"), "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, "--scrape-interval", "1", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        self.text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout:
            for line in self.process.stdout:
                self.text += line

    def wait_for(self, pattern: str, seconds: float = 90) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.text
            return re.search(pattern, self.text)

        match: re.Match[str] = wait_for(found, seconds)
        return match

    def started(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        """End it and return its exit code; all that it had started must be gone."""
        started = self.started()
        assert len(started) >= 4
        self.process.send_signal(how)
        code = self.process.wait(40)
        _, alive = psutil.wait_procs(started, timeout=20)
        assert alive == []
        self._reader.join(10)
        return code


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[list[Stack]]:
    running: list[Stack] = []
    yield running
    for stack in running:
        if stack.process.poll() is None:
            stack.process.terminate()
        stack.process.wait(60)
        stack._reader.join(10)


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def alerts_in(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [entry for entry in document["timeline"] if entry["kind"] == "alert" and name in entry["text"]]


def rules_of(prometheus: str) -> list[dict[str, Any]]:
    groups = get_json(f"{prometheus}/api/v1/rules")["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.torchrun
def test_the_demos_fault_is_an_alert_in_its_incidents_timeline(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path, "--demo")
    stacks.append(stack)
    arrived = stack.wait_for(
        r"alert ReplayMismatch arrived ([\d.]+) s after the finding was journaled "
        r"\(critical, run (\S+), incident (\S+)\)", 200,
    )  # fmt: skip
    ledger, scrape, evaluation, group_wait = 1.0, 1.0, 1.0, 0.0
    assert float(arrived[1]) <= ledger + scrape + evaluation + group_wait + SLACK_SECONDS
    address = f"{stack.console}/api/runs/{arrived[2]}/incidents/{arrived[3]}.json"
    [alert] = wait_for(lambda: alerts_in(get_json(address), "ReplayMismatch"), 10)
    document = get_json(address)
    [finding] = document["findings"]
    assert alert["step"] == finding["step"] == 100
    assert finding["at"] < alert["at"] <= alert["known_at"]
    assert "step 50" in alert["text"]
    prometheus = stack.wait_for(r"prometheus +(http://\S+)")[1]
    query = urllib.parse.quote("count(last_over_time(lastgood_rank_info[5m]))")
    counted = f"{prometheus}/api/v1/query?query={query}"
    # Found through the console, in 10 to 15 s: on a fast machine attempt 1 is over by then.
    [ranks] = wait_for(lambda: [r for r in get_json(counted)["data"]["result"] if int(r["value"][1]) >= 6], 90)
    assert ranks["metric"] == {}
    assert stack.end() == 0
    assert stack.text.endswith("All of it has ended.\n")


def test_rules_are_loaded_with_the_consoles_address_and_a_token_opens_the_console(
    tmp_path: Path, stacks: list[Stack]
) -> None:
    stack = Stack(tmp_path, environment={"LASTGOOD_TOKEN": "s3cret"})
    stacks.append(stack)
    prometheus = stack.wait_for(r"prometheus +(http://\S+)")[1]
    assert {rule["name"] for rule in rules_of(prometheus)} >= {"ReplayMismatch", "Watchdog", "LedgerStale"}
    links = [url for rule in rules_of(prometheus) for url in rule.get("annotations", {}).values() if "://" in url]
    assert links
    assert all(stack.console in link for link in links)
    beats = tmp_path / "runs" / ".lastgood" / "alerts" / "heartbeats.json"
    assert wait_for(lambda: beats.exists() and json.loads(beats.read_text()))[0]["source"] == "alertmanager"
    targets = get_json(f"{prometheus}/api/v1/targets")["data"]["activeTargets"]
    assert [(t["labels"]["job"], t["health"]) for t in targets] == [("lastgood-ledger", "up")]
    folder = tmp_path / "runs" / ".lastgood" / "stack"
    assert (folder / "token").stat().st_mode & 0o077 == 0
    assert [path.name for path in folder.iterdir() if path.is_file() and "s3cret" in path.read_text()] == ["token"]
    assert "s3cret" not in stack.text
    assert stack.end(signal.SIGTERM) == 0


def test_a_run_that_journal_and_metrics_tell_is_there_once_and_stays_when_its_directory_is_gone(
    tmp_path: Path, stacks: list[Stack]
) -> None:
    place = run_directory(tmp_path / "runs")
    stack = Stack(tmp_path)
    stacks.append(stack)
    prometheus = stack.wait_for(r"prometheus +(http://\S+)")[1]
    stack.wait_for("Ctrl-C ends all of it")
    query = urllib.parse.quote("last_over_time(lastgood_run_step[5m])")
    wait_for(lambda: get_json(f"{prometheus}/api/v1/query?query={query}")["data"]["result"], 30)

    def told() -> list[tuple[str, list[str]]]:
        return [
            (run["run"], [i["id"] for i in run["incidents"]]) for run in get_json(f"{stack.console}/api/runs")["runs"]
        ]

    def devices() -> list[str]:
        return [device["gpu_uuid"] for device in get_json(f"{stack.console}/api/nodes")["devices"]]

    (once,) = told()
    known = devices()
    assert (once[0], len(once[1]), len(known)) == (RUN, 1, len(set(known)))
    until = time.monotonic() + 20  # longer than the console leaves between two questions
    while time.monotonic() < until:
        assert (told(), devices()) == ([once], known)
        time.sleep(1)
    assert "does not answer" not in (tmp_path / "runs/.lastgood/stack/console.log").read_text()
    shutil.rmtree(place)
    wait_for(lambda: told() == [once], 60)
    assert stack.end() == 0


def test_when_a_part_ends_all_of_it_ends_and_its_last_words_are_shown(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path)
    stacks.append(stack)
    stack.wait_for("Ctrl-C ends all of it")
    started = stack.started()
    next(process for process in started if "alertmanager" in process.name()).kill()
    assert stack.process.wait(40) == 2
    assert psutil.wait_procs(started, timeout=20)[1] == []
    stack._reader.join(10)
    assert "lastgood stack: alertmanager has ended with code -9; " in stack.text
    assert 'msg="Completed loading of configuration file"' in stack.text.partition("alertmanager.log ends with:")[2]


def test_when_its_watchdog_ends_all_of_it_ends(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path)
    stacks.append(stack)
    missing = tmp_path / "runs"
    assert f"{missing} does not exist yet; runs that appear there will be found" in stack.wait_for("(.*)\n")[1]
    stack.wait_for("Ctrl-C ends all of it")
    started = stack.started()
    next(process for process in started if any("watchdog" in word for word in process.cmdline())).kill()
    assert stack.process.wait(40) == 2
    assert psutil.wait_procs(started, timeout=20)[1] == []
    stack._reader.join(10)
    assert "lastgood stack: the watchdog has ended with code -9; " in stack.text


@pytest.mark.parametrize(
    ("where", "name", "complaint"),
    [
        ("folder", "prometheus.yml", "/prometheus.yml: Is a directory; give a directory that can be written"),
        ("folder", "console.log", "console has no log: .*/console.log: Is a directory"),
        ("folder", "token", "/token: Is a directory; give a directory that can be written"),
        ("path", "prometheus", "prometheus cannot start: .*/prometheus: Exec format error"),
        ("file", "runs", "/runs is a file; give run directories, or the folder that runs lie in"),
    ],
)
def test_what_it_cannot_do_is_one_sentence_and_nothing_is_left(
    tmp_path: Path, stacks: list[Stack], where: str, name: str, complaint: str
) -> None:
    if where == "folder":
        (tmp_path / "data" / name).mkdir(parents=True)
    else:
        (tmp_path / name).write_bytes(b"\x00")
        (tmp_path / name).chmod(0o755)
    words = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} if where == "path" else {}
    stack = Stack(tmp_path, "--data", str(tmp_path / "data"), environment=words)
    stacks.append(stack)
    assert stack.process.wait(60) == 2
    stack._reader.join(10)
    assert re.fullmatch(rf"lastgood stack: .*{complaint}.*", stack.text.splitlines()[-1])
    assert "Traceback" not in stack.text
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]


def test_when_the_stack_is_killed_its_parts_end_too(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path)
    stacks.append(stack)
    stack.wait_for("Ctrl-C ends all of it")
    assert stack.end(signal.SIGKILL) == -9


def test_two_stacks_do_not_share_one_folder_and_the_second_says_so(tmp_path: Path, stacks: list[Stack]) -> None:
    first = Stack(tmp_path)
    stacks.append(first)
    first.wait_for("Ctrl-C ends all of it")
    second = Stack(tmp_path)
    stacks.append(second)
    assert second.process.wait(60) == 2
    second._reader.join(10)
    assert "another stack runs on" in second.text
    assert get_json(f"{first.console}/healthz")["status"] == "ok"
    assert first.end() == 0


def test_without_the_programs_it_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lastgood_console.cli", "stack", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)}, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == (
        "lastgood stack: not found on PATH: prometheus, alertmanager or prometheus-alertmanager. "
        "Debian and Ubuntu have them: sudo apt-get install prometheus prometheus-alertmanager\n"
    )
