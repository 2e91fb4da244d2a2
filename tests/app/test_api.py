"""Hold the HTTP API through a real console: lists in parts, errors, what is hostile, tokens, prefixes, two consoles."""

from __future__ import annotations

import csv
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.console_server import RUN, Console, run_directory, story
from tests.app.webhooks import alert, alertmanager
from tests.exporter.histories import History

from lastgood_console.export.formats import FORMATS
from lastgood_console.http.operations import OPERATIONS, Operation

pytestmark = pytest.mark.slow

TOKEN = "a token of tests"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}
HOSTILE = "=cmd|<img src=x onerror=alert(1)>\r\n| [x](javascript:alert(1)) `\u202e"
NAMES = ["Robert'); DROP <img src=x>", "=1+1|x", "x%2Fy", "a..b", "caf\u00e9 \u8def"]
READS = [operation for operation in OPERATIONS if operation.method == "GET"]
WRITES = [operation for operation in OPERATIONS if operation.method == "POST"]
LISTS = {
    "/api/runs": "runs",
    f"/api/runs/{RUN}/incidents": "incidents",
    f"/api/runs/{RUN}/checkpoints": "checkpoints",
    "/api/nodes": "devices",
}


def noted() -> History:
    """Return the default story with a note that is hostile to every format."""
    made = story()
    return made.write("note", incident=made.incident().id, text=HOSTILE, author=HOSTILE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    run_directory(place, noted())
    for number, name in enumerate(NAMES):
        run_directory(place, story(f"run-{number}")).rename(place / name)
    (place / "<b>empty").joinpath("journal").mkdir(parents=True)
    return place


@pytest.fixture(scope="module")
def console(runs: Path) -> Iterator[Console]:
    with Console(runs) as started:
        yield started


@pytest.fixture(scope="module")
def guarded(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Return a second console on the same runs, with a token and below a prefix."""
    state = tmp_path_factory.mktemp("state")
    with Console(runs, state=state, options=("--base-path", "/last.good/x"), token=TOKEN) as started:
        yield started


def read(console: Console, path: str, status: int = 200) -> Any:
    """GET a path and return its JSON."""
    answer = console.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    return answer.json()


def raw(console: Console, path: str, method: str = "GET") -> tuple[int, str]:
    """Send a path as it stands, which an HTTP client would tidy up. Return status and the whole answer."""
    with socket.create_connection(("127.0.0.1", console.port), timeout=10) as line:
        line.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    return int(answer.split()[1]), answer


def filled(operation: Operation, console: Console) -> str:
    """Return the path of an operation with the names of what is there."""
    incident = read(console, f"/api/runs/{RUN}/incidents")["incidents"][0]["id"]
    return operation.path.format(run=RUN, incident=incident, format="json")


@pytest.mark.parametrize("operation", READS, ids=lambda found: found.name)
def test_every_read_is_answered_and_its_head_says_the_same_without_a_body(
    console: Console, operation: Operation
) -> None:
    path = filled(operation, console)
    whole, head = console.get(path), console.request("HEAD", path)
    assert (whole.status_code, head.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert whole.headers["content-type"].partition(";")[0] in operation.answers[200].content
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert "etag" not in whole.headers


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda found: found.name)
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "POST", "GET", "HEAD"])
def test_a_method_that_is_not_there_is_a_405_that_says_which_are(
    console: Console, operation: Operation, method: str
) -> None:
    if method == operation.method or (method == "HEAD" and operation.method == "GET"):
        return
    answer = console.request(method, filled(operation, console))
    assert answer.status_code == 405
    assert answer.headers["allow"] == {"GET": "GET, HEAD", "POST": "POST"}[operation.method]
    assert method == "HEAD" or "use" in answer.json()["error"]


@pytest.mark.parametrize(("path", "name"), LISTS.items())
def test_a_list_comes_in_parts_that_make_the_whole(console: Console, path: str, name: str) -> None:
    whole = read(console, path)
    assert (whole["limit"], whole["offset"], whole["total"]) == (100, 0, len(whole[name]))
    assert whole["total"] > 0
    parts = [read(console, f"{path}?limit=1&offset={n}") for n in range(whole["total"])]
    assert [part[name] for part in parts] == [[item] for item in whole[name]]
    assert {(part["limit"], part["total"]) for part in parts} == {(1, whole["total"])}
    beyond = read(console, f"{path}?offset={(1 << 53) - 1}")
    assert (beyond[name], beyond["total"]) == ([], whole["total"])


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=1.0", "limit=%D9%A1", "offset=-1",
              f"offset={1 << 53}", "offset=1e3", "limit=1&limit=2", "page=2", "limit=%00"],
)  # fmt: skip
def test_a_wrong_parameter_is_a_400_that_names_it(console: Console, path: str, query: str) -> None:
    assert query.partition("=")[0] in read(console, f"{path}?{query}", 400)["error"]


def test_the_bounds_of_a_limit_are_taken(console: Console) -> None:
    assert [read(console, f"/api/nodes?limit={n}")["limit"] for n in (1, 1000)] == [1, 1000]


def test_checkpoints_come_newest_first_with_the_last_good_one_marked(console: Console) -> None:
    found = read(console, f"/api/runs/{RUN}/checkpoints")
    steps = [saved["step"] for saved in found["checkpoints"]]
    assert steps == sorted(steps, reverse=True)
    assert (
        [saved["step"] for saved in found["checkpoints"] if saved["last_good"]] == [found["last_good"]["step"]] == [50]
    )


def test_devices_are_searched_by_node_and_by_gpu(console: Console) -> None:
    assert {row["node"] for row in read(console, "/api/nodes?node=node-b")["devices"]} == {"node-b"}
    assert {row["gpu_uuid"] for row in read(console, "/api/nodes?node=GPU-node-b-1")["devices"]} == {"GPU-node-b-1"}
    assert read(console, "/api/nodes?node=%3Cscript%3E")["devices"] == []
    accused = read(console, "/api/nodes?limit=1")["devices"][0]
    assert (accused["gpu_uuid"], accused["candidate"]) == ("GPU-node-b-1", 0)
    assert RUN in [incident["run"] for incident in accused["incidents"]]


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/runs/", "/api/runs/none/checkpoints", "/api/runs/none/incidents", "/api/x%00y",
             f"/api/runs/{RUN}", f"/api/runs/{RUN}/incidents/", f"/api/runs/{RUN}/incidents/none.json",
             "/api/runs/%3Cscript%3E/incidents", "/api/%F0%9F%92%A5", "/metrics/x", "/healthz/"],
)  # fmt: skip
def test_what_is_not_there_is_a_404_in_json(console: Console, path: str) -> None:
    found = read(console, path, 404)
    assert list(found) == ["error"]
    assert "<" not in found["error"]


@pytest.mark.parametrize("base", ["", "/last.good/x"])
@pytest.mark.parametrize(
    "path", [f"/api/runs/{RUN}%2F..%2F..%2Fetc/incidents/passwd.json", f"/api/runs/{RUN}/incidents/..%2F..%2Fx.json",
             f"/api/runs/{RUN}/../../../../etc/passwd", "/api/../../etc/passwd", "/api/runs/..%2F..%2F/checkpoints",
             "/api/runs/%2E%2E/checkpoints", f"/api/runs/{RUN}%2Fcheckpoints/x", "/api/runs/..%5C..%5C/checkpoints"],
)  # fmt: skip
def test_a_path_that_climbs_finds_nothing(console: Console, guarded: Console, base: str, path: str) -> None:
    for started in (guarded,) if base else (console, guarded):
        status, answer = raw(started, base + path)
        assert status == 404, answer
        assert '{"error":' in answer
        assert "root:" not in answer


def test_an_encoded_slash_is_read_as_one(console: Console) -> None:
    assert raw(console, f"/api/runs/{RUN}%2Fcheckpoints")[0] == 200


def test_a_folder_with_a_hostile_name_has_a_plain_one_here_and_links_that_work(console: Console) -> None:
    listed = {run["run"]: run for run in read(console, "/api/runs")["runs"]}
    assert {f"run-{number}" for number in range(len(NAMES))} <= set(listed)
    assert not set("".join(listed)) & set("<>'\"%|=/ ()")
    for number in range(len(NAMES)):
        for address in listed[f"run-{number}"]["incidents"][0]["exports"].values():
            assert console.get(address).status_code == 200


def test_a_run_that_wrote_its_last_long_ago_says_when_and_one_that_ended_does_not(tmp_path: Path) -> None:
    for made in (story("over"), History(run="quiet").start().save(0).audit(1, phase="first")):
        folder = run_directory(tmp_path, made)
        for file in folder.rglob("*.jsonl"):
            os.utime(file, (1_700_000_000, 1_700_000_000))
    with Console(tmp_path) as console:
        said = {run["run"]: (run["active"], run["heard_at"]) for run in read(console, "/api/runs")["runs"]}
    assert said == {"over": (False, None), "quiet": (True, "2023-11-14T22:13:20.000000Z")}


@pytest.mark.parametrize("form", FORMATS)
def test_a_hostile_note_is_only_words_in_every_format(console: Console, form: str) -> None:
    (incident,) = read(console, f"/api/runs/{RUN}/incidents")["incidents"]
    answer = console.get(incident["exports"][form])
    assert answer.headers["content-type"] == FORMATS[form].content_type
    if form == "json":
        assert HOSTILE in texts(answer.json())
        return
    assert "onerror" in answer.text
    if form == "csv":
        cells = [cell for row in csv.reader(io.StringIO(answer.text)) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
        return
    assert "<img src=x" not in answer.text
    if form == "html":
        assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


def texts(value: Any) -> list[str]:
    """Return every text in JSON data."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for part in parts for text in texts(part)]


def test_answers_are_compressed_for_who_asks_and_only_for_them(console: Console) -> None:
    packed = console.request("GET", "/api/openapi.json", headers={"accept-encoding": "gzip"})
    plain = console.request("GET", "/api/openapi.json", headers={"accept-encoding": "identity"})
    assert (packed.headers.get("content-encoding"), plain.headers.get("content-encoding")) == ("gzip", None)
    assert packed.json() == plain.json()


def test_metrics_come_in_the_format_that_is_asked_for(console: Console) -> None:
    asked = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = console.request("GET", "/metrics", headers=asked)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


BODIES: dict[str, Any] = {
    "/api/events": [event.to_dict() for event in History(run="posted").start().events],
    "/api/alerts": alertmanager(alert("RankSilent", run=RUN, severity="warning")),
}
WRONG = [{}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN},
         {"Authorization": f"Bearer {TOKEN} "[:-2]}, {"Cookie": f"token={TOKEN}"}]  # fmt: skip


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("headers", WRONG, ids=range(len(WRONG)))
def test_a_post_without_the_token_is_refused(guarded: Console, path: str, headers: dict[str, str]) -> None:
    answer = guarded.request("POST", path, json=BODIES[path], headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in answer.text + guarded.said()


@pytest.mark.parametrize("path", BODIES)
def test_a_post_with_the_token_is_taken_and_a_repeat_is_a_duplicate(guarded: Console, path: str) -> None:
    answers = [guarded.request("POST", path, json=BODIES[path], headers=SHOWN) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json()["duplicates"] for answer in answers] == [0, 1]
    assert answers[0].json()["accepted"] == 1


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b"[" * 5000, b'"x"', b"null", b"1e999"])
def test_a_body_that_is_nothing_of_ours_is_a_400(guarded: Console, path: str, body: bytes) -> None:
    headers = SHOWN | {"content-type": "application/json"}
    answer = guarded.request("POST", path, content=body, headers=headers)
    assert (answer.status_code, "error" in answer.json()) == (400, True)


