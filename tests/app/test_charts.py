"""Hold the two charts to what they say; how they look is for eyes (tests/e2e renders them)."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from tests.app import console_states as states
from tests.app.fixtures import states as fixture

from lastgood.peers import Peers, peers
from lastgood.timeline import entries
from lastgood_console.components import peers_chart, timeline_chart
from lastgood_console.export.tokens import THEMES, ThemeName, theme


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every row of every layer."""
    return [row for found in spec["datasets"].values() for row in found]


def timeline_spec(name: ThemeName = "light", recovered: bool = True) -> dict[str, Any]:
    state = states.gradient(recovered)
    return timeline_chart.timeline_chart(state, state.incidents[0], name).to_dict()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", THEMES)
def test_charts_are_dressed_in_the_theme_and_have_no_box(name: ThemeName) -> None:
    spec = timeline_spec(name)
    assert spec["config"]["background"] == theme(name)["bg"]
    assert spec["config"]["view"]["stroke"] is None
    assert theme(name)["tainted"] in str(spec)


def test_equal_states_give_equal_charts_so_an_unchanged_chart_is_not_drawn_again() -> None:
    assert timeline_spec() == timeline_spec()


def test_every_timeline_entry_but_the_step_numbers_that_meet_is_drawn() -> None:
    state = states.gradient()
    drawn = {row.get("event") for row in values(timeline_spec())}
    left_out = {"started", "ended", "verdict", "step"}
    assert {e.text for e in entries(state, state.incidents[0]) if e.kind not in left_out} <= drawn


def test_of_two_alerts_of_the_same_second_both_are_seen_the_critical_one_on_top() -> None:
    base = states.gradient(recovered=False)
    (about,) = base.incidents
    pair = [
        fixture.alert(0, starts_at=states.at(60), fingerprint=name, name=name, severity=name, incident=about.id)
        for name in ("critical", "warning")
    ]
    state = replace(base, annotations=tuple(replace(e, time=states.at(61)) for e in pair))
    spec = timeline_chart.timeline_chart(state, about, "light").to_dict()
    marks = [layer["mark"] for layer in spec["layer"] if layer["mark"].get("shape") == "triangle-down"]
    assert [(mark["fill"], mark.get("yOffset", 0)) for mark in marks] == [
        (theme("light")["suspect"], timeline_chart.LOWER),
        (theme("light")["tainted"], 0),
    ]
    lines = [layer["mark"] for layer in spec["layer"] if layer["mark"].get("strokeWidth") == 1.5]
    assert [m.get("yOffset", 0) for m in lines if m["type"] == "rule" and "strokeDash" not in m][-2:] == [7, 0]


def test_the_windows_left_edge_is_dashed_and_its_right_edge_solid() -> None:
    rules = [
        layer["mark"] for layer in timeline_spec()["layer"] if layer["mark"].get("color") == theme("light")["edge"]
    ]
    assert ["strokeDash" in mark for mark in rules] == [True, False]


def test_a_contained_step_has_no_band() -> None:
    state = states.cleared()
    spec = timeline_chart.timeline_chart(state, state.incidents[0], "light").to_dict()
    assert theme("light")["band"] not in str(spec)


def test_a_finding_stands_where_it_became_known_and_says_when() -> None:
    labels = [row for row in values(timeline_spec()) if row.get("label", "").startswith("replay · rank 3")]
    assert [(row["label"], row["at"]) for row in labels] == [("replay · rank 3 · known 02:33:42", states.at(102))]


def test_labels_never_reach_into_the_next_mark_of_their_lane() -> None:
    state = states.gradient()
    found = entries(state, state.incidents[0])
    domain = timeline_chart._domain(found)
    right, left = timeline_chart._placed(found, domain)
    for row in right:
        end = domain.pixels(row["at"]) + timeline_chart.LETTER_WIDTH * len(row["label"])
        later = [e.at for e in found if e.lane == row["lane"] and e.at > row["at"] and e.kind != "verdict"]
        assert all(end <= domain.pixels(at) for at in later)
    assert all(row["label"] for row in left)


def some_peers(**changes: Any) -> Peers:
    base: dict[str, Any] = {
        "metric": "grad_norm_local", "rank": 3, "steps": (1, 2, 3, 4), "suspect": (1.1, None, nan, 2.0),
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
