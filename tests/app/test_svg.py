from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.app.fixtures import states

from lastgood.state import RunState
from lastgood_console.export import document, peers_chart, svg, symbols

C = symbols.C
NS = "{http://www.w3.org/2000/svg}"


def drawn(state: RunState) -> str:
    return svg.timeline_svg(document.to_document(state, state.incidents[0]))


def texts(picture: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(picture).iter(f"{NS}text")]


@pytest.mark.parametrize("row", states.ROWS)
def test_every_row_is_well_formed_and_the_same_bytes_each_time(row: str) -> None:
    assert drawn(states.ROWS[row]()) == drawn(states.ROWS[row]())
    assert ElementTree.fromstring(drawn(states.ROWS[row]())).tag == f"{NS}svg"


def test_lanes_steps_and_labels_are_there() -> None:
    found = texts(drawn(states.gradient()))
    assert {"attempts", "steps", "finite", "conservation", "replica", "replay", "at_rest", "findings"} <= set(found)
    assert {"25", "50", "75", "100", "not run"} <= set(found)
    assert {"attempt 1 · stopped at step 100", "rank 3, known 02:57:02"} <= {t.strip("\u2068\u2069") for t in found}


def twins(first: str, second: str) -> RunState:
    """Return a story with two alerts that began in the same second."""
    pair = [
        states.alert(1_531, starts_at=states.at(1_529), fingerprint=name, name=name, severity=severity)
        for name, severity in ((first, "critical"), (second, "warning"))
    ]
    return states.gradient(annotations=tuple(pair if first < second else reversed(pair)))


@pytest.mark.parametrize(("critical", "warning"), [("Aaa", "Bbb"), ("Bbb", "Aaa")])
def test_of_two_alerts_of_the_same_second_both_are_seen_the_critical_one_on_top(critical: str, warning: str) -> None:
    picture = drawn(twins(critical, warning))
    found = [n for n in ElementTree.fromstring(picture).iter(f"{NS}line") if n.get("stroke-width") == "1.4"]
    lines = [n for n in found if n.get("stroke") in (C["suspect"], C["tainted"]) and not n.get("stroke-dasharray")]
    assert [n.get("stroke") for n in lines] == [C["suspect"], C["tainted"]]
    at = {n.get("stroke"): float(n.get("y1", "")) for n in lines}
    assert at[C["suspect"]] - at[C["tainted"]] == pytest.approx(svg.LOWER, abs=0.11)
    assert {critical, warning} <= set(texts(picture))


def test_the_window_is_dashed_at_its_start_and_solid_at_its_end() -> None:
    root = ElementTree.fromstring(drawn(states.gradient()))
    edges = [line for line in root.iter(f"{NS}line") if line.get("stroke") == C["edge"]]
    assert [edge.get("stroke-dasharray") for edge in edges] == ["4 3", None]
    assert float(edges[0].get("x1", 0)) < float(edges[1].get("x1", 0))


def test_a_contained_finding_has_no_window() -> None:
    assert C["band"] not in drawn(states.reduce_all()).split("</defs>")[1]


def test_nothing_stands_outside_the_picture() -> None:
    for row in states.ROWS.values():
        for node in ElementTree.fromstring(drawn(row())).iter():
            xs = [float(node.get(name, "0")) for name in ("x", "x1", "x2", "cx")]
            assert max(xs) <= svg.WIDTH + 0.1


def test_labels_in_a_lane_do_not_meet() -> None:
    state = states.gradient()
    words = [{"text": f"word {i} " * 4, "author": "m", "incident": "r-3f2a91c0"} for i in range(30)]
    notes = tuple(states.event("note", 1_600 + i, 1, said) for i, said in enumerate(words))
    about = replace(state.incidents[0], actions=notes)
    root = ElementTree.fromstring(svg.timeline_svg(document.to_document(state, about)))
    shown = [n for n in root.iter(f"{NS}text") if "word" in "".join(n.itertext())]
    spans = sorted((float(n.get("x", 0)), svg.width_of("".join(n.itertext()))) for n in shown)
    assert all(x + wide <= after + 1 for (x, wide), (after, _) in zip(spans, spans[1:], strict=False))


