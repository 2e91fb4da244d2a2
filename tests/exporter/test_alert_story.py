"""Alerts in an incident's timeline: which belong to it, when they fired, and what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.app.fixtures import states
from tests.exporter.histories import History

from lastgood import timeline
from lastgood.alert_story import Spans, standing
from lastgood.events import Event
from lastgood.state import RunState
from lastgood.timeline import TimelineEntry

OPEN = states.gradient(annotations=())


def told(*alerts: Event, state: RunState = OPEN) -> list[TimelineEntry]:
    """Return the alert entries of the state's incident with these alerts."""
    with_alerts = replace(state, annotations=alerts)
    return [e for e in timeline.entries(with_alerts, with_alerts.incidents[0]) if e.kind == "alert"]


def test_an_alert_stands_where_it_fired_and_says_when_it_was_known_and_which_step_it_is_about() -> None:
    (entry,) = told(states.alert(1_531, starts_at=states.at(1_529)))
    assert (entry.lane, entry.tone, entry.who, entry.in_story) == ("alerts", "critical", "Grafana", True)
    assert (entry.at, entry.known_at, entry.step) == (states.at(1_529), states.at(1_531), 100)
    assert entry.text == (
        "ReplayMismatch fired about step 100, critical: Rank 3 (node-b) computed a wrong gradient. Resume from step 50."
    )


def test_a_resolved_alert_is_an_entry_of_its_own_and_ends_the_one_that_fired() -> None:
    began = states.at(1_529)
    over = states.alert(2_804, status="resolved", starts_at=began, ends_at=states.at(2_800))
    for order in ((states.alert(1_531, starts_at=began), over), (over, states.alert(1_531, starts_at=began))):
        fired, resolved = told(*order)
        assert (fired.at, fired.until) == (began, states.at(2_800))
        assert (resolved.at, resolved.known_at, resolved.tone) == (states.at(2_800), states.at(2_804), "info")
        assert resolved.text == "ReplayMismatch resolved"


def test_two_prometheus_servers_that_saw_it_a_moment_apart_are_ended_by_one_end() -> None:
    first, second = states.alert(1_531, starts_at=states.at(1_529)), states.alert(1_532, starts_at=states.at(1_530))
    over = states.alert(2_804, status="resolved", starts_at=states.at(1_529), ends_at=states.at(2_800))
    spans = Spans([first, second, over])
    assert spans.of(first).end == spans.of(second).end == states.at(2_800)
    assert standing([first, second, over]) == []


def test_a_lost_alert_is_not_recovered_and_stands() -> None:
    lost = states.alert(1_700, status="lost", starts_at=states.at(1_529), reason="MissingSeries", incident=None)
    (entry,) = told(lost)
    assert (entry.tone, entry.text) == ("missing", "ReplayMismatch lost, not recovered: MissingSeries")
    assert standing([states.alert(1_531, starts_at=states.at(1_529)), lost]) == [lost]


def test_a_finding_s_alert_whose_series_ended_with_its_incident_ended_with_it() -> None:
    assert OPEN.incidents[0].state == "recovered"
    (entry,) = told(states.alert(2_700, status="lost", reason="MissingSeries"))
    assert entry.text == "ReplayMismatch ended with the incident"


def test_an_alert_that_nobody_ended_lasts_while_its_incident_is_open() -> None:
    unresolved = states.two_nodes()
    mine = unresolved.incidents[0]
    (entry,) = told(states.alert(1_400, incident=mine.id, starts_at=states.at(1_399)), state=unresolved)
    assert entry.until == unresolved.last_event_at > entry.at
    (ended,) = told(states.alert(1_531, starts_at=states.at(1_529)))
    assert ended.until == ended.at


@pytest.mark.parametrize(
    ("changes", "belongs"),
    [
        ({}, True),
        ({"incident": "r-0ther"}, False),
        ({"incident": None, "node": None}, True),
        ({"incident": None, "node": "node-b"}, True),
        ({"incident": None, "node": "node-b", "gpu_uuid": "cpu-0"}, False),
        ({"incident": None, "node": "node-a"}, False),
        ({"incident": None, "node": None, "starts_at": states.at(900_000)}, False),
        ({"starts_at": states.at(900_000)}, True),
    ],
)
def test_an_alert_belongs_to_the_incident_it_names_else_to_what_went_on_on_its_device(
    changes: dict[str, Any], belongs: bool
) -> None:
    assert bool(told(states.alert(1_531, **{"starts_at": states.at(1_529)} | changes))) == belongs


