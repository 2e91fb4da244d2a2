"""``lastgood serve``: metrics, health and posted events over real HTTP."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lastgood.events import Event, utc
from lastgood.ingest import MAX_BODY_BYTES, EventIntake
from lastgood.journal import JournalWriter
from lastgood.ledger import Ledger
from lastgood.serve import health, keep_fresh, main, make_server, run_paths

ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("LASTGOOD_")}
STARTED = {
    "world_size": 1, "topology": "", "config": {}, "cadence": {"replica": 50}, "not_run": {}, "environment": {"e": [0]},
    "versions": {}, "seed": None, "parent": None, "parent_known": True, "parent_verified": True, "from_step": 0,
}  # fmt: skip


class Client:
    """Ask a server; each request is a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read()
        finally:
            connection.close()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    one = JournalWriter(tmp_path / "runs" / "llama", "llama", 1, "rank-0", rank=0, node="node-a")
    one.write("run.started", STARTED)
    return tmp_path / "runs"


@pytest.fixture
def ledger(runs: Path, tmp_path: Path) -> Ledger:
    return Ledger([runs], state_dir=tmp_path / "state")


@pytest.fixture
def client(ledger: Ledger, tmp_path: Path) -> Iterator[Client]:
    server = make_server("127.0.0.1", 0, ledger, EventIntake(tmp_path / "state", ledger))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Client(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join()


def samples(text: bytes) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(text.decode())
    return {(one.name, one.labels.get("run", "")): one.value for family in families for one in family.samples}


def test_metrics_are_those_of_the_runs(client: Client, ledger: Ledger) -> None:
    ledger.refresh()
    status, content_type, text = client.ask("GET", "/metrics")
    assert (status, content_type.partition(";")[0]) == (200, "text/plain")
    assert samples(text)[("lastgood_run_attempt", "llama")] == 1


def test_a_posted_event_shows_in_the_metrics_of_a_run_without_a_directory(client: Client) -> None:
    event = Event("rank-0-1", "/lastgood/far/2/rank/0", "run.started", utc(5), "far", 2, STARTED)
    body = json.dumps([event.to_dict()]).encode()
    assert client.ask("POST", "/api/events", body, Content_Type="application/json")[0] == 200
    assert samples(client.ask("GET", "/metrics")[2])[("lastgood_run_attempt", "far")] == 2


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/api/events", 404), ("POST", "/healthz", 404), ("PUT", "/", 501)],
)
def test_everything_else_is_an_error_in_json(client: Client, method: str, path: str, status: int) -> None:
    got, content_type, body = client.ask(method, path)
    assert (got, content_type) == (status, "application/json")
    assert json.loads(body)["error"]


def test_a_body_too_large_is_refused_before_it_is_read(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=5) as raw:
        raw.sendall(f"POST /api/events HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BODY_BYTES + 1}\r\n\r\n".encode())
        assert b" 413 " in raw.recv(1000)


@pytest.mark.parametrize("size", ["", "Content-Length: -1\r\n", "Content-Length: x\r\n"])
def test_a_body_of_unknown_length_is_refused(client: Client, size: str) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=5) as raw:
        raw.sendall(f"POST /api/events HTTP/1.1\r\nHost: x\r\n{size}\r\n".encode())
        assert b" 411 " in raw.recv(1000)


def test_health_says_how_old_the_last_reading_is(client: Client, ledger: Ledger) -> None:
    assert client.ask("GET", "/healthz")[0] == 503
    ledger.refresh()
    status, _, body = client.ask("GET", "/healthz")
    assert (status, json.loads(body)["status"], json.loads(body)["runs"]) == (200, "ok", 1)
    assert health(ledger, time.time() + 61)[0] == 503


def test_a_refresh_that_fails_is_said_once_and_tried_again(capsys: Any) -> None:
    class Broken:
        calls = 0
        stop = Flag()

        def refresh(self) -> None:
            self.calls += 1
            if self.calls == 3:
                self.stop.set()
            raise OSError("stale file handle")

    broken = Broken()
    keep_fresh(broken, broken.stop, 0.001)  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("stale file handle") == 1


def test_runs_come_from_the_command_line_the_environment_or_here() -> None:
    assert run_paths(["a", "b"], {"LASTGOOD_RUNS": "c"}) == [Path("a"), Path("b")]
    assert run_paths([], {"LASTGOOD_RUNS": "c:d"}) == [Path("c"), Path("d")]
    assert run_paths([], {}) == [Path("runs")]


def test_a_port_that_is_taken_is_one_clear_error(runs: Path, capsys: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main([str(runs), "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err


def test_an_object_store_is_one_clear_error(capsys: Any) -> None:
    assert main(["s3://bucket/runs"]) == 2
    assert "mounted POSIX file system" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_out_of_range_is_a_usage_error(port: str, capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--port", port])
    assert "is not a port" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_follows_the_runs_and_ends_cleanly(runs: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-W", "error", "-m", "lastgood.serve", str(runs), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRON) as process:
        assert process.stdout
        port = int(process.stdout.readline().rpartition("/")[0].rpartition(":")[2])
        client = Client(port)
        end = time.monotonic() + 20
        while client.ask("GET", "/healthz")[0] != 200 and time.monotonic() < end:
            time.sleep(0.05)
        JournalWriter(runs / "new", "new", 1, "rank-0", rank=0).write("run.started", STARTED)
        while ("lastgood_run_attempt", "new") not in samples(client.ask("GET", "/metrics")[2]):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stderr
        assert process.stderr.read() == ""


def test_serving_to_other_machines_without_a_token_is_warned_about(runs: Path) -> None:
    command = [sys.executable, "-m", "lastgood.serve", str(runs / "none"), "--port", "0", "--host", "0.0.0.0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRON) as process:
        assert process.stderr
        said = process.stderr.readline() + process.stderr.readline()
        process.terminate()
        assert process.wait(10) == 0
    assert "does not exist yet" in said
    assert "without LASTGOOD_TOKEN" in said
