"""Hold the checkpoint strip to what it may and may not draw."""

from __future__ import annotations

from dataclasses import replace

from tests.app import console_states as states

from lastgood.state import Incident, LastGood, RunState, Window
from lastgood_console.components.strip import key_html, layout, spoken, strip_html


def test_a_line_per_attempt_that_descends_from_its_parent() -> None:
    strip = layout(states.gradient(recovered=False), states.gradient_incident(False))
    assert [(x.attempt, x.start, x.end, x.parent_row, x.running) for x in strip.lines] == [
        (1, 0, 100, None, False),
        (2, 50, 96, 0, True),
    ]
    assert [x.name for x in strip.lines] == ["attempt 1 stopped at 100", "attempt 2 at 96"]


def test_the_window_lies_only_on_the_attempt_that_it_covers() -> None:
    strip = layout(states.gradient(), states.gradient_incident(True))
    assert [(b.row, b.start, b.end, b.opens, b.closes) for b in strip.bands] == [(0, 50, 100, True, True)]
    assert {(m.row, m.step): m.trust for m in strip.marks if m.step == 75} == {(0, 75): "suspect", (1, 75): "trusted"}


def test_a_window_over_a_restart_lies_on_both_attempts_up_to_where_the_second_descends() -> None:
    window = Window(1, 25, 2, 96, False, "replay passed at 25")
    incident = replace(states.gradient_incident(False), window=window)
    bands = layout(states.gradient(recovered=False), incident).bands
    assert {(b.row, b.start, b.end, b.opens, b.closes) for b in bands} == {
        (0, 25, 50, True, False),
        (1, 50, 96, False, True),
    }


def test_a_contained_step_is_marked_by_its_own_number() -> None:
    state = states.cleared()
    strip = layout(state, state.incidents[0])
    assert 67 in strip.ticks
    assert 66 not in strip.ticks
    assert "step 67, contained: it is in no checkpoint" in key_html(strip)


def test_the_last_good_save_is_ringed_once_and_its_number_is_bold() -> None:
    html = strip_html(layout(states.gradient(), states.gradient_incident(True)))
    assert html.count("lg-lastgood") == 1
    assert 'class="lg-tick lg-tick-lastgood"' in html


def test_the_key_names_no_save_where_none_is_drawn() -> None:
    """As for a run that metrics alone tell, which have no single save."""
    state = replace(states.gradient(), checkpoints=())
    strip = layout(state, states.gradient_incident(True))
    assert strip.marks == ()
    key = key_html(strip)
    assert "window (50, 100]" in key
    for word in ("trusted", "unverified", "suspect", "tainted", "last good"):
        assert word not in key
    assert key_html(layout(replace(states.clean(), checkpoints=()))) == ""
    with_saves = key_html(layout(states.gradient(), states.gradient_incident(True)))
    assert all(word in with_saves for word in ("trusted", "unverified", "suspect", "tainted", "last good"))


def test_only_the_last_three_attempts_are_drawn_and_the_others_are_counted() -> None:
    base = states.clean(ended=False)
    many = tuple(replace(base.attempts[0], number=n, last_step=10 * n) for n in range(1, 420))
    strip = layout(replace(base, attempts=many, checkpoints=()))
    assert [x.attempt for x in strip.lines] == [417, 418, 419]
    assert "416 earlier attempts are not drawn" in key_html(strip)


def test_the_attempt_of_an_old_incident_is_drawn_all_the_same() -> None:
    base = states.clean(ended=False)
    many = tuple(replace(base.attempts[0], number=n) for n in range(1, 10))
    strip = layout(replace(base, attempts=many, checkpoints=()), states.gradient_incident(False))
    assert [x.attempt for x in strip.lines] == [1, 8, 9]


def test_trusted_saves_are_thinned_out_but_never_a_suspect_nor_the_last_good() -> None:
    base = states.clean()
    trusted = [states.checkpoint(1, s, s, "trusted", "") for s in range(0, 5000, 10)]  # 150, the last good, among them
    suspect = [states.checkpoint(1, s, s, "suspect", "") for s in (3335, 3345)]
    strip = layout(replace(base, checkpoints=(*trusted, *suspect)))
    assert len(strip.marks) <= 41
    assert [m.step for m in strip.marks if m.trust == "suspect"] == [3335, 3345]
    assert [m.step for m in strip.marks if m.last_good] == [150]


