"""How long steps take, by when the next one must have ended, and when progress is told."""

from __future__ import annotations

import pytest
from tests.conftest import Clock

from lastgood.pacing import FIRST_STEP_SECONDS, PROGRESS_SECONDS, STEP_FACTOR, STEP_SECONDS, Pace


def test_a_step_is_timed_from_the_end_of_the_one_before(clock: Clock) -> None:
    pace = Pace(clock)
    assert pace.step() is None
    assert pace.allowance() == STEP_SECONDS
    clock.advance(20)
    assert pace.step() == 20
    assert pace.allowance() == 20 * STEP_FACTOR
    clock.advance(30)
    assert pace.step() == 30
    assert pace.mean_seconds == pytest.approx(21)


def test_before_the_first_step_and_after_something_else_nobody_knows_how_long_one_takes(clock: Clock) -> None:
    pace = Pace(clock)
    assert pace.allowance() == FIRST_STEP_SECONDS
    pace.step()
    pace.forget()
    assert pace.allowance() == FIRST_STEP_SECONDS
    clock.advance(500)
    assert pace.step() is None
    assert pace.mean_seconds == 0


def test_progress_is_told_every_so_often_and_once_the_cost_is_known(clock: Clock) -> None:
    pace = Pace(clock)
    assert not pace.tells(share_known=False)
    assert pace.tells(share_known=True)
    assert not pace.tells(share_known=True)
    clock.advance(PROGRESS_SECONDS)
    assert pace.tells(share_known=True)
    assert not pace.tells(share_known=True)
