"""Hold the console's server: ports, warnings, and the routes through a real server on a real run directory."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.app.console_server import RUN, Console, run_directory
from tests.exporter.histories import History

from lastgood_console import server
from lastgood_console.export import document
from lastgood_console.export.formats import FORMATS, render

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    with Console(runs) as started:
        yield started


def test_it_serves_pages_and_its_own_routes_on_one_port(console: Console) -> None:
    assert "<title>" in console.get("/").text
    health = console.get("/healthz")
    assert (health.status_code, health.json()["status"], health.json()["runs"]) == (200, "ok", 1)


def test_the_metrics_are_the_ledgers(console: Console) -> None:
    answer = console.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert re.search(rf'lastgood_incident_resume_step{{[^}}]*run="{RUN}"[^}}]*}} 50.0', answer.text)


def test_an_answer_does_not_wait_for_its_headers_to_be_confirmed(console: Console) -> None:
    """On a connection that is used again; the wait would be 40 ms, and the shortest of many shows it on any machine."""
    seconds = []
    with httpx.Client(base_url=console.address) as client:
        for _ in range(30):
            began = time.perf_counter()
            assert client.get("/healthz").status_code == 200
            seconds.append(time.perf_counter() - began)
    assert min(seconds[20:]) < 0.03


def test_runs_are_listed_with_the_addresses_of_their_exports(console: Console) -> None:
    (run,) = console.get("/api/runs").json()["runs"]
    (incident,) = run["incidents"]
    assert (run["run"], run["last_good"]["step"], incident["status"]) == (RUN, 50, "attributed")
    exported = console.get(incident["exports"]["json"])
    assert exported.headers["content-type"] == "application/json"
    assert exported.json()["incident"]["id"] == incident["id"]
    assert list(incident["exports"]) == [*FORMATS]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_served_as_what_it_is(console: Console, form: str) -> None:
    (incident,) = console.get("/api/runs").json()["runs"][0]["incidents"]
    known = document.loads(console.get(incident["exports"]["json"]).text)
    answer = console.get(incident["exports"][form])
    assert answer.headers["content-type"] == FORMATS[form].content_type
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == render(known, form).encode()


@pytest.mark.parametrize(
    "path", ["/api/", "/api/nothing", "/api/runs/none/incidents/r-1.json", f"/api/runs/{RUN}/incidents/r-1.pdf",
             f"/api/runs/{RUN}%2Fx/incidents/r-1.json", "/api/runs/x/y/z"],
)  # fmt: skip
def test_what_is_not_there_is_a_json_404_and_never_a_page(console: Console, path: str) -> None:
    answer = console.get(path)
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_a_path_that_climbs_is_refused(console: Console) -> None:
    answer = console.get(f"/api/runs/{RUN}%2F..%2F..%2Fetc/incidents/passwd.json")
    assert answer.status_code in (400, 404)
    assert "<title>" not in answer.text


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/events"), ("POST", "/api/runs"), ("DELETE", "/api/runs")])
def test_a_wrong_method_is_a_json_405(console: Console, method: str, path: str) -> None:
    answer = console.request(method, path)
    assert answer.status_code == 405
    assert "use" in answer.json()["error"]


def test_a_posted_event_is_in_the_next_answer(console: Console) -> None:
    posted = History(run="posted-run").start()
    body = json.dumps([event.to_dict() for event in posted.events])
    answer = console.request("POST", "/api/events", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    assert "posted-run" in [run["run"] for run in console.get("/api/runs").json()["runs"]]


def test_a_page_of_another_site_cannot_post(console: Console) -> None:
    answer = console.request("POST", "/api/events", content="[]", headers={"content-type": "text/plain"})
    assert answer.status_code == 415


def test_a_body_that_is_too_large_is_refused_before_it_is_held(console: Console) -> None:
    answer = console.request(
        "POST", "/api/events", content=b" " * (5 << 20), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/api/events", "/api/alerts"])
def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(console: Console, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    with socket.create_connection(("127.0.0.1", console.port), timeout=5) as raw:
        raw.sendall(f"{head}[".encode())
        time.sleep(0.2)  # until the route reads
    for _ in range(5):
        assert console.get("/healthz").status_code == 200
        time.sleep(0.1)
    assert "ClientDisconnect" not in console.said()


def test_a_taken_port_is_said_and_the_next_free_one_is_used(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = taken.getsockname()[1]
        with Console(tmp_path, port=wanted) as started:
            assert started.port > wanted
            assert f"port {wanted} is taken; {started.port} is the next free one" in started.said()
            assert started.get("/healthz").status_code == 200


def test_it_ends_cleanly_on_ctrl_c(tmp_path: Path) -> None:
    with Console(tmp_path) as started:
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(timeout=20) == 0
    assert "Traceback" not in started.said()


def test_opening_beyond_this_machine_without_a_token_is_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.announce("0.0.0.0", 8490, 8490, [tmp_path], None)
    assert "open to other machines without LASTGOOD_TOKEN" in capsys.readouterr().err
    server.announce("0.0.0.0", 8490, 8490, [tmp_path], "secret")
    server.announce("127.0.0.1", 8490, 8490, [tmp_path], None)
    assert capsys.readouterr().err == ""


def test_a_folder_that_does_not_exist_yet_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.announce("127.0.0.1", 8490, 8490, [tmp_path / "later"], None)
    assert "later does not exist yet; runs that appear there will be found" in capsys.readouterr().err


def test_an_object_store_gets_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert server.main(["s3://bucket/runs"]) == 2
    assert "mounted POSIX file system" in capsys.readouterr().err


def test_a_host_that_is_not_ours_gets_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert server.main([str(tmp_path), "--host", "192.0.2.1"]) == 2
    assert "cannot listen on 192.0.2.1:8490" in capsys.readouterr().err


def test_streamlit_is_told_to_call_nobody_and_to_wear_the_tokens() -> None:
    config = server.streamlit_config("127.0.0.1", 8490)
    assert config["browser.gatherUsageStats"] is False
    assert config["client.toolbarMode"] == "viewer"
    assert (config["theme.light.backgroundColor"], config["theme.dark.primaryColor"]) == ("#FCFCFB", "#DCE4E8")


def test_the_collector_is_not_called_at_every_tick_of_every_visitor() -> None:
    from streamlit import config

    name = "runner.postScriptGC"
    assert config.get_option(name) is True, "Streamlit's own choice; the name is still known"
    assert server.streamlit_config("127.0.0.1", 8490)[name] is False


def test_the_collector_leaves_the_history_alone_and_still_frees_what_comes_and_goes() -> None:
    script = """
import gc, weakref
from lastgood_console.server import keep_from_collector

class Node:
    pass

history = [[number] for number in range(100_000)]
keep_from_collector()
assert gc.get_freeze_count() > 100_000
looped = Node()
looped.self = looped
gone = weakref.ref(looped)
del looped
gc.collect()
assert gone() is None
assert len(gc.get_objects()) < 50_000
"""
    subprocess.run([sys.executable, "-c", script], check=True)
