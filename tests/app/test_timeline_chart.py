"""Hold what the timeline draws: which marks stand where, how they look, and a specification that does not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import altair as alt
import pytest
from tests.app import console_states as states
from tests.app.fixtures import states as fixture

from lastgood.state import RunState
from lastgood.step_clock import StepClock
from lastgood.timeline import entries, entries_of
from lastgood_console.components.time_frame import Frame, frame_of, unix
from lastgood_console.components.timeline_chart import Picture, Row, timeline_spec
from lastgood_console.components.timeline_labels import FAR, label_of, width_of
from lastgood_console.components.timeline_rows import LOWER, picture
from lastgood_console.export.tokens import THEMES, ThemeName, theme


def drawn(state: RunState, name: ThemeName = "light", frame: Frame | None = None) -> Picture:
    (incident, *_) = state.incidents
    clock = StepClock(state)
    return picture(state, incident, clock, frame or frame_of(state, incident, clock, "run", None, None), name)


def events(found: Picture) -> set[str]:
    return {row["event"] for rows in found.rows.values() for row in rows if "event" in row}


def labels(found: Picture) -> dict[str, Row]:
    return {row["label"]: row for row in found.rows["labels"]}


@pytest.mark.parametrize("name", THEMES)
def test_the_specification_is_vega_lite_in_the_themes_colours_without_a_box(name: ThemeName) -> None:
    found = drawn(states.gradient(), name)
    spec: dict[str, Any] = timeline_spec(found.lanes, name) | {"datasets": found.rows}
    alt.LayerChart.from_dict(spec)  # raises where it is not
    assert spec["config"]["background"] == theme(name)["bg"]
    assert spec["config"]["view"]["stroke"] is None
    assert theme(name)["tainted"] in str(found.rows)


def test_every_data_set_that_a_layer_names_is_there_and_no_other() -> None:
    found = drawn(states.gradient())
    named = {layer["data"]["name"] for layer in timeline_spec(found.lanes, "light")["layer"]}
    assert named == set(found.rows)


def test_the_rows_of_a_data_set_have_the_same_columns() -> None:
    for rows in drawn(states.gradient()).rows.values():
        assert len({tuple(row) for row in rows}) <= 1


def test_news_change_rows_and_never_the_specification_so_the_browser_keeps_its_zoom() -> None:
    before, after = drawn(states.gradient(False)), drawn(replace(states.gradient(False), last_event_at=states.at(400)))
    assert before.rows != after.rows
    assert timeline_spec(before.lanes, "light") == timeline_spec(after.lanes, "light")


def test_every_entry_is_drawn_that_has_room() -> None:
    state = states.gradient()
    left_out = {"started", "ended", "verdict", "step", "passed"}
    wanted = {e.text for e in entries(state, state.incidents[0]) if e.kind not in left_out}
    trusted = {e.text for e in entries(state, state.incidents[0]) if e.tone == "trusted" and e.lane == "saves"}
    assert wanted - trusted <= events(drawn(state))
    assert "replica passed 2 times" in events(drawn(state))


def test_of_two_alerts_of_the_same_second_both_are_seen_the_critical_one_on_top() -> None:
    base = states.gradient(recovered=False)
    (about,) = base.incidents
    pair = [
        fixture.alert(0, starts_at=states.at(60), fingerprint=name, name=name, severity=name, incident=about.id)
        for name in ("critical", "warning")
    ]
    found = drawn(replace(base, annotations=tuple(replace(e, time=states.at(61)) for e in pair)))
    marks = [row for row in found.rows["points"] if row["shape"] == "triangle-down"]
    warning, critical = theme("light")["suspect"], theme("light")["tainted"]
    assert [mark["fill"] for mark in marks] == [warning, critical]
    assert marks[0]["y"] - marks[1]["y"] == LOWER
    assert {row["fill"]: row["y"] for row in found.rows["lines"]} == {m["fill"]: m["y"] for m in marks}


def test_the_windows_left_edge_is_dashed_and_its_right_edge_solid() -> None:
    found = drawn(states.gradient())
    rules = [
        layer["mark"]
        for layer in timeline_spec(found.lanes, "light")["layer"]
        if layer["data"]["name"] == "band" and layer["mark"]["type"] == "rule"
    ]
    assert ["strokeDash" in mark for mark in rules] == [True, False]
    assert len(found.rows["band"]) == 1


def test_a_contained_step_has_no_band() -> None:
    assert drawn(states.cleared()).rows["band"] == []


def test_a_finding_stands_where_it_became_known_and_says_when() -> None:
    found = drawn(states.gradient())
    row = labels(found)["replay · rank 3 · known 02:33:42"]
    assert row["at"] == 1000 * unix(states.at(102))
    assert [mark["until"] for mark in found.rows["dashed"]] == [row["at"]]


def test_a_label_knows_its_neighbours() -> None:
    found = drawn(states.gradient())
    row = labels(found)["replay · rank 3 · known 02:33:42"]
    recovered = labels(found)["Recovered by attempt 2"]
    assert (row["after"], row["before"]) == (recovered["start"], -FAR)
    assert (recovered["before"], recovered["before_w"], recovered["after"]) == (row["at"], row["w"], FAR)
    assert row["w"] > width_of(row["label"])


def test_a_word_of_east_asia_takes_twice_the_room() -> None:
    assert width_of("検査済み") == 2 * width_of("abcd")


def test_a_long_note_is_cut_in_the_picture_alone() -> None:
    base = states.gradient()
    said = fixture.event("note", 0, 1, {"incident": base.incidents[0].id, "text": "x" * 500, "author": "mira"})
    found = drawn(replace(base, annotations=(replace(said, time=states.at(110)),)))
    (label,) = (text for text in labels(found) if "xxx" in text)
    assert label.endswith("…")
    assert len(label) == 60
    assert any("x" * 500 in text for text in events(found))


def test_other_incidents_of_the_run_are_marked_in_a_wider_picture() -> None:
    base = states.gradient()
    other = replace(base.incidents[0], id="r-other", opened_at=states.at(20), findings=())
    found = drawn(replace(base, incidents=(base.incidents[0], other)))
    assert "incident r-other: attributed: rank 3" in events(found)
    assert "incident r-other" in labels(found)


def test_steps_are_numbered_wherever_one_zooms() -> None:
    state = states.gradient()
    for low, high in ((0, 100), (48, 52), (60, 64)):
        begin, end = unix(states.at(low)), unix(states.at(high))
        found = drawn(state, frame=Frame(begin, end, unix(state.last_event_at), zoomed=True))
        told = [int(row["label"]) for row in found.rows["steps"]]
        assert len(told) >= 2, (low, high)
        assert told == sorted(told)
        assert all(begin <= row["at"] / 1000 <= end for row in found.rows["steps"])


def test_a_zoom_beside_everything_draws_an_empty_picture_with_all_lanes_of_checks() -> None:
    state = states.gradient()
    end = unix(state.last_event_at)
    found = drawn(state, frame=Frame(end + 1e6, end + 1e6 + 60, end, zoomed=True))
    assert {"attempts", "steps", "finite", "replay"} <= set(found.lanes)
    assert events(found) == set()
    assert found.lanes == drawn(state).lanes  # so the picture stays the same one


def test_what_was_said_after_the_run_stands_at_its_edge() -> None:
    base = states.gradient()
    said = fixture.event("note", 0, 1, {"incident": base.incidents[0].id, "text": "a week later", "author": "mira"})
    state = replace(base, annotations=(replace(said, time=states.at(700_000)),))
    (row,) = (row for row in drawn(state).rows["points"] if "a week later" in row["event"])
    assert row["at"] == 1000 * unix(base.last_event_at)
    assert row["event"].startswith("later, 07 Dec ")


def test_labels_are_short() -> None:
    state = states.gradient()
    found = {label_of(e) for e in entries_of(state, state.incidents[0], state.attempts, StepClock(state))}
    assert {"replay · rank 3 · known 02:33:42", "Recovered by attempt 2", ""} <= found
    assert max(len(text) for text in found) <= 60
