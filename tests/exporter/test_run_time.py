"""The time of a run is spent on something, all of it, and lost steps are lost only when the run goes back."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.exporter.histories import History

from lastgood.events import timestamp_of
from lastgood.run_time import (
    ALIVE_SECONDS,
    QUIET_SECONDS,
    TIME_STATES,
    Span,
    goodput,
    last_heard,
    lost_steps,
    restart_reasons,
    seconds,
    silence,
    spans,
)
from lastgood.state import RunState


def lengths(state: RunState) -> list[tuple[str, float]]:
    return [(span.state, round(span.end - span.start, 6)) for span in spans(state)]


def steady(history: History, first: int, last: int, each: float = 10.0) -> History:
    """Journal a round every 10 steps, ``each`` seconds apart."""
    for step in range(first, last + 1, 10):
        history.wait(each - 1).audit(step)
    return history


def test_a_clean_run_is_productive_from_the_first_step_to_the_last() -> None:
    state = steady(History().start(), 10, 100).state()
    assert lengths(state) == [("productive", 100.0)]


def test_what_the_first_step_took_longer_than_the_others_is_the_start() -> None:
    history = History().start().wait(60)
    state = steady(history, 10, 100).state()
    assert lengths(state) == [("starting", 60.0), ("productive", 100.0)]


def test_steps_turn_from_productive_to_lost_when_the_run_goes_back_before_them() -> None:
    history = steady(History().start(), 10, 50).save(50)
    before = steady(history, 60, 100).end(100)
    assert "lost" not in dict(lengths(before.state()))
    resumed = before.wait(29).start(50, (1, 50, before.path(50)))
    spent = seconds(resumed.state(), spans(resumed.state()))
    assert spent["lost"] == pytest.approx(51, abs=2)
    assert spent["stopped"] == pytest.approx(30, abs=1)
    assert spent["productive"] == pytest.approx(51, abs=2)
    assert lost_steps(resumed.state().attempts) == 50


def test_an_attempt_that_nothing_descends_from_is_lost_entirely() -> None:
    history = steady(History().start(), 10, 100).end(100)
    state = steady(history.start(0), 10, 20).state()
    assert seconds(state, spans(state))["lost"] == pytest.approx(101, abs=1)
    assert lost_steps(state.attempts) == 100


def test_the_time_that_training_waited_for_saves_is_taken_from_its_steps() -> None:
    state = steady(History().start(), 10, 50).save(50).state()
    spent = seconds(state, spans(state))
    assert spent["saving"] == 0.5
    assert sum(spent.values()) == pytest.approx(last_heard(state) - spans(state)[0].start)


def test_only_a_live_run_that_has_been_quiet_for_a_minute_stands_still() -> None:
    state = steady(History().start(), 10, 50).state()
    end = last_heard(state)
    assert silence(state, end + QUIET_SECONDS) == ()
    assert silence(state, end + 61) == (Span("stopped", end, end + 61),)
    assert silence(state, end + ALIVE_SECONDS) == ()
    ended = steady(History().start(), 10, 50).end(50, "completed").state()
    assert silence(ended, last_heard(ended) + 61) == ()


def test_a_window_counts_only_the_time_inside_it() -> None:
    state = steady(History().start(), 10, 100).state()
    assert seconds(state, spans(state), since=last_heard(state) - 30)["productive"] == pytest.approx(30)


def test_goodput_is_the_share_of_productive_seconds_and_unknown_without_time() -> None:
    spent = dict.fromkeys(TIME_STATES, 0.0)
    assert goodput(spent) is None
    assert goodput(spent | {"productive": 90.0, "lost": 6.0, "stopped": 4.0}) == pytest.approx(0.9)


def test_a_restart_is_named_after_the_end_of_the_attempt_before_it() -> None:
    history = History().start().end(10).start(0).end(5, "signal").start(0).start(0)
    assert restart_reasons(history.state().attempts) == ("integrity", "signal", "lost")


def test_a_run_without_an_attempt_spent_no_time() -> None:
    assert spans(History().state()) == ()


STEPS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=6)


@given(STEPS)
def test_spans_follow_each_other_and_cover_the_run(attempts: list[tuple[int, int, int]]) -> None:
    history = History()
    for steps, back, pause in attempts:
        at = history.state().attempts[-1].last_step if history.attempt else 0
        start = max(0, at - back)
        history.wait(pause).start(start, (history.attempt, start, "x") if history.attempt else None)
        steady(history, start + 10, start + steps)
    state = history.state()
    found = spans(state)
    assert all(earlier.end == later.start for earlier, later in zip(found, found[1:], strict=False))
    whole = last_heard(state) - timestamp_of(state.attempts[0].started_at)
    assert math.isclose(sum(span.end - span.start for span in found), whole, abs_tol=1e-3)
    assert all(value >= 0 for value in seconds(state, found).values())


def test_clocks_of_nodes_that_differ_make_no_negative_time() -> None:
    history = steady(History().start(), 10, 50).end(50)
    first = history.state().attempts[0]
    later = replace(first, number=2, started_at=first.started_at, from_step=0)
    state = replace(history.state(), attempts=(first, later))
    assert all(span.end > span.start for span in spans(state))
