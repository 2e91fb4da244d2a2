"""Hold the intake of alerts: who may post, what is kept where, and that a 200 means kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.app.console_server import run_directory
from tests.app.webhooks import alert, alertmanager, body, grafana
from tests.exporter.histories import History

from lastgood.events import Event, timestamp_of
from lastgood.ledger import Ledger
from lastgood.posted import PostedEvents, read_events
from lastgood.state import RunState
from lastgood_console.alerts.fleet import FleetAlerts, Heartbeat
from lastgood_console.alerts.intake import MAX_BODY_BYTES, AlertIntake
from lastgood_console.alerts.signature import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign

NOW = timestamp_of("2026-11-29T02:03:25.000000Z")
JSON = {"Content-Type": "application/json"}
LOCAL, REMOTE = "127.0.0.1", "10.0.0.7"
RUN = "llama-7b"


class KnownRuns:
    """Know one run."""

    state = History(run=RUN).start().save(50).state()

    def run(self, name: str) -> RunState | None:
        return self.state if name == RUN else None


def intake(state_dir: Path, **settings: Any) -> AlertIntake:
    """Return an intake as it is right after a start."""
    posted = PostedEvents(state_dir)
    return AlertIntake(posted, FleetAlerts(state_dir), KnownRuns(), clock=lambda: NOW, **settings)


def post(taken: AlertIntake, payload: Mapping[str, Any]) -> dict[str, Any]:
    status, answer = taken.accept(body(payload), JSON, LOCAL)
    assert status == 200, answer
    return answer


def kept(state_dir: Path, run: str = RUN) -> list[Event]:
    return read_events(state_dir / "events" / f"{run}.jsonl")


def test_an_alert_of_a_run_is_kept_with_the_time_it_became_known_and_its_attempt(tmp_path: Path) -> None:
    answer = post(intake(tmp_path), alertmanager(alert(run=RUN, rank="3", node="node-b")))
    assert answer == {"accepted": 1, "duplicates": 0, "heartbeats": 0, "rejected": []}
    (event,) = kept(tmp_path)
    assert (event.type, event.run, event.attempt, event.rank, event.node) == ("alert", RUN, 1, 3, "node-b")
    assert (event.time, event.data["starts_at"]) == ("2026-11-29T02:03:25.000000Z", "2026-11-29T02:03:20.500000Z")


def test_a_repeat_is_the_same_event_also_after_a_restart_and_from_another_time_zone(tmp_path: Path) -> None:
    post(intake(tmp_path), alertmanager(alert(run=RUN)))
    again = intake(tmp_path)
    assert post(again, alertmanager(alert(run=RUN, starts="2026-11-29T03:03:20.5+01:00")))["duplicates"] == 1
    assert post(again, alertmanager(alert(run=RUN), alert(run=RUN)))["duplicates"] == 2
    assert len(kept(tmp_path)) == 1


def test_resolved_is_an_event_of_its_own_in_whatever_order_they_come(tmp_path: Path) -> None:
    taken = intake(tmp_path)
    post(taken, alertmanager(alert(run=RUN, status="resolved", ends="2026-11-29T02:04:00Z")))
    post(taken, alertmanager(alert(run=RUN)))
    assert [event.data["status"] for event in kept(tmp_path)] == ["resolved", "firing"]


def test_alerts_without_a_run_are_kept_for_the_fleet(tmp_path: Path) -> None:
    payload = grafana(alert("LedgerStale"), alert("DatasourceError", rulename="ChecksStale", fingerprint="b"))
    assert post(intake(tmp_path), payload)["accepted"] == 2
    assert [event.data["name"] for event in FleetAlerts(tmp_path).alerts] == ["LedgerStale", "DatasourceError"]
    assert post(intake(tmp_path), payload)["duplicates"] == 2
    assert not (tmp_path / "events").exists()


def test_an_alert_of_a_run_that_is_not_known_here_is_shown_and_kept_for_when_it_is(tmp_path: Path) -> None:
    answer = post(intake(tmp_path), alertmanager(alert(run="elsewhere")))
    assert answer["accepted"] == 1
    assert [event.run for event in FleetAlerts(tmp_path).alerts] == ["elsewhere"]
    ledger = Ledger([tmp_path / "runs"], state_dir=tmp_path)
    ledger.refresh()
    assert dict(ledger.runs()) == {}
    run_directory(tmp_path / "runs", History(run="elsewhere").start())
    ledger.refresh()
    assert [event.type for event in ledger.runs()["elsewhere"].annotations] == ["alert"]
    again = AlertIntake(PostedEvents(tmp_path), FleetAlerts(tmp_path), ledger, clock=lambda: NOW)
    assert post(again, alertmanager(alert(run="elsewhere")))["duplicates"] == 1


def test_alerts_of_runs_that_are_made_up_cost_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    many = [alert(run=f"run-{n}", fingerprint=str(n)) for n in range(500)]
    assert post(intake(tmp_path), alertmanager(*many))["accepted"] == 500
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["_fleet.jsonl"]
    assert len(synced) == 1


def test_the_name_of_the_fleet_is_no_run(tmp_path: Path) -> None:
    answer = post(intake(tmp_path), alertmanager(alert(run="_fleet")))
    assert (answer["accepted"], answer["duplicates"]) == (1, 0)
    assert post(intake(tmp_path), alertmanager(alert(run="_fleet")))["duplicates"] == 1


@pytest.mark.parametrize("run", ["first", "llama", "copy"])
def test_every_accepted_alert_is_shown_where_its_name_says_or_for_the_fleet(tmp_path: Path, run: str) -> None:
    for name in ("first", "copy"):
        run_directory(tmp_path / "runs", History(run="llama").start()).rename(tmp_path / "runs" / name)
    ledger = Ledger([tmp_path / "runs"], state_dir=tmp_path / "state")
    ledger.refresh()
    fleet = FleetAlerts(tmp_path / "state")
    post(AlertIntake(PostedEvents(tmp_path / "state"), fleet, ledger, clock=lambda: NOW), alertmanager(alert(run=run)))
    ledger.refresh()
    told = [event.run for state in ledger.runs().values() for event in state.annotations]
    assert sorted(ledger.runs()) == ["first", "llama"]
    assert told + [event.run for event in fleet.alerts] == [run]


def test_of_a_watchdog_only_the_last_arrival_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        assert post(intake(tmp_path), alertmanager(alert("Watchdog")))["heartbeats"] == 1
    fleet = FleetAlerts(tmp_path)
    assert fleet.heartbeats == (Heartbeat("alertmanager", "http://alertmanager:9093", NOW, True, every=0.0),)
    assert fleet.alerts == ()


def test_a_file_of_heartbeats_that_is_not_ours_holds_none(tmp_path: Path) -> None:
    (tmp_path / "alerts").mkdir()
    for text in ("[1]", "{", '[{"source": "x"}]'):
        (tmp_path / "alerts" / "heartbeats.json").write_text(text)
        assert FleetAlerts(tmp_path).heartbeats == ()


@pytest.mark.parametrize(
    ("token", "client", "headers", "status"),
    [
        (None, LOCAL, {}, 200),
        (None, REMOTE, {}, 401),
        ("secret", REMOTE, {}, 401),
        ("secret", LOCAL, {}, 401),
        ("secret", LOCAL, {"Authorization": "Bearer secret"}, 200),
        ("secret", REMOTE, {"Authorization": "Bearer secret"}, 200),
        ("secret", REMOTE, {"Authorization": "Bearer wrong"}, 401),
        ("secret", LOCAL, {"Authorization": "Bearer wrong"}, 401),
        (None, LOCAL, {"X-Forwarded-For": "10.0.0.7"}, 401),
        (None, LOCAL, {"Host": "evil.example:8490"}, 401),
        (None, LOCAL, {"Content-Type": "text/plain"}, 415),
        (None, LOCAL, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
    ],
)
def test_whoever_shows_the_token_may_post_and_without_one_only_this_machine(
    tmp_path: Path, token: str | None, client: str, headers: dict[str, str], status: int
) -> None:
    taken = intake(tmp_path, token=token)
    answer = taken.accept(body(alertmanager(alert(run=RUN))), JSON | headers, client)
    assert answer[0] == status
    assert len(kept(tmp_path)) == (status == 200)


PAYLOAD = body(grafana(alert(run=RUN)))


def signed(secret: str = "key", at: float = NOW, content: bytes = PAYLOAD) -> dict[str, str]:
    said = str(int(at))
    return JSON | {SIGNATURE_HEADER: sign(content, secret, said), TIMESTAMP_HEADER: said}


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        (signed(), 200, ""),
        (signed(at=NOW - 299), 200, ""),
        (signed(at=NOW - 301), 401, "signed 301 s from now"),
        (signed(at=NOW + 301), 401, "signed 301 s from now"),
        (signed("other"), 401, "the signature does not fit"),
        (signed(content=b"x"), 401, "the signature does not fit"),
        (signed() | {TIMESTAMP_HEADER: str(int(NOW) - 1)}, 401, "the signature does not fit"),
        (signed() | {TIMESTAMP_HEADER: ""}, 401, "signed without a time"),
        (signed() | {TIMESTAMP_HEADER: "1e9"}, 401, "signed without a time"),
        (signed() | {SIGNATURE_HEADER: "é"}, 401, "the signature does not fit"),
        (signed() | {"Authorization": "Bearer wrong"}, 200, ""),
    ],
)
def test_a_signature_is_as_good_as_the_token_while_it_is_recent(
    tmp_path: Path, headers: dict[str, str], status: int, reason: str
) -> None:
    got, answer = intake(tmp_path, token="t", secret="key").accept(PAYLOAD, headers, REMOTE)
    assert (got, reason in answer.get("error", "")) == (status, True)


@pytest.mark.parametrize("client", [LOCAL, REMOTE])
def test_a_console_with_a_secret_alone_takes_nothing_unsigned(tmp_path: Path, client: str) -> None:
    taken = intake(tmp_path, secret="key")
    status, answer = taken.accept(PAYLOAD, JSON, client)
    assert (status, answer["error"].partition(":")[0]) == (401, "not signed")
    assert taken.accept(PAYLOAD, JSON | {"Authorization": "Bearer key"}, client)[0] == 401
    assert taken.accept(PAYLOAD, signed(), client)[0] == 200


def test_a_console_with_token_and_secret_takes_either_of_them(tmp_path: Path) -> None:
    taken = intake(tmp_path, token="t", secret="key")
    assert taken.accept(PAYLOAD, JSON, LOCAL)[0] == 401
    assert taken.accept(PAYLOAD, JSON | {"Authorization": "Bearer t"}, REMOTE)[0] == 200


def test_a_console_without_a_secret_takes_the_token_beside_a_signature(tmp_path: Path) -> None:
    taken = intake(tmp_path, token="t")
    assert taken.accept(PAYLOAD, signed() | {"Authorization": "Bearer t"}, REMOTE)[0] == 200
    assert taken.accept(PAYLOAD, signed() | {"Authorization": "Bearer wrong"}, REMOTE)[0] == 401


def test_a_signature_without_a_secret_here_is_refused_even_from_this_machine(tmp_path: Path) -> None:
    status, answer = intake(tmp_path).accept(PAYLOAD, signed(), LOCAL)
    assert (status, "set LASTGOOD_WEBHOOK_SECRET here" in answer["error"]) == (401, True)


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (b"", 400, "not JSON"),
        (b"[" * 200_000, 400, "not JSON"),
        (b'{"version": "4", "alerts": ' + b'[{"a":' * 100_000, 400, "not JSON"),
        (b"[]", 400, "not a webhook payload"),
        (body(alertmanager({"labels": {}})), 400, "neither firing nor resolved"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "post fewer"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_reason(
    tmp_path: Path, content: bytes, status: int, reason: str
) -> None:
    got, answer = intake(tmp_path).accept(content, JSON, LOCAL)
    assert (got, reason in answer["error"]) == (status, True)
    assert list(tmp_path.iterdir()) == []


def test_an_alert_that_cannot_be_synced_is_not_accepted_and_can_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    taken = intake(tmp_path)
    for payload in (alertmanager(alert(run=RUN)), alertmanager(alert("LedgerStale")), alertmanager(alert("Watchdog"))):
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            status, answer = taken.accept(body(payload), JSON, LOCAL)
        assert (status, "No space left on device" in answer["error"]) == (503, True)
        assert sum(post(taken, payload)[what] for what in ("accepted", "heartbeats")) == 1


def test_a_burst_in_one_payload_and_in_a_thousand_is_kept_once(tmp_path: Path) -> None:
    many = [alert(run=RUN, fingerprint=f"{n:016x}", rank=str(n)) for n in range(1000)]
    taken = intake(tmp_path)
    assert post(taken, alertmanager(*many))["accepted"] == 1000
    assert sum(post(taken, alertmanager(one))["duplicates"] for one in many) == 1000
    assert len(kept(tmp_path)) == 1000
