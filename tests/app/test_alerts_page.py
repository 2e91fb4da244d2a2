"""Hold the page of alerts: what stands first, what is over after it, bursts in one row, and the address as filter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.app import console_states
from tests.app.fixtures import states
from tests.app.pages import NOW, markup, open_page, shown
from tests.app.test_alerts_shown import BEAT, fleet, stray

from lastgood.events import Event, utc
from lastgood.state import RunState
from lastgood.step_clock import StepClock
from lastgood_console.components.alert_facts import Alerts, fleet_alarms
from lastgood_console.components.alert_rows import BURST_FROM, bursts, headline, how_long, listed, state_of, step_about
from lastgood_console.components.alerts_page import receiver_lines
from lastgood_console.components.triage import headline as overview_headline
from lastgood_console.components.triage import rows


def many(count: int, apart: float = 0.1, **changes: Any) -> list[Event]:
    """Return silent ranks, one after the other."""
    made = []
    for n in range(count):
        told = {"starts_at": utc(NOW - 60 - n * apart), "rank": n, "summary": f"Rank {n} is silent."}
        alert = stray("RankSilent", f"r{n}", severity="warning", **{**told, **changes})
        made.append(replace(alert, node=f"node-{n:04}"))
    return made


def of_run(state: RunState, *alerts: Event) -> RunState:
    return replace(state, annotations=tuple(replace(a, run=state.run) for a in alerts))


# --- decisions -------------------------------------------------------------------------------------------------------


def test_a_thousand_alike_are_one_row_until_their_rule_is_asked_for() -> None:
    rows_ = bursts(many(1000))
    assert [len(row.events) for row in rows_] == [1000]
    assert rows_[0].began == utc(NOW - 60 - 99.9)
    assert len(bursts(many(1000), apart=True)) == 1000


def test_few_alike_or_far_apart_or_in_another_state_stay_by_themselves() -> None:
    assert len(bursts(many(BURST_FROM - 1))) == BURST_FROM - 1
    assert len(bursts(many(BURST_FROM, apart=301.0))) == BURST_FROM
    ended = many(BURST_FROM, status="resolved", ends_at=utc(NOW - 1))
    assert [row.state for row in bursts([*many(BURST_FROM), *ended])] == ["firing", "resolved"]


def test_a_burst_stands_where_its_newest_alert_would() -> None:
    first = stray("LedgerStale", "a")
    assert [row.newest.data["name"] for row in bursts([first, *many(20)])] == ["LedgerStale", "RankSilent"]


def test_what_is_lost_is_listed_with_what_is_over() -> None:
    lost = stray("StepStalled", "a", status="lost", ends_at=utc(NOW - 5))
    over = stray("X", "b", status="resolved", ends_at=utc(NOW - 50))
    found = listed(Alerts((stray("Y", "c"), lost), (over,)))
    assert [e.data["name"] for e in found.standing] == ["Y"]
    assert [e.data["name"] for e in found.over] == ["StepStalled", "X"]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "firing"), ({"status": "lost"}, "lost"), ({"status": "no_data"}, "no data"),
        ({"status": "error"}, "broken rule"), ({"status": "truncated"}, "not sent"),
        ({"status": "truncated", "reason": "older"}, "kept no longer"),
        ({"ends_at": utc(NOW)}, "resolved"),
    ],
)  # fmt: skip
def test_the_state_of_an_alert(changes: dict[str, str], state: str) -> None:
    assert state_of(stray("X", "a", **changes)) == state


def test_how_long_an_alert_fired_ends_with_it() -> None:
    (standing,) = bursts([stray("X", "a")])
    (over,) = bursts([stray("X", "a", status="resolved", ends_at=utc(NOW - 25))])
    assert how_long(standing, utc(NOW)) == "1 min"
    assert how_long(over, utc(NOW)) == "35 s"


def test_an_alert_is_about_the_step_of_its_finding_else_about_where_the_run_was() -> None:
    state = states.gradient()
    named = next(e for e in state.annotations if e.type == "alert")
    assert step_about(named, state, StepClock) == 100
    loose = replace(named, data={k: v for k, v in named.data.items() if k != "incident"})
    assert step_about(replace(loose, data={**loose.data, "starts_at": states.at(1)}), state, StepClock) is not None
    assert step_about(named, None, StepClock) is None


def test_the_headline_counts_what_stands() -> None:
    assert headline(listed(Alerts())) == "No alert stands."
    assert headline(listed(Alerts((stray("X", "a"),)))) == "One critical alert stands."
    assert headline(listed(Alerts(tuple(many(3))))) == "3 alerts stand, none critical."


def test_a_critical_alert_of_no_run_stands_in_the_headline_of_the_overview() -> None:
    stale, low = stray("LedgerStale", "a"), stray("GoodputLow", "b", severity="warning")
    alarms = fleet_alarms([stale, low], {"quiet"})
    assert alarms == (stale,)
    assert fleet_alarms([replace(stale, run="quiet")], {"quiet"}) == ()
    found = rows([console_states.clean()])
    assert overview_headline(found, alarms) == "A critical alert stands outside these runs: LedgerStale."
    assert overview_headline((), alarms) == "No runs. A critical alert stands: LedgerStale."
    waiting = rows([console_states.gradient(recovered=False)])
    said = "One run needs a decision. A critical alert stands outside these runs: LedgerStale."
    assert overview_headline(waiting, alarms) == said


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_stands_first_with_links(tmp_path: Path) -> None:
    state = states.gradient()
    found = fleet(tmp_path, stray("LedgerStale", "a", summary="Stale.", rank=None), beat=BEAT)
    firing = next(e for e in state.annotations if e.type == "alert" and e.data["status"] == "firing")
    old = stray("GoodputLow", "o", status="resolved", ends_at=utc(NOW - 20), severity="warning", summary="Low.")
    firing = replace(firing, node="node-b")
    app = open_page(of_run(state, firing, old), fleet=found, page="alerts")
    said = shown(app)
    assert said.startswith("2 critical alerts stand. ReplayMismatch of demo and LedgerStale of no run.")
    assert "alert path alive, last heartbeat 40 s ago" in said
    assert "LedgerStale critical firing 02:57:02 1 min no run – – – Stale." in said
    assert "demo r-3f2a91c0 node-b 3 100 Rank 3 (node-b) computed a wrong gradient. Resume from step 50." in said
    assert said.index("ReplayMismatch critical") < said.index("Resolved or lost 1") < said.index("GoodputLow warning")
    drawn = markup(app)
    for link in (
        "runbook?name=LedgerStale",
        "incident?run=demo&amp;incident=r-3f2a91c0",
        "nodes?node=node-b",
        ".?run=demo",
    ):
        assert f'href="{link}"' in drawn


def test_the_address_cuts_the_list_down(tmp_path: Path) -> None:
    low = stray("GoodputLow", "b", severity="warning", summary="Low.")
    found = fleet(tmp_path, stray("LedgerStale", "a", summary="Stale."), low)
    state = of_run(console_states.clean(), stray("StepStalled", "c", summary="Stalled."))

    def listed_at(**address: Any) -> set[str]:
        said = shown(open_page(state, fleet=found, page="alerts", **address)).partition("Standing")[2]
        return {name for name in ("GoodputLow", "LedgerStale", "StepStalled") if f"{name} " in said}

    assert listed_at() == {"GoodputLow", "LedgerStale", "StepStalled"}
    assert listed_at(severity="critical") == {"LedgerStale", "StepStalled"}
    assert listed_at(run="quiet") == {"StepStalled"}
    assert listed_at(run="(no run)") == {"GoodputLow", "LedgerStale"}
    assert listed_at(rule="LedgerStale") == {"LedgerStale"}
    assert listed_at(run="(no run)", severity="warning") == {"GoodputLow"}
    assert listed_at(severity="nonsense") == {"GoodputLow", "LedgerStale", "StepStalled"}
    assert listed_at(run="nothing") == set()
    unknown = "No run here is called <b>nothing</b>, and no alert of the last 7 days names it."
    assert unknown in shown(open_page(state, fleet=found, page="alerts", run="<b>nothing</b>"))
    assert "No run here" not in shown(open_page(state, fleet=found, page="alerts", run="quiet"))


def test_a_burst_is_one_row_with_a_way_to_all_of_it(tmp_path: Path) -> None:
    app = open_page(console_states.clean(), fleet=fleet(tmp_path, *many(600)), page="alerts")
    said = shown(app)
    assert "Standing 600 in 1 rows" in said
    assert "RankSilent all 600 warning firing" in said
    assert "600 nodes 600 ranks" in said
    assert 'href="alerts?rule=RankSilent"' in markup(app)
    every = open_page(console_states.clean(), fleet=fleet(tmp_path / "b", *many(600)), page="alerts", rule="RankSilent")
    (table,) = every.dataframe
    assert len(table.value) == 600
    assert list(table.value["Rank"][:3]) == [0, 1, 2]


def test_without_any_alert_it_says_how_they_get_here(tmp_path: Path) -> None:
    said = shown(open_page(console_states.clean(), fleet=fleet(tmp_path), page="alerts"))
    assert said.startswith("No alert stands.")
    assert "no heartbeat: no Watchdog has arrived yet" in said
    assert "let Alertmanager send everything to this console" in said
    assert "send_resolved: true" in said


def test_the_receiver_is_the_one_that_lastgood_configures() -> None:
    lines = receiver_lines("https://console.example")
    assert lines.startswith("receivers:\n- name: lastgood-console")
    assert "url: 'https://console.example/api/alerts'" in lines


def test_hostile_words_do_not_become_markup(tmp_path: Path) -> None:
    bad = '"><script>alert(1)</script>'
    found = fleet(tmp_path, *[stray(bad, f"a{n}", summary=bad, severity=bad, node=bad) for n in range(20)])
    assert "<script>" not in markup(open_page(console_states.clean(), fleet=found, page="alerts", rule=""))
    assert "<script>" not in markup(open_page(console_states.clean(), fleet=found, page="alerts", rule=bad))
