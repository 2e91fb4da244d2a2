"""Hold the runbook page: what an alert's link shows, without any other site."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.app import console_states
from tests.app.pages import markup, open_page, shown
from tests.app.test_alerts_shown import fired

from lastgood_alerts.rules import RULES


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_the_link_of_every_alert_shows_its_runbook(name: str) -> None:
    app = open_page(page="runbook", name=name)
    assert shown(app).startswith(name)
    (text,) = [element.value for element in app.markdown if "## Mitigation" in element.value]
    assert not text.startswith("# ")
    assert not [element for element in app.markdown if element.proto.allow_html]


def test_a_name_that_no_runbook_has_lists_them_all_and_a_click_opens_one() -> None:
    app = open_page(page="runbook", name="<b>Nope</b>")
    said = shown(app)
    assert said.startswith("No runbook is called '<b>Nope</b>'.")
    assert all(rule.name in said and rule.meaning in said for rule in RULES)
    (button,) = [b for b in app.button if b.label == "ReplayMismatch"]
    assert shown(button.click().run()).startswith("ReplayMismatch")


def test_without_a_name_the_runbooks_are_listed() -> None:
    assert shown(open_page(page="runbook")).startswith("Runbooks.")


def test_beside_a_runbook_stands_when_its_alert_fires_and_where_it_does() -> None:
    alerts = (fired("StepStalled", summary="Training stands."), fired("UncorrectedEcc", "b"))
    state = replace(console_states.clean(ended=False), annotations=alerts)
    app = open_page(state, page="runbook", name="StepStalled")
    assert "Fires at > 0 seconds past the deadline, for 30 s" in shown(app)
    assert "Stands quiet · since 02:55:02 Training stands. " in shown(app)
    assert '<a href=".?run=quiet">quiet</a>' in markup(app)
    assert "Stands nowhere, in the last 7 days" in shown(open_page(state, page="runbook", name="GoodputLow"))
