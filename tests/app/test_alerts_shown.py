"""Hold what pages say about alerts: those that name no incident, and whether alerts still find their way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.app import console_states as console_states
from tests.app.fixtures import states
from tests.app.pages import NOW, markup, open_page, shown

from lastgood.events import Event, utc
from lastgood.state import RunState
from lastgood_console.alerts.fleet import FLEET, FleetAlerts, Heartbeat
from lastgood_console.cache import FEW_ALERTS, run_alerts
from lastgood_console.components.alert_facts import read_alerts
from lastgood_console.components.alerts import path_html, severity_mark
from lastgood_console.components.triage import RunRow, consequence, headline, rows

BEAT = Heartbeat("alertmanager", "http://alertmanager:9093", NOW - 40, True)


def stray(name: str, fingerprint: str, **changes: Any) -> Event:
    """Return an alert that began a minute before the page is opened and names no incident."""
    began = utc(NOW - 60)
    told: dict[str, Any] = {
        "starts_at": began,
        "incident": None,
        "node": None,
        "name": name,
        "fingerprint": fingerprint,
        **changes,
    }
    made = states.alert(0, **told)
    return replace(made, run=FLEET, attempt=0, time=began)


def fleet(place: Path, *alerts: Event, beat: Heartbeat | None = None) -> FleetAlerts:
    made = FleetAlerts(place)
    made.keep(alerts)
    if beat:
        made.beat(beat)
    return made


def test_the_overview_shows_what_no_incident_is_named_by_critical_first(tmp_path: Path) -> None:
    found = fleet(
        tmp_path, stray("GoodputLow", "a", severity="warning", summary="Low."),
        stray("LedgerStale", "b", summary="Stale."), beat=BEAT,
    )  # fmt: skip
    said = shown(open_page(console_states.clean(), fleet=found))
    assert "alert path alive, last heartbeat 40 s ago, from Alertmanager" in said
    assert said.index("LedgerStale critical") < said.index("GoodputLow warning")


def test_alerts_that_made_room_for_newer_ones_are_not_said_to_be_not_sent(tmp_path: Path) -> None:
    older = stray(
        "X", "a", status="truncated", reason="older", truncated=5, summary="5 older alerts are kept no longer"
    )
    said = shown(open_page(console_states.clean(), fleet=fleet(tmp_path, older)))
    assert "5 older alerts are kept no longer" in said
    assert "Not sent" not in said


def test_nothing_is_said_where_nothing_sends_alerts(tmp_path: Path) -> None:
    assert "Alerts" not in shown(open_page(console_states.clean(), fleet=fleet(tmp_path)))


def test_an_alert_path_without_a_heartbeat_says_so(tmp_path: Path) -> None:
    said = shown(open_page(console_states.clean(), fleet=fleet(tmp_path, stray("X", "a"))))
    assert "no heartbeat: no Watchdog has arrived yet" in said


@pytest.mark.parametrize(
    ("beat", "words"),
    [
        (replace(BEAT, at=NOW - 1000, every=300.0), "alert path silent, last heartbeat 16 min ago, from Alertmanager"),
        (replace(BEAT, at=NOW - 6 * 3600), "alert path silent, last heartbeat 6 h ago, from Alertmanager"),
        (replace(BEAT, firing=False), "the Watchdog has stopped firing, last heartbeat 40 s ago, from Alertmanager"),
    ],
)
def test_an_alert_path_that_died_is_a_warning(beat: Heartbeat, words: str) -> None:
    assert words in path_html([beat], NOW)
    assert "lg-stale" in path_html([beat], NOW)


def outside(found: dict[str, RunState], strays: list[Event], since: str = "") -> list[Event]:
    return list(read_alerts(found, strays, since).outside(found).standing)


def test_what_is_over_or_named_or_long_ago_does_not_stand() -> None:
    state = states.gradient()
    assert outside({state.run: state}, []) == []
    fired = stray("X", "a")
    over = stray("X", "a", status="resolved", ends_at=utc(NOW - 30))
    assert outside({}, [fired, over]) == []
    assert outside({}, [fired], since=utc(NOW)) == []
    assert outside({}, [fired], since=utc(NOW - 100)) == [fired]


def test_a_stray_alert_of_a_run_that_became_known_is_told_by_the_run() -> None:
    state = states.gradient(annotations=())
    assert outside({state.run: state}, [replace(stray("X", "a"), run=state.run)]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "lost", "reason": "MissingSeries"}, "Lost, not recovered: MissingSeries"),
        ({"status": "no_data", "rule": "ChecksStale"}, "The rule has no data"),
        ({"status": "error", "rule": "ChecksStale", "reason": "502"}, "The rule cannot be evaluated: 502"),
    ],
)
def test_what_is_no_measurement_says_so(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    found = fleet(tmp_path, stray("DatasourceError", "a", **changes))
    assert words in shown(open_page(console_states.clean(), fleet=found))


def test_what_an_alert_says_never_becomes_markup(tmp_path: Path) -> None:
    bad = '"><script>alert(1)</script>'
    found = fleet(tmp_path, stray(bad, "a", summary=bad, severity=bad))
    assert "<script>" not in markup(open_page(console_states.clean(), fleet=found))
    assert "<script>" not in severity_mark(bad)


def test_the_incident_tells_its_alert_with_both_clocks_and_the_date_of_a_later_day() -> None:
    late = states.alert(100_000, starts_at=states.at(1_529))
    said = shown(open_page(states.gradient(annotations=(late,)), page="incident"))
    assert "02:57:29 30 Nov 06:18:40 ReplayMismatch fired about step 100, critical: Rank 3 (node-b)" in said


def test_without_any_run_the_alerts_are_shown_all_the_same(tmp_path: Path) -> None:
    said = shown(open_page(fleet=fleet(tmp_path, stray("LedgerStale", "a", summary="Stale."))))
    assert said.startswith("No runs.")
    assert "LedgerStale critical" in said


def test_the_link_of_an_alert_about_a_run_shows_that_run_alone(tmp_path: Path) -> None:
    both = console_states.clean(), console_states.late()
    app = open_page(*both, fleet=fleet(tmp_path, stray("LedgerStale", "a")), run="quiet")
    said = shown(app)
    assert said.startswith("1 run, no open incident.")
    assert "Only run quiet is shown." in said
    assert "vit-h-ablation" not in said
    assert "LedgerStale" not in said
    (button,) = [b for b in app.button if b.label == "Show all runs"]
    assert "vit-h-ablation" in shown(button.click().run())


def test_an_address_with_a_run_that_is_not_known_says_so(tmp_path: Path) -> None:
    said = shown(open_page(console_states.clean(), run="<b>x</b>"))
    assert "No run is called '<b>x</b>'; all are shown." in said
    assert "quiet" in said


def test_the_alerts_of_a_run_are_sorted_out_once_until_it_has_news() -> None:
    many = quiet(*(fired("RankSilent", f"{n}") for n in range(FEW_ALERTS + 1)))
    assert run_alerts(many) is run_alerts(replace(many))
    news = replace(many, annotations=(*many.annotations, fired("StepStalled", "s")), events_digest="news")
    assert len(run_alerts(news).standing) == len(run_alerts(many).standing) + 1


def test_runs_and_strays_stand_in_one_order() -> None:
    """Critical first, then the newest; whatever is over by its end."""
    one = quiet(fired("A", "a", starts_at=utc(NOW - 90)), fired("B", "b", severity="warning"))
    two = replace(one, run="other", annotations=(replace(fired("C", "c", starts_at=utc(NOW - 80)), run="other"),))
    found = read_alerts({s.run: s for s in (one, two)}, [stray("D", "d"), stray("E", "e", severity="warning")])
    assert [event.data["name"] for event in found.standing] == ["D", "C", "A", "E", "B"]
    ends = [("a", NOW - 30), ("b", NOW - 10), ("c", NOW - 20)]
    over = [fired("X", mark, status="resolved", ends_at=utc(end)) for mark, end in ends]
    states = {"quiet": quiet(*over[:2]), "other": replace(quiet(replace(over[2], run="other")), run="other")}
    assert [event.data["fingerprint"] for event in read_alerts(states, []).over] == ["b", "c", "a"]


def fired(name: str, fingerprint: str = "a", **changes: Any) -> Event:
    """Return an alert of the run "quiet" that began three minutes ago and names no incident."""
    began = utc(NOW - 180)
    told: dict[str, Any] = {
        "starts_at": began,
        "incident": None,
        "node": None,
        "name": name,
        "fingerprint": fingerprint,
        **changes,
    }
    return replace(states.alert(0, **told), run="quiet", time=began, node=changes.get("node"))


def quiet(*alerts: Event, ended: bool = False) -> RunState:
    return replace(console_states.clean(ended=ended), annotations=alerts)


WARNING = fired("UncorrectedEcc", "b", severity="warning", node="node-b", summary="Memory errors on node-b.")
RESOLVED = {"status": "resolved", "ends_at": utc(NOW - 60)}


def decided(*alerts: Event, silent: float = 0.0, state: RunState | None = None) -> RunRow:
    known = state or quiet(*alerts)
    found = read_alerts({known.run: known}, []).outside({known.run: known})
    (row,) = rows([known], silent_seconds={"quiet": silent}, alerts=found.standing, now=utc(NOW))
    return row


def test_a_critical_alert_of_a_run_decides_its_row_and_the_headline() -> None:
    row = decided(WARNING, fired("StepStalled"))
    assert (row.symbol, row.words) == ("critical", "StepStalled for 3 min and 1 more alert")
    assert headline([row]) == "A critical alert stands in one run."
    assert consequence([row]) == "quiet: StepStalled for 3 min and 1 more alert."
    assert decided(fired("StepStalled"), silent=90.0).words == "StepStalled for 3 min; silent for 90 s"


def test_a_warning_is_said_below_what_is_critical() -> None:
    row = decided(WARNING)
    assert (row.symbol, row.words) == ("warning", "UncorrectedEcc for 3 min")
    assert headline([row]) == "1 run, no open incident."
    assert decided(fired("GoodputLow", severity="info")).words == "healthy"


def test_a_lost_alert_decides_until_the_next_attempt_starts() -> None:
    lost = fired("StepStalled", status="lost", reason="MissingSeries")
    assert decided(lost).words == "StepStalled lost, not recovered"
    restarted = quiet(lost)
    again = replace(restarted.attempts[0], number=2, started_at=utc(NOW - 10))
    assert decided(state=replace(restarted, attempts=(*restarted.attempts, again))).words == "healthy"


def test_a_stall_that_resolved_because_its_ranks_vanished_leaves_no_healthy_run() -> None:
    both = fired("StepStalled"), fired("StepStalled", **RESOLVED)
    assert decided(*both, silent=90.0).words == "silent for 90 s"
    assert decided(*both, silent=10.0).words == "healthy"


def test_a_run_that_completed_has_left_its_alerts_behind() -> None:
    before = fired("StepStalled", starts_at=console_states.at(100))
    assert decided(state=quiet(before, ended=True)).words == "completed"
    after = fired("RunVanished")
    assert decided(state=quiet(after, ended=True)).words == "RunVanished for 3 min"


def test_a_run_with_an_open_incident_says_its_critical_alert_too() -> None:
    base = console_states.gradient(recovered=False)
    state = replace(base, annotations=(replace(fired("StepStalled"), run=base.run),))
    found = read_alerts({state.run: state}, []).outside({state.run: state})
    (row,) = rows([state], alerts=found.standing, now=utc(NOW))
    assert row.words.endswith("; StepStalled for 3 min")
    assert consequence([row]).endswith("is accused; StepStalled for 3 min.")
    assert headline([row, decided(fired("X"))]) == "One run needs a decision. A critical alert stands in one more."


def test_the_link_of_an_alert_about_a_run_shows_it_there() -> None:
    app = open_page(quiet(fired("StepStalled", summary="Training stands.")), page="incident", run="quiet")
    said = shown(app)
    assert said.startswith("quiet StepStalled for 3 min. No finding in 150 steps.")
    assert "StepStalled critical 02:55:02 quiet – Training stands. Grafana" in said
    assert '<a href="runbook?name=StepStalled">StepStalled</a>' in markup(app)


def test_a_run_whose_incident_is_over_still_shows_the_alerts_that_it_does_not_name() -> None:
    base = console_states.gradient()
    state = replace(base, annotations=(replace(fired("StepStalled"), run=base.run),))
    assert "StepStalled critical 02:55:02" in shown(open_page(state, page="incident", run=base.run))


def test_the_link_of_an_alert_about_a_node_shows_it_there() -> None:
    other = fired("PowerDeviates", "c", severity="warning", node="node-c")
    app = open_page(quiet(WARNING, other), page="nodes", node="node-b")
    said = shown(app)
    assert "UncorrectedEcc warning 02:55:02 quiet node-b Memory errors on node-b. Grafana" in said
    assert "PowerDeviates" not in said
    assert '<a href="nodes?node=node-b">node-b</a>' in markup(app)


@pytest.mark.parametrize("known", [(), (console_states.clean(),)])
def test_an_alert_about_a_node_that_runs_nothing_is_shown_all_the_same(
    tmp_path: Path, known: tuple[RunState, ...]
) -> None:
    lone = replace(stray("NodeNotGpu", "a", node="node-9"), node="node-9")
    assert "NodeNotGpu critical" in shown(open_page(*known, page="nodes", fleet=fleet(tmp_path, lone), node="node-9"))


def test_what_is_over_is_shown_below_what_stands_at_most_ten() -> None:
    pairs = [(fired("StepStalled", f"{n:02}"), fired("StepStalled", f"{n:02}", **RESOLVED)) for n in range(12)]
    app = open_page(quiet(WARNING, *(event for pair in pairs for event in pair)))
    said = shown(app)
    assert said.index("UncorrectedEcc warning") < said.index("Over, newest first")
    assert said.count("StepStalled critical 02:55:02 to 02:57:02") == 10
    assert "and 2 more" in said
    assert markup(app).count('<tr class="lg-tr-over">') == 10


def test_a_run_without_any_alert_has_no_section_on_them() -> None:
    assert "Alerts" not in shown(open_page(quiet(), page="incident", run="quiet"))
    assert "Alerts" not in shown(open_page(quiet(), page="nodes"))


def test_an_alert_in_the_timeline_leads_to_its_runbook() -> None:
    late = states.alert(1_531, starts_at=states.at(1_529))
    app = open_page(states.gradient(annotations=(late,)), page="incident")
    assert '<a href="runbook?name=ReplayMismatch">ReplayMismatch</a> fired about step 100' in markup(app)
    foreign = states.alert(1_531, starts_at=states.at(1_529), name="<b>Foreign</b>")
    assert "runbook?name" not in markup(
        open_page(states.gradient(annotations=(foreign,), events_digest="another"), page="incident")
    )
