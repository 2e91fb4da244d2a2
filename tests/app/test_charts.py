"""Hold the chart of a suspect against its peers to what it says; how it looks is for eyes (tests/e2e renders it)."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

from tests.app import console_states as states

from lastgood.peers import Peers, peers
from lastgood.state import Point
from lastgood.step_clock import StepClock
from lastgood_console.components import peers_chart
from lastgood_console.components.time_frame import Frame, unix
from lastgood_console.export.tokens import theme


def some_peers(**changes: Any) -> Peers:
    base: dict[str, Any] = {
        "metric": "grad_norm_local", "rank": 3, "attempt": 1, "steps": (1, 2, 3, 4), "suspect": (1.1, None, nan, 2.0),
        "median": (1.0, 1.0, 1.0, 1.0), "p10": (0.9, 0.9, 0.9, 0.9), "p90": (1.1, 1.1, 1.1, 1.1),
    }  # fmt: skip
    return Peers(**(base | changes))


def test_peers_are_drawn_as_percent_from_their_median() -> None:
    rows = peers_chart.series(some_peers())
    assert [row["suspect"] if row["suspect"] is None else round(row["suspect"], 6) for row in rows] == [
        10.0, None, None, 100.0,
    ]  # fmt: skip
    assert round(rows[0]["p10"], 6) == -10.0


def test_missing_zero_and_not_a_number_are_three_different_things() -> None:
    found = some_peers(suspect=(0.0, None, nan, inf))
    assert peers_chart.series(found)[0]["suspect"] == -100.0
    assert peers_chart.no_samples(found) == [(2, 2)]
    assert peers_chart.not_numbers(found) == [3, 4]
    words = [row[1] for row in peers_chart.numbers(found)]
    assert words == ["0", "–", "× NaN", "× infinite"]


def test_not_a_number_stands_on_the_top_rail_with_its_count() -> None:
    incident = states.gradient_incident(False)
    spec = peers_chart.peers_chart(some_peers(), incident, "light").to_dict()
    assert "NaN, 1 step" in str(spec)
    assert "no sample" in str(spec)


def test_only_an_accused_rank_is_drawn_in_the_colour_of_blame() -> None:
    accused, candidate = states.gradient_incident(False), states.undecided().incidents[0]
    assert peers_chart.tone_of(3, accused) == "tainted"
    assert peers_chart.tone_of(3, candidate) == "suspect"
    assert theme("dark")["tainted"] not in str(
        peers_chart.peers_chart(peers(candidate)[0], candidate, "dark").to_dict()
    )


def test_a_value_far_outside_does_not_squash_the_peers() -> None:
    found = some_peers(suspect=(1e9, 1.0, 1.0, 1.0))
    low, high = peers_chart._range(peers_chart.series(found))
    assert (low, high) == (-115.0, 1115.0) or high <= 1.2 * peers_chart.MOST_PERCENT


def test_labels_at_the_lines_ends_are_moved_apart() -> None:
    placed = peers_chart.spread([("a", 0.0, "ink3"), ("b", 0.1, "ink3"), ("c", 5.0, "ink3")], gap=1.0)
    assert placed == [("a", 0.0, "ink3"), ("b", 1.0, "ink3"), ("c", 5.0, "ink3")]


def test_a_window_outside_the_shown_steps_is_not_drawn() -> None:
    incident = replace(states.gradient_incident(False), window=replace(states.WINDOW, start=500, end=600))
    assert theme("light")["band"] not in str(peers_chart.peers_chart(some_peers(), incident, "light").to_dict())


def test_a_zoom_shows_the_steps_that_ran_in_it() -> None:
    state = states.gradient()
    (found,) = peers(state.incidents[0])
    clock = StepClock(state)
    start, end = (unix(str(clock.at(Point(1, step)))) for step in (60, 80))
    shown = peers_chart.within(found, clock, Frame(start, end, end, zoomed=True))
    assert shown is not None
    assert (shown.steps[0], shown.steps[-1], len(shown.suspect)) == (60, 80, 21)
    assert peers_chart.within(found, clock, Frame(start, end, end)) == found
    assert peers_chart.within(found, clock, Frame(end + 1e4, end + 2e4, end, zoomed=True)) is None


def test_an_edge_of_the_window_outside_the_shown_steps_is_not_drawn() -> None:
    incident = replace(states.gradient_incident(False), window=replace(states.WINDOW, start=0, end=3))
    edges = peers_chart.peers_chart(some_peers(), incident, "light").to_dict()["layer"]
    rules = [layer["mark"] for layer in edges if layer["mark"].get("color") == theme("light")["edge"]]
    assert ["strokeDash" in mark for mark in rules] == [False]
