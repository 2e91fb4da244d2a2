"""The stack's decisions: programs, ports, command lines, what is left over, how long an alert took."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.app.fixtures import states

from lastgood.errors import ConfigError
from lastgood.posted import PostedEvents
from lastgood_console.stack.arrivals import Arrivals, arrival_text, latency_seconds
from lastgood_console.stack.command import introduction, main
from lastgood_console.stack.layout import Layout, Ports, alone_in, missing_folders
from lastgood_console.stack.parts import Part, PartError, Parts, answers, tail
from lastgood_console.stack.programs import find_programs
from lastgood_console.stack.watchdog import left_over

PROGRAMS = {"prometheus": "/usr/bin/prometheus", "alertmanager": "/usr/bin/prometheus-alertmanager"}


def layout(folder: Path, token: str | None = None) -> Layout:
    return Layout(
        runs=[Path("runs")], folder=folder, state=Path("state"), ports=Ports(8490, 9090, 9093), scrape_seconds=2,
        token=token,
    )  # fmt: skip


# --- what is started -------------------------------------------------------------------------------------------------


def test_either_name_of_alertmanager_will_do() -> None:
    assert find_programs({"prometheus": "/p", "alertmanager": "/a"}.get) == {"prometheus": "/p", "alertmanager": "/a"}
    debian = {"prometheus": "/p", "prometheus-alertmanager": "/d"}
    assert find_programs(debian.get)["alertmanager"] == "/d"


def test_a_missing_program_is_named_with_what_to_install() -> None:
    with pytest.raises(ConfigError, match="not found on PATH: alertmanager or prometheus-alertmanager. .* apt-get"):
        find_programs({"prometheus": "/p"}.get)


def test_every_part_listens_on_this_machine_alone_and_alertmanager_gossips_with_nobody(tmp_path: Path) -> None:
    console, alertmanager, prometheus = layout(tmp_path).parts(PROGRAMS)
    own = ("--host", "127.0.0.1", "--port", "8490", "--state", "state", "--prometheus", "http://127.0.0.1:9090")
    assert console.command[-8:] == own
    assert "--web.listen-address=127.0.0.1:9093" in alertmanager.command
    assert "--cluster.listen-address=" in alertmanager.command
    assert "--web.listen-address=127.0.0.1:9090" in prometheus.command
    assert prometheus.health == "http://127.0.0.1:9090/-/ready"


def test_the_console_is_not_given_what_opens_another_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_PROMETHEUS", "http://prometheus.example")
    monkeypatch.setenv("LASTGOOD_PROMETHEUS_TOKEN", "s3cret")
    monkeypatch.setenv("LASTGOOD_TOKEN", "own")
    console, _, prometheus = layout(tmp_path).parts(PROGRAMS)
    assert not any(name.startswith("LASTGOOD_PROMETHEUS") for name in console.environment)
    assert console.environment["LASTGOOD_TOKEN"] == "own"
    assert prometheus.environment["LASTGOOD_PROMETHEUS_TOKEN"] == "s3cret"
    tells = [sys.executable, "-c", "import os; print(sorted(n for n in os.environ if n.startswith('LASTGOOD_')))"]
    said: list[str] = []
    with Parts() as parts:
        parts.start(replace(console, command=tells), said.append)
        while parts.code_of("console") is None:
            time.sleep(0.05)
    assert said == ["['LASTGOOD_METRICS_ADDRESS', 'LASTGOOD_TOKEN']"]


def test_the_configurations_name_the_console_and_the_token_stands_in_a_file_of_its_own(tmp_path: Path) -> None:
    layout(tmp_path, token="s3cret").write_configs()
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "http://127.0.0.1:8490/api/alerts" in texts["alertmanager.yml"]
    assert "http://127.0.0.1:8490/api/sd" in texts["prometheus.yml"]
    assert "scrape_interval: '2s'" in texts["prometheus.yml"]
    assert "http://127.0.0.1:8490/runbook?name=ReplayMismatch" in texts["lastgood.rules.yml"]
    assert [name for name, text in texts.items() if "s3cret" in text] == ["token"]
    layout(tmp_path).write_configs()
    assert not (tmp_path / "token").exists()


def test_one_folder_holds_one_stack(tmp_path: Path) -> None:
    with alone_in(tmp_path), pytest.raises(ConfigError, match="another stack runs on .* --data"), alone_in(tmp_path):
        pass
    with alone_in(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/x: Not a directory; give .* --data"), alone_in(tmp_path / "file" / "x"):
        pass


@pytest.mark.parametrize("name", ["prometheus.yml", "alertmanager.yml", "lastgood.rules.yml", "token"])
def test_a_folder_where_a_configuration_should_be_is_said_in_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=rf"/{name}: Is a directory; give .* --data"):
        layout(tmp_path, token="s3cret").write_configs()


def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=r"/prometheus.yml: No space left on device; give .* --data"):
        layout(tmp_path).write_configs()


def test_a_file_is_no_folder_of_runs_and_a_missing_one_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="/file is a file; give run directories"):
        missing_folders([tmp_path, tmp_path / "file"])
    assert missing_folders([tmp_path, tmp_path / "later"]) == [tmp_path / "later"]


def test_the_introduction_says_where_everything_is(tmp_path: Path) -> None:
    text = introduction(layout(tmp_path))
    for part in ("http://127.0.0.1:8490", "http://127.0.0.1:9090/api/v1/write", "http://127.0.0.1:9093", str(tmp_path)):
        assert part in text


@pytest.mark.parametrize("seconds", ["0", "61", "1.5", "x"])
def test_a_scrape_interval_is_1_to_60_seconds(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--scrape-interval", seconds])
    assert f"{seconds} is not a number of seconds from 1 to 60" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--fault", "nan"], "--fault is for the demo: give --demo too"),
        (["--port", "0"], "0 is not a port: give 1 to 65535"),
        (["--demo", "--fault", "cosmic"], "invalid choice: 'cosmic'"),
    ],
)
def test_a_wrong_option_is_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert complaint in capsys.readouterr().err


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that has neither server: what is wrong with the request is said all the same."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_programs")
def test_an_object_store_holds_no_runs() -> None:
    with pytest.raises(ConfigError, match="s3://runs is an object store"):
        main(["s3://runs"])


@pytest.mark.usefixtures("no_programs")
def test_a_webhook_secret_without_a_token_is_refused_since_alertmanager_cannot_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_WEBHOOK_SECRET", "key")
    monkeypatch.delenv("LASTGOOD_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="Alertmanager cannot sign: set LASTGOOD_TOKEN too"):
        main([str(tmp_path / "runs")])


@pytest.mark.usefixtures("no_programs")
def test_the_demo_goes_into_a_folder_of_runs_not_into_a_run(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(ConfigError, match="--demo: .* is a run; give the folder that runs lie in"):
        main([str(tmp_path), "--demo"])


# --- what runs -------------------------------------------------------------------------------------------------------


def sleeper(folder: Path, *code: str) -> Part:
    return Part("sleeper", [sys.executable, "-c", "; ".join(code)], folder / "sleeper.log", "http://127.0.0.1:9/")


def test_a_part_that_ends_at_once_is_shown_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Parts() as parts:
        parts.start(sleeper(tmp_path, "print('no such flag')", "raise SystemExit(3)"))
        with pytest.raises(PartError, match=r"sleeper has ended with code 3; .*sleeper.log ends with:\nno such flag"):
            parts.wait_until_ready("sleeper")


def test_a_part_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with Parts() as parts:
        parts.start(sleeper(tmp_path, "import time", "time.sleep(60)"))
        with pytest.raises(PartError, match=r"sleeper does not answer at http://127\.0\.0\.1:9/"):
            parts.wait_until_ready("sleeper", seconds=0.3)
    assert not answers("http://127.0.0.1:9/")


def test_a_part_is_asked_itself_where_the_environment_names_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/-/ready" else 503)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        assert answers(f"http://127.0.0.1:{server.server_port}/-/ready")
        assert not answers(f"http://127.0.0.1:{server.server_port}/-/healthy")
        server.shutdown()


def test_lines_of_a_part_are_told_and_kept(tmp_path: Path) -> None:
    told: list[str] = []
    with Parts() as parts:
        parts.start(sleeper(tmp_path, "print('one')", "print('two')"), told.append)
        deadline = time.monotonic() + 10
        while parts.code_of("sleeper") is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert told == ["one", "two"]
    assert tail(tmp_path / "sleeper.log") == "one\ntwo"


def test_the_end_of_the_watchdog_is_noticed_and_keeps_nothing_from_ending(tmp_path: Path) -> None:
    with Parts() as parts:
        for name in ("one", "two", "three"):
            if name == "three":
                parts._watchdog.kill()
                parts._watchdog.wait()
            parts.start(replace(sleeper(tmp_path, "import time", "time.sleep(60)"), name=name))
        processes = [process for _, process in parts._running.values()]
        with pytest.raises(PartError, match="the watchdog has ended with code -9"):
            parts.check()
    assert [process.poll() for process in processes] == [-15, -15, -15]


def test_a_second_interrupt_while_it_ends_kills_what_does_not_end_and_ends_the_rest(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Parts() as parts:  # noqa: PT012
        parts.start(sleeper(tmp_path, "import time", "time.sleep(60)"))
        deaf = sleeper(tmp_path, "import signal, time", "signal.signal(15, signal.SIG_IGN)", "print(1, flush=True)",
                       "time.sleep(60)")  # fmt: skip
        told: list[str] = []
        parts.start(replace(deaf, name="deaf", log=tmp_path / "deaf.log"), told.append)
        processes = [process for _, process in parts._running.values()]
        deadline = time.monotonic() + 10
        while not told and time.monotonic() < deadline:
            time.sleep(0.02)
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    assert [process.poll() for process in processes] == [-15, -9]


def test_a_program_that_is_none_is_said_in_a_sentence(tmp_path: Path) -> None:
    (program := tmp_path / "prometheus").write_bytes(b"\x00 no program")
    program.chmod(0o755)
    part = Part("prometheus", [str(program)], tmp_path / "prometheus.log")
    with Parts() as parts, pytest.raises(PartError, match=r"prometheus cannot start: .*/prometheus: Exec format error"):
        parts.start(part)


def test_a_folder_where_a_log_should_be_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "sleeper.log").mkdir()
    with Parts() as parts, pytest.raises(PartError, match=r"sleeper has no log: .*/sleeper.log: Is a directory"):
        parts.start(sleeper(tmp_path, "pass"))


def test_a_part_whose_log_and_listener_are_full_or_gone_is_still_heard_to_its_end(tmp_path: Path) -> None:
    def gone(line: str) -> None:
        raise BrokenPipeError

    full = Part("loud", [sys.executable, "-c", "print('x' * 1_000_000)"], Path("/dev/full"))
    with Parts() as parts:
        parts.start(full, gone)
        deadline = time.monotonic() + 10
        while (code := parts.code_of("loud")) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert code == 0


def test_left_over_is_what_has_started_and_not_ended() -> None:
    assert left_over(["+11\n", "+12\n", "-11\n", "+13\n"]) == {12, 13}


def test_the_watchdog_ends_what_is_left_over_when_its_input_ends() -> None:
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    watchdog = subprocess.Popen([sys.executable, "-m", "lastgood_console.stack.watchdog"], stdin=subprocess.PIPE)
    assert watchdog.stdin
    with watchdog.stdin as words:
        words.write(f"+{victim.pid}\n".encode())
    assert victim.wait(10) == -15
    assert watchdog.wait(10) == 0


# --- what arrives ----------------------------------------------------------------------------------------------------


def test_the_latency_of_an_alert_counts_from_its_finding() -> None:
    state = states.gradient()
    [incident] = state.incidents
    found = states.alert(0)
    alert = replace(found, data={**found.data, "incident": incident.id, "check": "replay"})
    finding_at = next(f.at for f in incident.findings if f.check == "replay")
    at_once = replace(alert, time=finding_at, data={**alert.data, "starts_at": finding_at})
    assert latency_seconds(at_once, state) == 0
    assert f"alert {alert.data['name']} arrived 0.0 s after the finding was journaled" in arrival_text(at_once, state)


def test_an_alert_without_a_finding_has_no_latency() -> None:
    state = states.gradient()
    alert = states.alert(0)
    other = replace(alert, data={**alert.data, "name": "StepStalled", "incident": "", "status": "firing"})
    assert latency_seconds(other, state) is None
    assert latency_seconds(alert, None) is None
    assert arrival_text(other, state) == f"alert StepStalled arrived ({other.data['severity']}, run {other.run})"
    over = replace(alert, data={**alert.data, "status": "resolved"})
    assert arrival_text(over, state) == f"alert {alert.data['name']} of run {alert.run}: resolved"


def test_alerts_from_before_the_start_are_no_news(tmp_path: Path) -> None:
    posted = PostedEvents(tmp_path)
    posted.keep([states.alert(0)])
    arrivals = Arrivals([tmp_path / "runs"], tmp_path)
    assert arrivals.poll() == []
    later = replace(states.alert(5), id="later")
    posted.keep([later])
    [line] = arrivals.poll()
    assert line.startswith(f"alert {later.data['name']} arrived")
    assert arrivals.poll() == []
