"""Hold what pages say of an address that asks for what they do not have."""

from __future__ import annotations

from typing import Any

import pytest
from tests.app import console_states
from tests.app.pages import open_page, shown
from tests.app.test_alerts_page import of_run, stray

from lastgood_console.shell import not_offered

NOTE = " of the address is none of these: ignored"


def test_what_is_a_choice_or_asks_for_nothing_needs_no_word() -> None:
    assert not_offered("trust", "", ("all", "suspect")) == ""
    assert not_offered("trust", "suspect", ("all", "suspect")) == ""
    assert not_offered("trust", "zzz", ("all", "suspect")) == f"trust=zzz{NOTE}"
    assert not_offered("trust", "z" * 4000, ("all",)) == f"trust={'z' * 40}…{NOTE}"


@pytest.mark.parametrize(
    ("page", "name"),
    [("checkpoints", "trust"), ("nodes", "measure"), ("incident", "scope"), ("alerts", "severity")],
)
def test_a_choice_that_there_is_none_of_is_said_and_shown_as_text(page: str, name: str) -> None:
    state = of_run(console_states.gradient(), stray("StepStalled", "c", summary="Stalled."))

    def said(**address: Any) -> str:
        return shown(open_page(state, page=page, **address))

    assert f"{name}=<b>x</b>{NOTE}" in said(**{name: "<b>x</b>"})
    assert NOTE not in said()
