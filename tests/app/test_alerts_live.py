"""Post alerts to a real console: what it answers, and that what it accepted survives whatever kills it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.app.console_server import RUN, Console, run_directory
from tests.app.webhooks import alert, alertmanager, body, grafana

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    with Console(runs) as started:
        yield started


def post(console: Console, payload: Any) -> httpx.Response:
    return console.request("POST", "/api/alerts", content=body(payload), headers=JSON)


def incident(console: Console) -> dict[str, Any]:
    (listed,) = [run for run in console.get("/api/runs").json()["runs"] if run["run"] == RUN]
    found: dict[str, Any] = listed["incidents"][0]
    return found


def alerts_shown(console: Console, wanted: int) -> list[dict[str, Any]]:
    """Return the alert entries of the exported timeline, as soon as there are so many."""
    address = incident(console)["exports"]["json"]
    end = time.monotonic() + 20
    while True:
        timeline = console.get(address).json()["timeline"]
        found = [entry for entry in timeline if entry["kind"] == "alert"]
        if len(found) >= wanted or time.monotonic() > end:
            return found
        time.sleep(0.2)


def test_an_alert_is_in_the_timeline_within_a_refresh_with_both_clocks(console: Console) -> None:
    one = alert(run=RUN, incident=incident(console)["id"], check="replay", rank="3", node="node-b")
    answer = post(console, alertmanager(one))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    (entry,) = alerts_shown(console, 1)
    assert (entry["at"], entry["step"], entry["who"]) == ("2026-11-29T02:03:20.500000Z", 100, "Alertmanager")
    assert entry["known_at"] > entry["at"]


def test_a_get_is_a_405_and_what_is_no_payload_a_400(console: Console) -> None:
    wrong = console.get("/api/alerts")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert post(console, {"alerts": []}).status_code == 400
    assert console.request("POST", "/api/alerts", content=b"{", headers=JSON).status_code == 400
    deep = console.request("POST", "/api/alerts", content=b"[" * 100_000, headers=JSON)
    assert (deep.status_code, "not JSON" in deep.json()["error"]) == (400, True)


def test_a_body_that_is_too_large_is_refused_before_it_is_held(console: Console) -> None:
    answer = console.request("POST", "/api/alerts", content=b" " * ((16 << 20) + 1), headers=JSON)
    assert answer.status_code == 413


def test_a_wrong_token_is_refused_also_from_here(console: Console) -> None:
    headers = JSON | {"authorization": "Bearer wrong"}
    assert console.request("POST", "/api/alerts", content=b"{}", headers=headers).status_code == 401


def test_targets_of_no_active_run_are_an_empty_list(console: Console) -> None:
    answer = console.get("/api/sd")
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, "application/json", [])


@pytest.mark.slow
def test_what_a_killed_console_accepted_is_in_the_timeline_of_the_next(tmp_path: Path) -> None:
    run_directory(tmp_path)
    with Console(tmp_path) as first:
        mine = {"run": RUN, "incident": incident(first)["id"], "check": "replay"}
        many = [alert(fingerprint=f"{n:016x}", rank=str(n), **mine) for n in range(1000)]
        common = {"run": RUN, "incident": mine["incident"]}
        assert post(first, alertmanager(*many, truncatedAlerts=7, commonLabels=common)).json()["accepted"] == 1001
        with httpx.Client(timeout=30) as client:  # and a thousand payloads
            for n in range(1000, 2000):
                content = body(grafana(alert(fingerprint=f"{n:016x}", rank=str(n), **mine)))
                answer = client.post(f"{first.address}/api/alerts", content=content, headers=JSON)
                assert answer.status_code == 200
            first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    with Console(tmp_path) as second:
        shown = alerts_shown(second, 2001)
        assert len(shown) == 2001
        left_out = [e["text"] for e in shown if "fired" not in e["text"]]
        assert left_out == ["7 more ReplayMismatch alerts were not sent"]
        assert post(second, alertmanager(*many)).json()["duplicates"] == 1000
        report = second.get(incident(second)["exports"]["html"]).text
        assert "1996 more like it" in report
        assert report.count("ReplayMismatch fired") < 20
    assert json.loads(json.dumps(shown[0]))["lane"] == "alerts"
