"""Hold what is offered to be vouched for: who was faster is named, and what is gone is said."""

from __future__ import annotations

import pytest
from tests.app.test_actions import said, unverified_parent

from lastgood_console.actions import ActionError
from lastgood_console.vouching import choices, meant


def test_what_somebody_has_accepted_takes_no_second_word() -> None:
    story = unverified_parent()
    for chosen in choices(story.state()):
        after = said(unverified_parent(), chosen.deed(story.state(), "bob", "compared", None))
        assert chosen.words not in [choice.words for choice in choices(after)]
        with pytest.raises(ActionError, match=f"{chosen.words}, is accepted by bob already: choose another one"):
            chosen.deed(after, "ann", "compared too", None)


def test_a_choice_that_is_offered_no_more_is_found_by_its_words() -> None:
    state = unverified_parent().state()
    (first, *_) = choices(state)
    assert meant(state, first) == meant(state, first.words) == first
    with pytest.raises(ActionError, match="step 9 of attempt 7, elsewhere, is not known any more"):
        meant(state, "step 9 of attempt 7, elsewhere").deed(state, "ann", "compared", None)
