from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from tests.app.fixtures import run_dirs, states
from tests.app.pages import markup, open_page, shown
from tests.app.test_store import FakeLedger

from lastgood.ledger import Ledger
from lastgood.state import Word
from lastgood_console.actions import ActionError
from lastgood_console.desk import Desk, Saying, Visitor, possible
from lastgood_console.people_journal import PeopleJournal
from lastgood_console.store import Store, current

TOKEN = "a-secret"
ELSEWHERE = Visitor({"Host": "console.example"}, "10.0.0.7")
PROXIED = Visitor({"Host": "127.0.0.1:8490", "X-Forwarded-For": "10.0.0.7"}, None)
SIGNED_IN = Visitor({"Host": "console.example"}, "10.0.0.7", name="mira@example.org")
HERE = Visitor({"Host": "127.0.0.1:8490"}, None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    run_dirs.written(run_dirs.still_open(), tmp_path / "llama-7b")
    opened = Store(Ledger([tmp_path], state_dir=tmp_path / ".lastgood"))
    opened.refresh()
    return opened


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[PeopleJournal]:
    opened = PeopleJournal(tmp_path / ".lastgood")
    yield opened
    opened.close()


def incident_of(store: Store) -> str:
    return store.snapshot().states["llama-7b"].incidents[0].id


def acknowledged(store: Store) -> str | None:
    word = store.snapshot().states["llama-7b"].incidents[0].acknowledged
    return word.by if word else None


def test_what_a_visitor_does_is_seen_at_once(store: Store, journal: PeopleJournal) -> None:
    written = Desk(store, journal).act("llama-7b", incident_of(store), Saying("acknowledge", by="mira"), HERE)
    assert (acknowledged(store), written.instead) == ("mira", "")


def test_storage_that_fails_after_the_word_is_written_takes_nothing_back(
    store: Store, journal: PeopleJournal, tmp_path: Path
) -> None:
    broken = Store(FakeLedger(store.snapshot().states["llama-7b"], path=tmp_path / "llama-7b"))
    broken.refresh()
    broken.ledger.broken = True  # type: ignore[attr-defined]
    Desk(broken, journal).act("llama-7b", incident_of(store), Saying("acknowledge", by="mira"), HERE)
    store.refresh()
    assert acknowledged(store) == "mira"


@pytest.mark.parametrize(
    ("visitor", "console_token", "shown_token", "problem"),
    [
        (ELSEWHERE, None, "", "only this machine may write here: set LASTGOOD_TOKEN where the console runs"),
        (ELSEWHERE, None, "guess", "only this machine may write here"),
        (ELSEWHERE, TOKEN, "", "show the token of this console"),
        (ELSEWHERE, TOKEN, "guess", "this is not the token of this console"),
        (PROXIED, TOKEN, "", "show the token of this console"),
        (Visitor({"Host": "evil.example"}, None), None, "", "only this machine may write here"),
        (Visitor({"Host": "x", "Authorization": f"Bearer {TOKEN}"}, "10.0.0.7"), TOKEN, "", "show the token"),
    ],
)
def test_who_may_not_write_is_told_why(
    store: Store, journal: PeopleJournal, visitor: Visitor, console_token: str | None, shown_token: str, problem: str
) -> None:
    desk = Desk(store, journal, console_token)
    assert desk.needs_token(visitor)
    with pytest.raises(ActionError, match=problem):
        desk.act("llama-7b", incident_of(store), Saying("acknowledge", by="mira", token=shown_token), visitor)
    assert acknowledged(store) is None


def test_the_token_lets_anybody_write(store: Store, journal: PeopleJournal) -> None:
    desk = Desk(store, journal, TOKEN)
    desk.act("llama-7b", incident_of(store), Saying("acknowledge", by="mira", token=TOKEN), ELSEWHERE)
    assert acknowledged(store) == "mira"


def test_who_sits_at_this_machine_needs_no_token_on_the_page(store: Store, journal: PeopleJournal) -> None:
    desk = Desk(store, journal, TOKEN)
    assert not desk.needs_token(HERE)
    with pytest.raises(ActionError, match="this is not the token"):
        desk.act("llama-7b", incident_of(store), Saying("acknowledge", by="mira", token="guess"), HERE)
    desk.act("llama-7b", incident_of(store), Saying("acknowledge", by="mira"), HERE)
    assert acknowledged(store) == "mira"


def test_a_sign_in_gives_the_name_and_needs_no_token(store: Store, journal: PeopleJournal) -> None:
    desk = Desk(store, journal, TOKEN)
    assert not desk.needs_token(SIGNED_IN)
    desk.act("llama-7b", incident_of(store), Saying("acknowledge", by="somebody else"), SIGNED_IN)
    assert acknowledged(store) == "mira@example.org"


def test_an_incident_that_went_away_is_said(store: Store, journal: PeopleJournal) -> None:
    with pytest.raises(ActionError, match="incident r-gone of run llama-7b is not known any more: reload the page"):
        Desk(store, journal).act("llama-7b", "r-gone", Saying("note", "x", "mira"), HERE)


def test_only_what_has_an_effect_is_offered() -> None:
    base = states.gradient().incidents[0]
    seen = Word("mira", states.at(1_700), "")
    still = replace(base, state="open", recovered_at=None, recovered_by=None)
    assert possible(still) == ("acknowledge", "note", "cause", "close")
    assert possible(replace(still, acknowledged=seen)) == ("note", "cause", "close")
    assert possible(base) == ("note", "cause", "close", "reopen")
    assert possible(replace(base, state="closed", closed_by="kim")) == ("note", "cause", "reopen")
    assert possible(states.data().incidents[0]) == ("note", "cause")


# --- on the page -----------------------------------------------------------------------------------------------------


def opened(store: Store, journal: PeopleJournal) -> AppTest:
    """Return the incident's page with a desk. The visitor of a page test comes from elsewhere and shows the token."""
    app = open_page(store.snapshot().states["llama-7b"], page="incident")
    current().desk = Desk(store, journal, TOKEN)
    app.run().text_input(key="act-token").set_value(TOKEN)
    return app


def save(app: AppTest) -> None:
    (button,) = [b for b in app.button if b.label == "Save to timeline"]
    button.click().run()


def test_without_a_desk_the_page_offers_no_form() -> None:
    app = open_page(states.two_nodes(), page="incident")
    assert not [b for b in app.button if b.label == "Save to timeline"]


def test_the_page_saves_to_the_timeline(store: Store, journal: PeopleJournal) -> None:
    app = opened(store, journal)
    app.text_input(key="act-by").set_value("mira")
    app.text_area[0].set_value("looking")
    save(app)
    assert not app.exception
    assert acknowledged(store) == "mira"
    assert [t.value for t in app.toast] == ["Acknowledge: saved to the timeline."]
    assert app.text_input(key="act-by").value == "mira"


def test_the_page_keeps_saying_what_is_missing(store: Store, journal: PeopleJournal) -> None:
    app = opened(store, journal)
    save(app)
    assert [e.value for e in app.error] == ["Who says so? Give a name."]
    assert [e.value for e in app.run().error] == ["Who says so? Give a name."]
    app.text_input(key="act-by").set_value("mira")
    save(app)
    assert not app.error
    assert acknowledged(store) == "mira"


def test_the_page_asks_whoever_comes_from_elsewhere_for_the_token(store: Store, journal: PeopleJournal) -> None:
    app = opened(store, journal)
    app.text_input(key="act-by").set_value("mira")
    app.text_input(key="act-token").set_value("guess")
    save(app)
    assert [e.value for e in app.error] == ["This is not the token of this console."]
    assert acknowledged(store) is None


def test_who_has_seen_it_and_the_cause_stand_on_the_page() -> None:
    base = states.two_nodes()
    said = {
        "acknowledged": Word("mira", states.at(1_700), ""),
        "cause": Word("kim", states.at(1_800), "power <supply>"),
    }
    told = shown(open_page(replace(base, incidents=(replace(base.incidents[0], **said),)), page="incident"))  # type: ignore[arg-type]
    assert ", acknowledged by mira" in told
    assert "CAUSE Power <supply>. Said by kim, 2026-11-29 03:02:00 UTC." in told


def test_what_a_note_says_has_its_own_direction_on_the_page() -> None:
    state = states.gradient(annotations=())
    note = states.event(
        "note", 1_900, 1, {"text": "\u05e9\u05dc\u05d5\u05dd \u202ex", "author": "m", "incident": "r-3f2a91c0"}
    )
    html = markup(open_page(replace(state, incidents=(replace(state.incidents[0], actions=(note,)),)), page="incident"))
    assert '<bdi>Note: </bdi><bdi class="lg-said">\u05e9\u05dc\u05d5\u05dd \ufffdx</bdi>' in html
