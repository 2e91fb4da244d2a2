"""Hold the page of checkpoints: the advice, the counts, the table of trust, and a person's word for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.app import console_states as states
from tests.app.console_server import run_directory
from tests.app.pages import markup, open_page, shown
from tests.app.test_desk import ELSEWHERE, HERE
from tests.exporter.histories import History

from lastgood.ledger import Ledger
from lastgood.state import FailedSave, LastGood, RunState
from lastgood_console.actions import ActionError
from lastgood_console.components.checkpoint_table import checkpoints_html
from lastgood_console.components.checkpoints_page import consequence, headline, offered, wanted
from lastgood_console.desk import Desk, Saying
from lastgood_console.people_journal import PeopleJournal
from lastgood_console.store import Store, current
from lastgood_console.vouching import choices


def long(count: int) -> RunState:
    """Return a run with so many saves, all trusted but the first two."""
    base = states.clean("long", ended=False)
    saves = [states.checkpoint(1, s, s, "trusted", "audited on both sides") for s in range(1, count + 1)]
    saves[0] = replace(saves[0], trust="tainted", reason="bytes differ")
    saves[1] = replace(saves[1], trust="missing", reason="the path is gone")
    good = replace(base.last_good, step=count, path=saves[-1].path)
    return replace(base, checkpoints=tuple(saves), last_good=good)


def resumed(run: str = "long") -> History:
    """Return a run whose second attempt loaded bytes that nobody verified."""
    made = History(run=run).start().save(0).audit(1, phase="first").save(25).audit(50).save(50)
    made.end(50, "exception").start(50, (1, 50, made.path(50)), verified=False)
    return made.audit(51, phase="first").save(75).audit(100).save(100)


# --- words -----------------------------------------------------------------------------------------------------------


def test_the_headline_is_the_advice() -> None:
    assert headline(states.gradient()).startswith("Resume demo from step ")
    assert headline(states.empty()) == "just-started has saved nothing yet."
    assert consequence(states.empty()).endswith("Resume is possible from step 0 only.")


def test_the_consequence_says_why_and_what_not_to_use() -> None:
    said = consequence(states.gradient(recovered=False))
    assert said == "It is the newest trusted checkpoint. 1 newer save is unverified. Do not use: 1 suspect."
    assert consequence(states.late()).startswith("No replay passed since.")


def test_the_list_can_be_cut_down_to_the_trusts_that_are_there() -> None:
    failed = FailedSave(1, 30, "p", states.at(30), "integrity", {})
    state = replace(long(5), failed_saves=(failed,))
    assert offered(state) == ("all", "trusted", "tainted", "missing", "failed")
    assert [c.step for c in wanted(state, "trusted")] == [5, 4, 3]
    assert wanted(state, "failed") == [failed]


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_shows_advice_counts_strip_and_trust() -> None:
    app = open_page(states.gradient(recovered=False), page="checkpoints")
    said = shown(app)
    assert said.startswith("Resume demo from step 50. It is the newest trusted checkpoint.")
    counts = "Last good 50 Trusted 3 Unverified 1 Suspect 1 Tainted 0 Missing 0 Unreadable 0"
    assert counts in said
    assert said.count("Trusted means audited on both sides, not proven.") == 1
    assert "Last good. All six devices passed a replay at step 50." in said
    assert "lg-tr-lastgood" in markup(app)


def test_the_address_names_the_run_and_the_trust() -> None:
    both = (states.clean(), states.gradient(recovered=False))
    assert shown(open_page(*both, page="checkpoints")).startswith("Resume demo from step 50.")
    assert shown(open_page(*both, page="checkpoints", run="quiet")).startswith("Resume quiet from step 150.")
    app = open_page(*both, page="checkpoints", run="demo", trust="suspect")
    assert "Saved checkpoints newest first · 1 of 1" in shown(app)
    assert "No run is called 'nothing'." in shown(open_page(*both, page="checkpoints", run="nothing"))


def test_thousands_of_saves_are_cut_or_plain() -> None:
    state = long(2600)
    app = open_page(state, page="checkpoints")
    assert "Saved checkpoints newest first · 200 of 2600" in shown(app)
    assert markup(app).count("<tr") == 201
    every = open_page(state, page="checkpoints", rows="all")
    (table,) = every.dataframe
    assert (len(table.value), table.value["Trust"][0], table.value["Trust"][2599]) == (2600, "trusted ✓", "tainted ✗")
    assert table.value["Why"][0].startswith("Last good. ")
    few = open_page(state, page="checkpoints", rows="all", trust="tainted")
    assert not few.dataframe
    assert "Bytes differ." in shown(few)


def test_beside_an_incident_stand_the_newest_saves_and_those_around_the_resume_point() -> None:
    state = long(2600)
    old = sorted(state.checkpoints, key=lambda c: c.saved_at)[1000]
    html = checkpoints_html(state, LastGood(old.attempt, old.step, old.path, "trusted", "as it was"))
    assert html.count("<tr") == 1 + 30 + 11
    assert html.count("Resume point of this incident.") == 1
    assert 'around the resume point; see <a href="checkpoints?run=long">all checkpoints of the run</a>.' in html
    assert "Here are the newest; see" in checkpoints_html(state)
    assert "see <a" not in checkpoints_html(states.gradient()), "a short table has every save"


def test_empty_states_say_what_to_do() -> None:
    said = shown(open_page(states.empty(), page="checkpoints"))
    assert said.startswith("just-started has saved nothing yet. Resume is possible from step 0 only.")
    assert "Nothing saved yet: wrap saves in with monitor.checkpoint(path): and they are listed here." in said
    assert said.count("Resume is possible") == 1, "a reason is said once"
    assert "Start one with lastgood demo" in shown(open_page(page="checkpoints"))


def test_a_hostile_path_does_not_become_markup() -> None:
    base = states.gradient()
    bad = tuple(replace(c, path="<img src=x>", reason="<img src=x>") for c in base.checkpoints)
    assert "<img" not in markup(open_page(replace(base, checkpoints=bad), page="checkpoints"))


# --- a person's word -------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    run_directory(tmp_path, resumed())
    opened = Store(Ledger([tmp_path], state_dir=tmp_path / ".lastgood"))
    opened.refresh()
    return opened


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[PeopleJournal]:
    opened = PeopleJournal(tmp_path / ".lastgood")
    yield opened
    opened.close()


def trust_of(store: Store) -> dict[int, str]:
    return {c.step: c.trust for c in store.snapshot().states["long"].checkpoints}


def test_what_was_loaded_without_a_check_waits_first() -> None:
    found = choices(resumed().state())
    assert found[0].words == "what attempt 2 was resumed from, step 50, checkpoints/a1-step-000050"
    assert [c.path for c in found[1:]] == ["checkpoints/a2-step-000100", "checkpoints/a2-step-000075"]
    assert choices(states.clean()) == ()


def test_a_word_for_the_parent_lets_its_descendants_be_trusted(store: Store, journal: PeopleJournal) -> None:
    assert trust_of(store)[75] == "unverified"
    (first, *_) = choices(store.snapshot().states["long"])
    Desk(store, journal).vouch("long", first, Saying("accept", "compared by hand", "mira"), HERE)
    assert trust_of(store)[75] == "trusted"
    assert first not in choices(store.snapshot().states["long"])


def test_who_may_not_write_or_says_no_reason_is_told(store: Store, journal: PeopleJournal) -> None:
    (first, *_) = choices(store.snapshot().states["long"])
    with pytest.raises(ActionError, match="only this machine may write here"):
        Desk(store, journal).vouch("long", first, Saying("accept", "fine", "mira"), ELSEWHERE)
    with pytest.raises(ActionError, match="needs words"):
        Desk(store, journal).vouch("long", first, Saying("accept", "", "mira"), HERE)
    assert trust_of(store)[75] == "unverified"


def test_the_page_offers_the_form_and_saves_the_word(store: Store, journal: PeopleJournal) -> None:
    app = open_page(store.snapshot().states["long"], page="checkpoints")
    assert not [b for b in app.button if b.label == "Accept checkpoint"]  # nobody can write here yet
    current().desk = Desk(store, journal, "a-secret")
    app.run().text_input(key="act-token").set_value("a-secret")
    app.text_input(key="act-by").set_value("mira")
    app.text_area[0].set_value("compared by hand")
    (button,) = [b for b in app.button if b.label == "Accept checkpoint"]
    button.click().run()
    assert not app.exception
    assert [t.value for t in app.toast] == [
        "Accepted what attempt 2 was resumed from, step 50, checkpoints/a1-step-000050."
    ]
    assert trust_of(store)[75] == "trusted"
