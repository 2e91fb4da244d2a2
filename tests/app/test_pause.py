"""Hold the pause switch: the pages of one visitor stand still, and say since when and how old that is."""

from __future__ import annotations

from typing import Any

from streamlit.testing.v1 import AppTest
from tests.app import console_states as states
from tests.app.pages import NOW, open_page, shown

from lastgood_console.store import current


def turn(app: AppTest) -> AppTest:
    """Press the switch."""
    (button,) = [b for b in app.button if b.key == "pause"]
    return button.click().run()


def bring(*found: Any, at: float) -> None:
    """Let the ledger know other runs, at a time."""
    store = current()
    store.ledger.found = found  # type: ignore[attr-defined]
    store.ledger.last_read_at = at  # type: ignore[misc]
    store.clock = lambda: at
    store.publish()


def test_a_paused_page_shows_no_news_while_its_age_counts() -> None:
    app = turn(open_page(states.clean(ended=False)))
    assert "paused since 02:58:02 UTC · data 4 s old" in shown(app)
    bring(states.gradient(recovered=False), at=NOW + 30)
    said = shown(app.run())
    assert "1 run, no open incident." in said
    assert "paused since 02:58:02 UTC · data 34 s old" in said
    assert "demo" not in said


def test_it_goes_on_with_all_the_news() -> None:
    app = turn(open_page(states.clean(ended=False)))
    bring(states.gradient(recovered=False), at=NOW + 30)
    said = shown(turn(app))
    assert said.startswith("One run needs a decision.")
    assert "paused" not in said
    assert "data 0 s old" in said


def test_another_page_of_the_session_stands_still_too() -> None:
    app = turn(open_page(states.clean(ended=False)))
    bring(states.gradient(recovered=False), at=NOW + 30)
    said = shown(app.switch_page("views/nodes.py").run())
    assert "paused since 02:58:02 UTC" in said
    assert "No device is accused." in said


def test_another_visitor_sees_the_news() -> None:
    first = open_page(states.clean(ended=False))
    turn(first)
    assert "paused" not in shown(open_page(states.clean(ended=False)))