def test_a_token_asks_for_nothing_from_who_reads(guarded: Console) -> None:
    assert read(guarded, "/api/runs")["total"] >= len(NAMES)


@pytest.mark.parametrize("base", ["", "/last.good/x"])
def test_with_and_without_the_prefix_the_same_is_answered(guarded: Console, base: str) -> None:
    first = read(guarded, f"{base}/api/runs/{RUN}/incidents")["incidents"][0]
    assert first["exports"]["md"] == f"/last.good/x/api/runs/{RUN}/incidents/{first['id']}.md"
    assert guarded.get(first["exports"]["md"]).status_code == 200
    assert read(guarded, f"{base}/healthz")["status"] == "ok"
    assert "lastgood_" in guarded.get(f"{base}/metrics").text
    assert read(guarded, f"{base}/api/openapi.json")["servers"] == [{"url": "/last.good/x"}]
    assert "error" in read(guarded, f"{base}/api/nothing", 404)
    assert "<title>" in guarded.get(f"{base}/").text


def test_the_prefix_alone_leads_to_its_folder(guarded: Console) -> None:
    answer = guarded.get("/last.good/x?run=a")
    assert (answer.status_code, answer.headers["location"]) == (307, "/last.good/x/?run=a")


@pytest.mark.parametrize("path", ["//api/runs", "//last.good/x/api/runs", "/last.good/xy/api/runs"])
def test_what_only_looks_like_the_prefix_is_not_the_api(guarded: Console, path: str) -> None:
    assert '"runs"' not in raw(guarded, path)[1]


def test_two_consoles_on_one_run_directory_say_the_same_of_it(console: Console, guarded: Console) -> None:
    one, other = (read(found, f"/api/runs/{RUN}/checkpoints") for found in (console, guarded))
    assert one == other
    incidents = [
        [incident["id"] for incident in read(found, f"/api/runs/{RUN}/incidents")["incidents"]]
        for found in (console, guarded)
    ]
    assert incidents[0] == incidents[1]


def test_what_one_console_is_sent_the_other_does_not_know(console: Console, guarded: Console) -> None:
    body = [event.to_dict() for event in History(run="only-here").start().events]
    assert guarded.request("POST", "/api/events", json=body, headers=SHOWN).status_code == 200
    names = [{run["run"] for run in read(found, "/api/runs")["runs"]} for found in (console, guarded)]
    assert ["only-here" in found for found in names] == [False, True]