def test_words_of_people_are_escaped_and_isolated() -> None:
    state = states.gradient(annotations=())
    note = states.event(
        "note", 1_900, 1, {"text": "<script>\u05d0\u05d1</script>", "author": "מירה", "incident": "r-3f2a91c0"}
    )
    picture = svg.timeline_svg(document.to_document(state, replace(state.incidents[0], actions=(note,))))
    assert "<script>" not in picture
    assert "\u2068מירה: &lt;script&gt;" in picture


def test_a_picture_of_one_instant_is_still_drawn() -> None:
    state = states.two_nodes()
    now = states.at(0)
    only = replace(state.attempts[0], started_at=now, last_event_at=now, last_step_at=now, ended_at=now)
    about = replace(state.incidents[0], findings=(), verdicts=(), opened_at=now)
    flat = replace(state, attempts=(only,), rounds=(), checkpoints=(), incidents=(about,))
    assert "attempts" in texts(drawn(flat))


@pytest.mark.parametrize("seconds", [0.2, 8, 40, 400, 4_000, 90_000, 5_000_000])
def test_the_time_axis_has_a_few_round_times(seconds: float) -> None:
    low = datetime(2026, 11, 29, 2, 32, 1, tzinfo=UTC)
    labels = [label for _, label in svg.ticks(low, low + timedelta(seconds=seconds))]
    assert len(labels) <= 11
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("tone", ["trusted", "suspect", "tainted", "accused", "candidate", "confirmed"])
def test_no_two_meanings_share_a_shape(tone: str) -> None:
    shape = symbols.symbol(tone, 0, 0).replace(C["suspect"], "c").replace(C["tainted"], "c").replace(C["trusted"], "c")
    others = [t for t in symbols._SHAPES if t not in (tone, "critical", "warning")]
    assert shape not in [symbols.symbol(t, 0, 0).replace(C["suspect"], "c").replace(C["tainted"], "c") for t in others]


def peers(**changes: Any) -> dict[str, Any]:
    content = document.to_document(states.gradient(), states.gradient().incidents[0])
    found: dict[str, Any] = content["peers"][0]
    return found | changes


def test_the_peers_are_drawn_with_gaps_where_there_is_no_sample_or_no_number() -> None:
    picture = peers_chart.peers_svg(peers(), None)
    assert len([n for n in ElementTree.fromstring(picture).iter(f"{NS}polyline")]) == 2
    assert {"no sample", "NaN", "×", "rank 3", "p10 to p90", "median of peers"} <= set(texts(picture))


def test_a_zero_median_and_a_single_step_do_not_break_the_chart() -> None:
    window = {"start_attempt": 1, "end_attempt": 1, "start": 0, "end": 9, "contained": False}
    one = peers(steps=[5], suspect=[1.0], median=[0.0], p10=[0.0], p90=[0.0])
    assert "rank 3" in texts(peers_chart.peers_svg(one, window))


def test_zero_is_a_value_like_any_other() -> None:
    assert peers_chart.percents([0.0, None, "Infinity"], [2.0, 2.0, 2.0])[:2] == [-100.0, None]


def test_three_alerts_at_one_place_are_one_mark_that_counts_them() -> None:
    names = ("Aaa", "Bbb", "Ccc")
    alerts = tuple(states.alert(1_531, starts_at=states.at(1_529), fingerprint=name, name=name) for name in names)
    picture = drawn(states.gradient(annotations=alerts))
    assert "3 alerts" in texts(picture)
    assert not set(names) & set(texts(picture))


def test_of_a_thousand_saves_the_picture_keeps_what_is_not_trusted_and_what_it_names() -> None:
    base = states.gradient()
    many = [states.save(1, step, step * 1.0) for step in range(1, 1_000)]
    odd = [replace(many[n], trust="tainted", reason="wrong") for n in (300, 700)]
    state = replace(base, checkpoints=tuple(sorted({c.step: c for c in (*many, *base.checkpoints, *odd)}.values(),
                                                   key=lambda c: c.step)))  # fmt: skip
    picture = drawn(state)
    circles = [n for n in ElementTree.fromstring(picture).iter(f"{NS}circle") if n.get("fill") == C["trusted"]]
    assert 10 < len(circles) < 60
    spots = sorted(float(n.get("cx", 0)) for n in circles)
    assert sum(b - a < 9 for a, b in zip(spots, spots[1:], strict=False)) <= 2  # beside those that always stay
    assert len([n for n in ElementTree.fromstring(picture).iter(f"{NS}rect") if n.get("fill") == C["tainted"]]) == 2
