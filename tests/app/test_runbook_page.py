"""Hold the runbook page: what an alert's link shows, without any other site."""

from __future__ import annotations

import pytest
from tests.app.pages import open_page, shown

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