def test_a_list_zooms_to_the_newest_saves_and_keeps_the_window_and_the_last_good() -> None:
    base = states.clean()
    saves = tuple(states.checkpoint(1, s, s, "trusted", "") for s in range(0, 5001, 100))
    good = LastGood(1, 4900, states.path_of(1, 4900), "trusted", "")
    far = replace(base, checkpoints=saves, attempts=(replace(base.attempts[0], last_step=5000),), last_good=good)
    assert layout(far, newest_saves=5).low == 4560
    assert layout(replace(far, last_good=replace(good, step=3000)), newest_saves=5).low == 2800
    assert len(layout(replace(far, last_good=replace(good, step=0)), newest_saves=5).marks) <= 11


def test_step_numbers_never_meet_and_the_last_good_one_always_stands() -> None:
    base = states.clean()
    saves = tuple(states.checkpoint(1, s, s, "trusted", "") for s in range(0, 151, 5))
    strip = layout(replace(base, checkpoints=saves), tick_gap=0.1)
    shares = [strip.share(step) for step in strip.ticks]
    assert all(b - a >= 0.1 for a, b in zip(shares, shares[1:], strict=False))
    assert 150 in strip.ticks


def test_a_run_without_a_save_has_a_line_and_no_mark() -> None:
    strip = layout(states.empty())
    assert (len(strip.lines), strip.marks, strip.last_good_step) == (1, (), None)
    assert "lg-arrow" in strip_html(strip)


def test_what_is_drawn_is_also_said() -> None:
    said = spoken(layout(states.gradient(recovered=False), states.gradient_incident(False)))
    assert "step 50 last good, trusted" in said
    assert "step 75 suspect" in said
    assert "window (50, 100]" in said


def test_paths_and_reasons_are_escaped() -> None:
    base = states.clean()
    hostile = replace(base.checkpoints[0], path='a"><script>alert(1)</script>', reason="<b>")
    html = strip_html(layout(replace(base, checkpoints=(hostile,))))
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def long_run(count: int = 60) -> tuple[RunState, Incident]:
    """Return a run of many attempts with an old incident: found in attempt 10, recovered by attempt 12."""
    base = states.gradient()
    attempts = tuple(
        states.attempt(n, states.NODES[:3], 200.0 * n, 50 * n, 50 * n + 50, "error") for n in range(1, count)
    )
    window = Window(10, 520, 10, 550, False, "replay passed at 520")
    about = replace(base.incidents[0], window=window, attempt=10, recovered_by=12)
    saves = tuple(states.checkpoint(n, 50 * n + 25, 200.0 * n + 25, "trusted", "") for n in range(1, count))
    return replace(base, attempts=attempts, incidents=(about,), checkpoints=saves), about


def test_an_old_incident_is_drawn_with_the_attempt_that_recovered_and_nothing_of_later() -> None:
    state, about = long_run()
    strip = layout(state, about)
    assert [line.attempt for line in strip.lines] == [10, 11, 12]
    assert (strip.low, strip.high) == (500, 650)
    assert "9 earlier attempts are not drawn" in key_html(strip)
    assert "47 later attempts are not drawn" in key_html(strip)


def test_an_attempt_that_ended_left_of_the_shown_steps_is_no_tick_at_the_edge() -> None:
    state, _ = long_run(6)
    strip = layout(replace(state, last_good=replace(state.last_good, attempt=5, step=275)), newest_saves=1)
    assert all(line.end >= strip.low for line in strip.lines)
    assert len(strip.lines) < 3
    assert [line.row for line in strip.lines] == list(range(len(strip.lines)))


def test_a_step_number_at_the_left_edge_is_whole() -> None:
    assert 'class="lg-tick lg-tick-first"' in strip_html(layout(states.gradient(), states.gradient_incident(True)))
