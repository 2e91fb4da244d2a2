"""Hold the parser of webhooks: two systems, one meaning, and nothing that a sender writes can break it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app.webhooks import STARTS, alert, alertmanager, grafana

from lastgood.admission import Refusal
from lastgood.events import AlertData, event_from_line
from lastgood_console.alerts.intake import event_of
from lastgood_console.alerts.payload import Notice, read_payload, utc_time

PLACE = {"run": "llama-7b", "incident": "r-3f2a91c0", "check": "replay", "rank": "3", "node": "node-b",
         "gpu_uuid": "GPU-8c1e"}  # fmt: skip


def only(payload: dict[str, Any]) -> AlertData:
    (notice,) = read_payload(payload).notices
    return notice.data


def test_both_systems_say_the_same_in_the_same_words() -> None:
    one = alert(annotations={"summary": "Wrong sum. Resume from step 50."}, **PLACE)
    said = [read_payload(payload).notices[0] for payload in (alertmanager(one), grafana(one))]
    assert {n.run for n in said} == {"llama-7b"}
    for notice in said:
        data = notice.data
        assert (data["name"], data["status"], data["severity"]) == ("ReplayMismatch", "firing", "critical")
        assert (data["incident"], data["check"], data["rank"], data["node"]) == ("r-3f2a91c0", "replay", 3, "node-b")
        assert (data["summary"], data["resume_step"]) == ("Wrong sum. Resume from step 50.", 50)
        assert data["starts_at"] == "2026-11-29T02:03:20.500000Z"
        assert "ends_at" not in data
    assert [n.data["source"] for n in said] == ["alertmanager", "grafana"]
    assert [n.data.get("value") for n in said] == ["", "50"]


def test_a_resolved_alert_has_its_end() -> None:
    data = only(alertmanager(alert(status="resolved", ends="2026-11-29T03:10:00+01:00", **PLACE)))
    assert (data["status"], data["ends_at"]) == ("resolved", "2026-11-29T02:10:00.000000Z")


@pytest.mark.parametrize("reason", ["MissingSeries", "NoData", "Paused", "RuleDeleted", "Updated", "Error"])
def test_an_alert_that_went_away_unmeasured_is_lost_and_not_recovered(reason: str) -> None:
    one = alert(status="resolved", ends=STARTS, annotations={"grafana_state_reason": reason}, **PLACE)
    data = only(grafana(one))
    assert (data["status"], data["reason"]) == ("lost", reason)


@pytest.mark.parametrize(
    ("name", "status"), [("DatasourceNoData", "no_data"), ("DatasourceError", "error"), ("ReplayMismatch", "firing")]
)
def test_a_rule_that_cannot_be_evaluated_is_told_from_one_that_fires(name: str, status: str) -> None:
    one = alert(name, rulename="ChecksStale", datasource_uid="x", ref_id="A") | {"values": None}
    (notice,) = read_payload(grafana(one)).notices
    assert (notice.run, notice.data["status"], notice.data["rule"]) == (None, status, "ChecksStale")
    assert {"node", "rank"}.isdisjoint(notice.data)


def test_what_was_left_out_of_a_group_is_an_entry_of_its_own() -> None:
    payload = alertmanager(
        alert(**PLACE), alert(fingerprint="b", starts="2026-11-29T02:09:00Z", **PLACE),
        truncatedAlerts=7, commonLabels={"run": "llama-7b", "severity": "critical", "incident": "r-3f2a91c0"},
    )  # fmt: skip
    left_out = read_payload(payload).notices[-1]
    assert (left_out.run, left_out.data["status"], left_out.data["truncated"]) == ("llama-7b", "truncated", 7)
    assert left_out.data["starts_at"] == "2026-11-29T02:09:00.000000Z"
    assert left_out.data["summary"] == "7 more alerts of its group were not sent"


@pytest.mark.parametrize("run", ["", "../../etc", "Llama", "a b", "unknown", "x" * 65])
def test_a_label_that_names_no_run_of_ours_is_no_run(run: str) -> None:
    (notice,) = read_payload(alertmanager(alert(run=run))).notices
    assert notice.run is None


def test_what_is_not_known_is_not_claimed() -> None:
    data = only(alertmanager(alert(rank="-1", node="unknown", gpu_uuid="", incident="", annotations={})))
    assert {"rank", "node", "gpu_uuid", "incident", "resume_step", "ends_at"}.isdisjoint(data)
    assert data["summary"] == ""
    assert "node" not in only(alertmanager(alert(node="several")))


def test_an_alert_without_a_fingerprint_is_known_by_its_labels() -> None:
    first, again, other = (
        only(alertmanager({**alert(run=run), "fingerprint": None}))["fingerprint"] for run in ("a", "a", "b")
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("payload", "status", "reason"),
    [
        ([], 400, "not a webhook payload"),
        ({}, 400, "not a webhook payload"),
        (alertmanager(alerts={}), 400, "not a webhook payload"),
        (alertmanager(alert(), version="3"), 400, "version '3'"),
        ({"alerts": []}, 400, "version 'None'"),
        (alertmanager(alerts=[{}] * 20_001), 413, "20001 alerts"),
    ],
)
def test_what_is_no_payload_is_refused_with_the_reason(payload: Any, status: int, reason: str) -> None:
    with pytest.raises(Refusal, match=reason) as refused:
        read_payload(payload)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (3, "not an alert"),
        ({"status": "firing"}, "not an alert"),
        (alert(status="pending"), "neither firing nor resolved"),
        (alert(starts="yesterday"), "not a time with its zone"),
        (alert(starts="2026-11-29T02:03:20"), "not a time with its zone"),
        (alert(starts=""), "not a time"),
    ],
)
def test_one_broken_alert_does_not_cost_the_good_ones(broken: Any, reason: str) -> None:
    read = read_payload(alertmanager(broken, alert(**PLACE)))
    assert len(read.notices) == 1
    assert read.rejected[0]["index"] == 0
    assert reason in read.rejected[0]["reason"]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-29T02:03:20Z", "2026-11-29T02:03:20.000000Z"),
        ("2026-11-29T02:03:20.123456789Z", "2026-11-29T02:03:20.123456Z"),
        ("2026-11-29T04:03:20.5+02:00", "2026-11-29T02:03:20.500000Z"),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-12:00", None),
        (5, None),
    ],
)
def test_a_moment_is_always_the_same_text(text: Any, time: str | None) -> None:
    assert utc_time(text) == time


def test_a_text_is_one_line_of_bounded_length() -> None:
    data = only(alertmanager(alert(annotations={"summary": "a\n\x1b[31mb" + "c" * 5000}, node="x" * 300)))
    assert len(data["summary"]) == 1024
    assert data["summary"].startswith("a [31mbc")
    assert "node" not in data


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["status", "labels", "annotations", "startsAt", "endsAt", "fingerprint", "values", "generatorURL"]
)
LABELS = st.dictionaries(
    st.sampled_from(["run", "rank", "node", "incident", "alertname", "rulename", "x"]), st.text(max_size=20) | JSON
)


@given(st.dictionaries(KEYS, JSON), LABELS, st.none() | JSON)
def test_whatever_is_sent_becomes_an_event_that_can_be_read_or_a_reason(
    changes: dict[str, Any], labels: dict[str, Any], truncated: Any
) -> None:
    one = json.loads(json.dumps({**alert(), "labels": labels, **changes}))
    read = read_payload(grafana(one, truncatedAlerts=truncated, commonLabels=labels))
    assert len(read.notices) + len(read.rejected) >= 1
    for notice in read.notices:
        event = event_of(notice, None, 1.0)
        assert event_from_line(event.to_line()) == event


def test_a_notice_without_a_run_belongs_to_the_fleet() -> None:
    (notice,) = read_payload(alertmanager(alert("LedgerStale"))).notices
    assert event_of(Notice(None, notice.data), None, 1.0).run == "_fleet"
