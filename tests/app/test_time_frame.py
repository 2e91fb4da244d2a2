"""Hold which time an incident's pictures show, whatever an address says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app import console_states as states

from lastgood.state import RunState
from lastgood.step_clock import StepClock
from lastgood_console.components.time_frame import (
    Frame,
    Scope,
    address_time,
    attempts_in,
    frame_of,
    frame_words,
    read_time,
    unix,
)


def frame(state: RunState, scope: Scope = "incident", since: str | None = None, until: str | None = None) -> Frame:
    return frame_of(state, state.incidents[0], StepClock(state), scope, since, until)


def test_the_whole_run_is_in_the_whole_run() -> None:
    state = states.gradient()
    found = frame(state, "run")
    assert found.low < unix(state.first_event_at) < unix(state.last_event_at) < found.high


def test_an_attempt_is_the_incidents_own() -> None:
    state = states.gradient()
    found, (first, second) = frame(state, "attempt"), state.attempts
    assert found.low < unix(first.started_at)
    assert unix(first.last_event_at) < found.high < unix(second.last_event_at)


def test_an_incident_is_shown_with_as_much_around_its_window_as_that_is_long() -> None:
    """The attempt began days before and the run went on for days after: neither squeezes the window."""
    base = states.gradient()
    first, second = base.attempts
    far = 400_000.0
    old = replace(first, started_at=states.at(-far))
    state = replace(base, attempts=(old, second), first_event_at=states.at(-far), last_event_at=states.at(far))
    found = frame(state)
    assert found.span < 3_600
    assert found.low < unix(states.at(50)) < unix(str(state.incidents[0].recovered_at)) < found.high


def test_an_open_incident_is_shown_up_to_now() -> None:
    state = replace(states.gradient(False), last_event_at=states.at(5_000))
    assert frame(state).high > unix(states.at(5_000))


def test_a_zoom_of_the_address_wins_and_is_told_as_one() -> None:
    state = states.gradient()
    found = frame(state, "run", states.at(60), states.at(80))
    assert (found.low, found.high, found.zoomed) == (unix(states.at(60)), unix(states.at(80)), True)
    assert not frame(state, "run").zoomed


def test_grafanas_milliseconds_are_a_time_too() -> None:
    assert read_time("1795921082000") == 1_795_921_082.0


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-11-29T02:00:00", "1795921082", "-1795921082000", "9" * 400, "٣٣٣٣٣٣٣٣٣٣٣٣٣",
     "0001-01-01T00:00:00+23:59", "<b>", "2026-13-01T00:00:00Z"],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    assert read_time(text) is None
    state = states.gradient()
    assert frame(state, "run", text, states.at(80)) == frame(state, "run")


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_address_breaks_a_page(since: str, until: str) -> None:
    state = states.gradient()
    found = frame(state, "incident", since, until)
    assert found.span > 0
    frame_words(found)
    attempts_in(state, found)


@pytest.mark.parametrize(("since", "until"), [(80, 60), (60, 60), (60, 60.00001), (60, 9e9)])
def test_a_zoom_that_runs_backwards_or_has_no_sense_is_none(since: float, until: float) -> None:
    state = states.gradient()
    late = "9999-12-31T23:59:59Z" if until > 1e9 else states.at(until)
    assert not frame(state, "run", states.at(since), late).zoomed


def test_moving_keeps_the_length_and_zooming_the_middle() -> None:
    start = Frame(1_000.0, 1_100.0, 2_000.0)
    later, nearer = start.moved(0.5), start.scaled(0.5)
    assert (later.low, later.high, later.zoomed) == (1_050.0, 1_150.0, True)
    assert (nearer.low, nearer.high) == (1_025.0, 1_075.0)


def test_zooming_ends_somewhere() -> None:
    found = Frame(1_000_000_000.0, 1_000_000_100.0, 2e9)
    for _ in range(60):
        found = found.scaled(0.5)
    assert found.span >= 0.049
    for _ in range(60):
        found = found.scaled(2)
    assert read_time(address_time(found.low)) is not None
    frame_words(found)


@given(st.floats(0, 4e9))
def test_an_address_tells_a_time_to_the_millisecond(seconds: float) -> None:
    told = read_time(address_time(seconds))
    assert told is not None
    assert abs(told - seconds) <= 0.001


def test_attempts_beside_the_picture_are_there_for_moving_it_a_little() -> None:
    state = states.gradient()
    first, second = state.attempts
    about = Frame(unix(first.started_at), unix(first.last_event_at), 0.0)
    assert attempts_in(state, about) == (first, second)
    assert attempts_in(state, Frame(about.low, about.low + 1, 0.0)) == (first,)


def test_the_shown_time_in_words() -> None:
    low = unix("2026-11-29T23:59:00Z")
    assert frame_words(Frame(low, low + 30, 0.0, zoomed=True)) == "29 Nov 23:59:00 to 23:59:30"
    assert frame_words(Frame(low, low + 90, 0.0, zoomed=True)) == "29 Nov 23:59:00 to 30 Nov 00:00:30"
    assert frame_words(Frame(low, low + 90, low + 20)) == "29 Nov 23:59:00 to 23:59:20"  # the rest is room for labels
