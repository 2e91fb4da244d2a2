"""Hold what pages say about alerts: those that name no incident, and whether alerts still find their way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.app import console_states as console_states
from tests.app.fixtures import states
from tests.app.pages import NOW, markup, open_page, shown

from lastgood.events import Event, utc
from lastgood_console.alerts.fleet import FLEET, FleetAlerts, Heartbeat
from lastgood_console.components.alerts import path_html, severity_mark, standing_alerts

BEAT = Heartbeat("alertmanager", "http://alertmanager:9093", NOW - 40, True)


def stray(name: str, fingerprint: str, **changes: object) -> Event:
    """Return an alert that began a minute before the page is opened and names no incident."""
    began = utc(NOW - 60)
    made = states.alert(0, name=name, fingerprint=fingerprint, starts_at=began, incident=None, node=None, **changes)
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


def test_what_is_over_or_named_or_long_ago_does_not_stand() -> None:
    state = states.gradient()
    assert standing_alerts({state.run: state}, []) == []
    fired = stray("X", "a")
    over = stray("X", "a", status="resolved", ends_at=utc(NOW - 30))
    assert standing_alerts({}, [fired, over]) == []
    assert standing_alerts({}, [fired], since=utc(NOW)) == []
    assert standing_alerts({}, [fired], since=utc(NOW - 100)) == [fired]


def test_a_stray_alert_of_a_run_that_became_known_is_told_by_the_run() -> None:
    state = states.gradient(annotations=())
    assert standing_alerts({state.run: state}, [replace(stray("X", "a"), run=state.run)]) == []


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
