"""What ``lastgood grafana deploy`` makes of answers that no Grafana gives: one sentence, in time, and nothing sent."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.app.fixtures import run_dirs
from tests.app.grafana_server import TOKEN, FakeGrafana, fake_grafana

from lastgood_alerts import grafana_api
from lastgood_console import cli
from lastgood_console.deadline import within
from lastgood_console.deploy import grafana as asked
from lastgood_console.deploy import shapes

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
RULES = "/v1/provisioning"
GROUP = f"{RULES}/folder/lastgood/rule-groups/{grafana_api.rule_groups()[0]['title']}"
PLACES = ("/health", "/datasources/uid/lastgood-prometheus", "/folders/lastgood", "/dashboards/uid/lastgood-run",
          f"{RULES}/alert-rules", GROUP, f"{RULES}/contact-points", f"{RULES}/policies", "/annotations")  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakeGrafana]:
    with fake_grafana() as server:
        yield server


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)


def refused(url: str, capsys: Capture, *options: str) -> str:
    """Deploy, and return the one sentence that says why it cannot be."""
    assert cli.main(["grafana", "deploy", "--url", url, *options]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("body", [b"7", b"null", b'"x"', b"[7]", b"[null]", b"[" * 99_999, b"1" * 5000, b"{", b"\xff",
                                  b"[" * 400 + b"]" * 400, b'{"a":' * 400 + b"1" + b"}" * 400],
                         ids=lambda body: str(body[:10]))  # fmt: skip
@pytest.mark.parametrize("place", PLACES)
def test_an_answer_that_is_of_no_use_is_said_and_nothing_is_sent(
    place: str, body: bytes, fake: FakeGrafana, tmp_path: Path, capsys: Capture
) -> None:
    run_dirs.written(run_dirs.gradient(), tmp_path / "llama-7b")
    fake.fail["GET", place] = (200, body, "application/json")
    assert "as a Grafana" in refused(fake.url, capsys, "--annotations", str(tmp_path))
    assert fake.writes == []


@pytest.mark.parametrize(
    ("place", "content", "problem"),
    [
        ("/datasources/uid/lastgood-prometheus", {}, "type is missing"),
        ("/datasources/uid/lastgood-prometheus", {"type": ["prometheus"]}, "type is a list, not a text"),
        ("/folders/lastgood", {"a": 1}, "uid is missing"),
        ("/dashboards/uid/lastgood-run", {}, "dashboard is missing"),
        ("/dashboards/uid/lastgood-run", {"dashboard": 5}, "dashboard is a whole number, not an object"),
        ("/dashboards/uid/lastgood-run", {"dashboard": None}, "dashboard is nothing, not an object"),
        ("/dashboards/uid/lastgood-run", {"dashboard": {}, "meta": []}, "meta is a list, not an object"),
        ("/dashboards/uid/lastgood-run", {"dashboard": {"version": "1"}}, "dashboard.version is a text, not a whole"),
        (f"{RULES}/alert-rules", [{"uid": "a"}, {}], "it[1].uid is missing"),
        (f"{RULES}/alert-rules", [{"uid": ["x"]}], "it[0].uid is a list, not a text"),
        (GROUP, {"rules": 5}, "interval is missing"),
        (GROUP, {"interval": 1e400}, "interval is a number, not a whole number"),
        (f"{RULES}/contact-points", [{"name": "x", "settings": "x"}], "it[0].settings is a text, not an object"),
        (f"{RULES}/policies", {"a": 1}, "receiver is missing"),
        (f"{RULES}/policies", {"receiver": "a", "routes": "x"}, "routes is a text, not a list"),
        (f"{RULES}/policies", {"receiver": "a", "routes": [{}, None]}, "routes[1] is nothing, not an object"),
        (f"{RULES}/policies", {"receiver": "a", "routes": [{"object_matchers": [5]}]}, "object_matchers[0] is a whole"),
        ("/annotations", [{"id": "x", "time": 1}], "it[0].id is a text, not a whole number"),
        ("/annotations", [{"id": 1, "time": 1, "tags": [5]}], "it[0].tags[0] is a whole number, not a text"),
        ("/annotations", [{"id": True, "time": 1}], "it[0].id is true or false, not a whole number"),
    ],
)
def test_a_part_of_an_answer_that_is_none_of_grafana_s_is_named(
    place: str, content: Any, problem: str, fake: FakeGrafana, tmp_path: Path, capsys: Capture
) -> None:
    run_dirs.written(run_dirs.gradient(), tmp_path / "llama-7b")
    fake.fail["GET", place] = (200, json.dumps(content).encode(), "application/json")
    err = refused(fake.url, capsys, "--annotations", str(tmp_path))
    assert "cannot read " in err
    assert problem in err
    assert fake.writes == []


def test_what_go_leaves_out_or_writes_as_null_is_fine() -> None:
    assert shapes.oddness({"receiver": "a", "routes": None}, shapes.POLICY) == ""
    assert (
        shapes.oddness({"receiver": "a", "routes": [{"receiver": "b", "object_matchers": None}]}, shapes.POLICY) == ""
    )
    assert shapes.oddness([{"id": 1, "time": 2, "tags": None, "more": {"a": [1.5]}}], shapes.ANNOTATIONS) == ""


KEYS = [
    "uid", "dashboard", "meta", "routes", "receiver", "id", "time", "tags", "type", "name", "settings", "version",
    "interval", "object_matchers",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
)


@settings(max_examples=200, deadline=None)
@given(
    JSON, st.sampled_from([shapes.POLICY, shapes.DASHBOARD, shapes.RULES, shapes.CONTACT_POINTS, shapes.ANNOTATIONS])
)
def test_any_json_is_judged(answer: Any, shape: Any) -> None:
    problem = shapes.oddness(answer, shape)
    assert isinstance(answer, type(shape)) or problem


@contextmanager
def answering(*pieces: bytes, pause_seconds: float = 0.0) -> Iterator[str]:
    """Answer whatever is asked with these bytes, one piece after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client, suppress(OSError):
                        client.recv(65_536)
                        for piece in pieces:
                            client.sendall(piece)
                            time.sleep(pause_seconds)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "content",
    [b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}", b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
     b"Content-Length: 100\r\n\r\n{", b"Content-Length: abc\r\n\r\n{}"],
)  # fmt: skip
def test_an_answer_that_breaks_http_is_one_sentence(content: bytes, capsys: Capture) -> None:
    with answering(HEAD + content) as url:
        assert f"cannot read its health: {url} " in refused(url, capsys)


@pytest.mark.parametrize("head", [HEAD + b"Content-Length: 100000\r\n\r\n", HEAD + b"X-Name: "])
def test_an_answer_that_drips_has_one_bound_as_a_whole(head: bytes, capsys: Capture) -> None:
    began = time.monotonic()
    with answering(head, *[b" "] * 60, pause_seconds=0.1) as url:
        assert "within 0.5 s" in refused(url, capsys, "--timeout", "0.5")
        assert time.monotonic() - began < 3


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(asked, "MOST_BYTES", 1 << 20)
    with answering(HEAD + b"Content-Length: 9000000000\r\n\r\n", *[b" " * 100_000] * 50) as url:
        assert "it is longer than 1 MiB" in refused(url, capsys)


def test_what_takes_too_long_is_left_and_what_fails_is_raised() -> None:
    assert within(5, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    with pytest.raises(TimeoutError):
        within(0.05, lambda: time.sleep(1))
