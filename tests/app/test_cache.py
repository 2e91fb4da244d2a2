"""Hold what pages share: a picture is worked out once for each state, for all visitors, and old ones are let go."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.app import console_states as states
from tests.app.pages import NOW, open_page

from lastgood.step_clock import StepClock
from lastgood_console import cache
from lastgood_console.store import current
from lastgood_console.warming import warm_up, work_out

pytestmark = pytest.mark.slow

BUILDERS = ("fleet_map", "node_map", "picture", "timeline_spec", "peers_chart", "story", "to_document")
PAGES = ("", "nodes", "incident")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of what works things out; each does its work all the same."""
    counts: Counter[str] = Counter()

    def counted(name: str, build: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            counts[name] += 1
            return build(*args, **more)

        return call

    for name in BUILDERS:
        monkeypatch.setattr(cache, name, counted(name, getattr(cache, name)))
    return counts


def test_visitors_share_a_picture_and_a_state_without_news_builds_none(built: Counter[str]) -> None:
    state = states.gradient()
    for page in PAGES:
        open_page(state, page=page)
    once = dict(built)
    assert set(once) == set(BUILDERS)
    assert once["fleet_map"] == once["node_map"] == once["picture"] == once["story"] == 1
    for page in PAGES:
        open_page(state, page=page).run()  # another visitor, twice
    assert dict(built) == once


def test_a_state_with_news_is_drawn_anew(built: Counter[str]) -> None:
    state = states.gradient()
    open_page(state)
    open_page(replace(state, events_digest="another"))
    assert built["fleet_map"] == 2


def test_of_a_thousand_states_few_are_kept() -> None:
    state = states.gradient()
    incident = state.incidents[0]
    for number in range(1_000):
        seen = replace(state, events_digest=f"{number:032x}")
        cache.step_clock(seen)
        cache.story_told(seen, incident)
        cache.document(seen, incident)
    gc.collect()
    assert sum(type(one) is StepClock for one in gc.get_objects()) <= 64


def test_what_was_worked_out_at_the_start_is_there_for_the_first_visitors(built: Counter[str]) -> None:
    state = states.gradient()
    open_page(state, page="checkpoints")  # opens a store, and draws none of it
    work_out(current())
    assert built["fleet_map"] == built["node_map"] == built["picture"] == 2, "for each theme"
    before = dict(built) | {"peers_chart": len(state.incidents[0].suspects)}
    for page in PAGES:
        open_page(state, page=page)
    assert dict(built) == before


def test_trouble_at_the_start_is_for_the_pages_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    open_page(states.gradient())
    monkeypatch.setattr(current(), "clock", None)  # any trouble will do
    ended: list[float] = []
    warm_up(current(), lambda: ended.append(NOW)).join(timeout=30)
    assert ended == [NOW]
