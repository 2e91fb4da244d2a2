"""Hold what an alert says by now: a repeat with another text is no new event, but what stands says the newest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.app import console_states
from tests.app.pages import open_page, shown
from tests.app.test_alert_intake import JSON, LOCAL, RUN, intake, kept, post
from tests.app.webhooks import alert, alertmanager, body

from lastgood_console.alerts import texts as texts_module
from lastgood_console.alerts.fleet import FleetAlerts
from lastgood_console.alerts.intake import AlertIntake
from lastgood_console.alerts.texts import AlertTexts


def saying(step: int) -> dict[str, object]:
    return alertmanager(alert("StepStalled", run=RUN, annotations={"summary": f"Resume from step {step}."}))


def said(taken: AlertIntake) -> list[str]:
    return list(taken.fleet.texts.newest.values())


def test_a_repeat_with_another_text_changes_what_stands_and_not_what_happened(tmp_path: Path) -> None:
    taken = intake(tmp_path)
    post(taken, saying(25))
    assert post(taken, saying(100))["duplicates"] == 1
    assert said(taken) == ["Resume from step 100."]
    assert [event.data["summary"] for event in kept(tmp_path)] == ["Resume from step 25."]
    state = replace(console_states.clean(ended=False), run=RUN, annotations=tuple(kept(tmp_path)))
    page = shown(open_page(state, fleet=FleetAlerts(tmp_path)))
    assert "Resume from step 100." in page
    assert "Resume from step 25." not in page


def test_the_newest_text_is_known_again_after_a_kill(tmp_path: Path) -> None:
    post(intake(tmp_path), saying(25))
    post(intake(tmp_path), saying(100))
    assert said(intake(tmp_path)) == ["Resume from step 100."]
    post(intake(tmp_path), saying(25))
    assert said(intake(tmp_path)) == ["Resume from step 25."]


def test_a_text_that_cannot_be_kept_is_a_503_and_the_sender_tries_again(tmp_path: Path) -> None:
    taken = intake(tmp_path)
    post(taken, saying(25))
    post(taken, saying(50))
    file = tmp_path / "alerts" / "texts.json"
    file.unlink()
    file.mkdir()
    assert taken.accept(body(saying(100)), JSON, LOCAL)[0] == 503
    assert said(taken) == ["Resume from step 50."]
    file.rmdir()
    assert post(taken, saying(100))["duplicates"] == 1
    assert said(taken) == ["Resume from step 100."]


def test_the_texts_are_bounded_and_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "MOST_TEXTS", 3)
    taken = intake(tmp_path)
    for step in (25, 50):
        for n in range(5):
            one = alert("X", run=RUN, fingerprint=f"{n:016x}", annotations={"summary": f"{n} from {step}."})
            post(taken, alertmanager(one))
    assert said(taken) == ["2 from 50.", "3 from 50.", "4 from 50."]
    assert said(intake(tmp_path)) == said(taken)


@pytest.mark.parametrize("text", ["{", "[1]", '[["a", "b"]]', "{}"])
def test_a_file_that_is_not_ours_holds_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "texts.json").write_text(text)
    assert AlertTexts(tmp_path / "texts.json").newest == {}