def test_an_alert_over_before_the_window_belongs_to_nothing() -> None:
    began = states.at(1)
    early = states.alert(2, starts_at=began, incident=None, node=None)
    over = states.alert(4, status="resolved", starts_at=began, ends_at=states.at(3), incident=None, node=None)
    assert told(early, over) == []
    assert len(told(early)) == 1


def test_an_alert_by_an_older_name_of_the_incident_belongs_to_it() -> None:
    mine = replace(OPEN.incidents[0], aliases=("r-0ld",))
    assert told(states.alert(1_531, incident="r-0ld"), state=replace(OPEN, incidents=(mine,)))


def test_an_alert_of_the_run_is_about_the_step_the_run_was_at() -> None:
    (entry,) = told(
        states.alert(800, name="StepStalled", starts_at=states.at(62.5 * states.PACE), incident=None, node=None)
    )
    assert entry.step in (61, 62)


def test_a_clock_that_is_ahead_of_ours_turns_nothing_around() -> None:
    (entry,) = told(states.alert(1_531, starts_at=states.at(1_600)))
    assert entry.at == entry.known_at == states.at(1_531)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"status": "no_data", "rule": "ChecksStale", "summary": ""}, "Rule ChecksStale has no data"),
        ({"status": "error", "rule": "ChecksStale", "reason": "502"}, "Rule ChecksStale cannot be evaluated: 502"),
        (
            {"status": "truncated", "truncated": 7, "summary": "7 more alerts of its group were not sent"},
            "7 more ReplayMismatch alerts were not sent",
        ),
    ],
)
def test_what_is_no_measurement_says_so(changes: dict[str, Any], text: str) -> None:
    (entry,) = told(states.alert(1_531, **changes))
    assert entry.text == text


def test_a_thousand_alike_are_all_entries_and_five_rows() -> None:
    many = [states.alert(1_531, starts_at=states.at(1_529), fingerprint=str(n), rank=n) for n in range(1000)]
    state = replace(OPEN, annotations=tuple(many))
    found = timeline.entries(state, state.incidents[0])
    assert len([e for e in found if e.kind == "alert"]) == 1000
    shown = [e for e in timeline.condensed(found) if e.kind == "alert"]
    assert len(shown) == 5
    assert shown[-1].text == "996 more like it: ReplayMismatch fired about step 100, critical"
    assert [e for e in timeline.condensed(found) if e.kind != "alert"] == [e for e in found if e.kind != "alert"]


def test_no_alert_of_an_incident_is_dropped_among_many_marks() -> None:
    saves = tuple(replace(OPEN.checkpoints[0], step=n, path=f"s-{n}", saved_at=states.at(n)) for n in range(1_000))
    early = states.alert(1_531, starts_at=states.at(-90_000), fingerprint="early")
    over = states.alert(900_000, status="resolved", starts_at=states.at(1_529), ends_at=None)
    entries = told(early, over, state=replace(OPEN, checkpoints=saves))
    assert [(e.at, e.known_at) for e in entries] == [
        (states.at(-90_000), states.at(1_531)),
        (states.at(900_000), states.at(900_000)),
    ]


def test_many_alerts_alike_narrow_no_picture() -> None:
    many = tuple(states.alert(1_531, starts_at=states.at(1_529), fingerprint=str(n), rank=n) for n in range(1000))
    alone, among = (timeline.entries(s, s.incidents[0]) for s in (OPEN, replace(OPEN, annotations=many)))
    assert [e for e in among if e.kind != "alert"] == list(alone)


def test_an_alert_is_no_sign_of_life_and_no_cost() -> None:
    history = History().start().save(50).find("replay", 100, [3])
    before = history.state()
    late = states.alert(10_000_000, starts_at=states.at(1))
    history.events.append(replace(late, run=history.run))
    after = history.state()
    assert after.annotations
    assert after.last_event_at == before.last_event_at
    assert after.incidents[0].cost == before.incidents[0].cost
    assert [a.last_event_at for a in after.attempts] == [a.last_event_at for a in before.attempts]
