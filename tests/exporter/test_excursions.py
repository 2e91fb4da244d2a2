"""A device that leaves its range is told in few lines, stands in the incident's story, and accuses nobody."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app.fixtures import states
from tests.exporter.histories import History

from lastgood import schema, timeline
from lastgood.devices import ExcursionRules, Limits, Reading
from lastgood.events import Event, timestamp_of, utc
from lastgood.state import Place, RunState
from lastgood.timeline import TimelineEntry

PLACE = Place(3, "node-b", "GPU-8c1e4a", 1)
START = 1_795_921_082.0


def run(readings: list[Reading], *, every: float = 5.0, limits: Limits | None = None) -> list[dict[str, Any]]:
    """Return what is told of readings ``every`` seconds."""
    rules = ExcursionRules(PLACE, limits or Limits())
    return [data for i, reading in enumerate(readings) for data in rules.take(reading, START + every * i)]


def margins(*values: float | None) -> list[Reading]:
    return [Reading(margin_celsius=value) for value in values]


def powers(*values: float) -> list[Reading]:
    return [Reading(power_watts=value) for value in values]


# --- what begins and ends one -----------------------------------------------------------------------------------------


def test_a_margin_at_the_limit_three_times_in_a_row_is_an_excursion_from_the_first_of_them() -> None:
    (told,) = run(margins(20, 4, 3, 5))
    assert schema.problem("device.excursion", told) is None
    assert (told["nature"], told["state"], told["value"], told["limit"], told["unit"]) == (
        "thermal_margin", "started", 3, 5, "celsius")  # fmt: skip
    assert (told["started"], told["ended"]) == (utc(START + 5), None)
    assert told["text"] == "rank 3 (node-b, GPU-8c1e…, slot 1): 3 °C left before it slows itself down (limit 5 °C)"


@pytest.mark.parametrize("values", [(20, 4, 3, 20, 4, 3, 20), (5.1,) * 9, (None,) * 9, (3, None, 3, None, 9)])
def test_less_than_three_in_a_row_or_just_above_the_limit_is_none(values: tuple[float | None, ...]) -> None:
    assert run(margins(*values)) == []


def test_a_reading_without_an_answer_neither_breaks_nor_ends_an_excursion() -> None:
    told = run(margins(3, None, 3, 3, None, None, None, None))
    assert [data["state"] for data in told] == ["started"]


def test_it_ends_well_inside_the_range_and_says_the_worst_value() -> None:
    told = run(margins(4, 4, 4, 1, 6, 7, 7, 7, 9, 9, 9))
    assert [data["state"] for data in told] == ["started", "ended"]
    assert (told[1]["value"], told[1]["ended"], told[1]["excursion"]) == (1, utc(START + 50), told[0]["excursion"])


def test_a_sensor_on_the_limit_for_a_day_is_one_line() -> None:
    noise = random.Random(0)
    assert len(run(margins(*(4 + 3 * noise.random() for _ in range(17_280))))) == 1


def test_a_sensor_that_flaps_for_a_day_is_told_at_most_twice_in_ten_minutes() -> None:
    day = run(margins(*([1, 1, 1, 20, 20, 20] * 2_880)))
    assert len(day) <= 2 * 24 * 6
    assert sum(data["kept_back"] for data in day) > 1_000


def test_one_that_began_in_the_quiet_time_and_lasts_is_told_after_it() -> None:
    told = run(margins(*[1] * 3, *[20] * 3, *[1] * 200))
    assert [data["state"] for data in told] == ["started", "ended", "started"]
    assert told[2]["started"] == utc(START + 30)


@given(st.lists(st.none() | st.floats(-10, 100), max_size=300))
def test_lines_alternate_and_are_few_whatever_the_sensor_says(values: list[float | None]) -> None:
    told = run(margins(*values))
    assert [data["state"] for data in told] == ["started", "ended"] * (len(told) // 2) + ["started"] * (len(told) % 2)
    assert len(told) <= 2 + 2 * (5 * len(values)) / 600
    assert all(data["value"] <= 5 for data in told)


def test_power_far_off_its_own_median_is_an_excursion() -> None:
    told = run(powers(*[640, 650, 645] * 8, 380, 370, 390, *[640] * 5))
    assert [(data["nature"], data["state"], data["value"], data["limit"]) for data in told] == [
        ("power_deviates", "started", 370, 645), ("power_deviates", "ended", 370, 645)]  # fmt: skip
    assert told[0]["text"].endswith("power 370 W, its own recent median 645 W")


def test_the_usual_power_learns_nothing_from_an_excursion_of_it() -> None:
    told = run(powers(*[640.0] * 20, *[384.0] * 120, *[640.0] * 5))
    assert [(data["state"], data["value"], data["limit"]) for data in told] == [
        ("started", 384, 640), ("ended", 384, 640)]  # fmt: skip
    assert told[1]["ended"] == utc(START + 5 * 142)


def test_after_half_an_hour_a_new_level_of_power_is_taken_as_the_usual_one_and_the_line_says_so() -> None:
    told = run(powers(*[640.0] * 120, *[390.0] * 200, *[384.0] * 300, *[640.0] * 3))
    assert [data["state"] for data in told] == ["started", "ended", "started"]
    assert (told[1]["value"], told[1]["limit"], told[1]["ended"]) == (384, 640, utc(START + 5 * 120 + 1_800))
    assert told[1]["text"].endswith(
        "power 384 W, its own recent median 640 W; 384 W are taken as its usual power from now on"
    )
    assert (told[2]["value"], told[2]["limit"]) == (640, 384)


def test_a_short_dip_is_noise_that_the_usual_power_knows() -> None:
    told = run(powers(*[640.0, 640.0, 400.0, 400.0] * 30, *[520.0] * 20))
    assert told == []


def test_nothing_is_said_of_power_before_the_usual_is_known() -> None:
    assert run(powers(*[640.0] * 11, 100.0)) == []


def test_new_memory_errors_are_told_and_what_was_there_before_is_not() -> None:
    told = run([Reading(ecc_uncorrected=7 + value, ecc_new=value) for value in (0, 0, 1, 1, 2, 3)])
    assert [(data["nature"], data["value"], data["state"]) for data in told] == [("uncorrected_ecc", 1, "ended")]
    assert told[0]["text"].endswith("1 new uncorrectable memory error")


def test_errors_in_the_quiet_time_are_told_together_after_it() -> None:
    told = run([Reading(ecc_new=float(value)) for value in range(125)])
    assert [data["value"] for data in told] == [1, 120]
    assert told[1]["started"] == utc(START + 10)


# --- where it stands --------------------------------------------------------------------------------------------------


def told_at(start: float, end: float | None, *, rank: int = 3, node: str = "node-b", number: int = 1) -> list[Event]:
    """Return the lines of an excursion; times in seconds since the story's beginning."""
    data = {"excursion": f"thermal_margin-{rank}-{number}", "nature": "thermal_margin", "sensor": "margin",
            "value": 3.0, "limit": 5.0, "unit": "celsius", "started": states.at(start), "rank": rank, "node": node,
            "gpu_uuid": f"cpu-{rank % 2}", "slot": rank % 2, "kept_back": 0, "text": f"rank {rank} is hot"}  # fmt: skip
    first = {**data, "state": "started", "ended": None}
    lines = [Event(f"x-{rank}-{number}", f"/lastgood/r/1/rank/{rank}", "device.excursion", states.at(start + 1),
                   "llama-7b", 1, first, rank=rank, node=node, step=49)]  # fmt: skip
    if end is not None:
        last = {**data, "state": "ended", "ended": states.at(end)}
        lines.append(Event(f"y-{rank}-{number}", lines[0].source, "device.excursion", states.at(end + 1), "llama-7b",
                           1, last, rank=rank, node=node, step=60))  # fmt: skip
    return lines


def shown(state: RunState) -> list[TimelineEntry]:
    return [e for e in timeline.entries(state, state.incidents[0]) if e.kind == "excursion"]


PACE = states.PACE


def test_an_excursion_inside_the_window_is_one_span_of_the_story_with_both_clocks() -> None:
    (entry,) = shown(states.gradient(annotations=tuple(told_at(60 * PACE, 70 * PACE))))
    assert (entry.at, entry.until, entry.known_at) == (
        states.at(60 * PACE), states.at(70 * PACE), states.at(60 * PACE + 1))  # fmt: skip
    assert (entry.text, entry.lane, entry.tone, entry.in_story) == (
        "Device excursion of 2 min 30 s: rank 3 is hot", "alerts", "warning", True)  # fmt: skip


def test_the_story_says_the_worst_value_of_an_excursion_and_how_long_it_lasted() -> None:
    first, last = told_at(60 * PACE, 70 * PACE)
    high = replace(first, data={**first.data, "value": 4.0, "text": "rank 3: 4 °C left"})
    for lines in ((high, last), (first, replace(last, data={**high.data, **_end_of(last)}))):
        (entry,) = shown(states.gradient(annotations=lines))
        assert entry.text == "Device excursion of 2 min 30 s: rank 3 is hot"
    (entry,) = shown(states.gradient(annotations=(high,)))
    assert entry.text == "Device excursion: rank 3: 4 °C left"


def _end_of(last: Event) -> dict[str, Any]:
    return {key: last.data[key] for key in ("state", "ended")}


@pytest.mark.parametrize(
    ("start", "end", "there"), [(10, 20, False), (10, 60, True), (99, None, True), (10, None, True)]
)
def test_only_what_overlaps_the_window_is_shown(start: float, end: float | None, there: bool) -> None:
    lines = told_at(start * PACE, None if end is None else end * PACE)
    assert bool(shown(states.gradient(annotations=tuple(lines)))) is there


def test_a_contained_step_shows_what_was_out_of_range_while_it_ran() -> None:
    during, before = told_at(60 * PACE, 68 * PACE), told_at(10 * PACE, 20 * PACE, number=2)
    assert len(shown(replace(states.reduce_all(), annotations=(*during, *before)))) == 1


def test_of_many_excursions_those_of_suspects_are_named_and_the_rest_is_counted() -> None:
    many = [e for r in range(40, 240) for e in told_at(60 * PACE + r / 100, 70 * PACE, rank=r, node=f"n{r // 8}")]
    entries = shown(states.gradient(annotations=(*many, *told_at(69 * PACE, 70 * PACE))))
    assert len(entries) == 7
    assert sum("rank 3 is hot" in e.text for e in entries) == 1
    assert any(e.text == "195 more device excursions on 25 nodes" for e in entries)


def test_an_excursion_is_kept_in_the_state_and_changes_nothing_else() -> None:
    history = History().start().audit(50).save(75).audit(100, failed=[3])
    plain = history.state()
    at = timestamp_of(history.events[0].time)
    event = Event("x-1", "/lastgood/llama-7b/1/rank/3", "device.excursion", utc(at + 1), "llama-7b", 1,
                  dict(told_at(1, None)[0].data), rank=3, node="node-b", step=49)  # fmt: skip
    history.events.append(event)
    told = history.state()
    assert told.annotations == (event,)
    for part in ("attempts", "findings", "verdicts", "incidents", "checkpoints", "last_good", "checks"):
        assert getattr(told, part) == getattr(plain, part), part


def test_the_page_says_the_limits_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "checks.md").read_text(encoding="utf-8")
    limits = Limits()
    assert f"{limits.margin_celsius:.0f} °C or less" in page
    assert f"{limits.margin_clear_celsius:.0f} °C or more" in page
    assert f"{limits.power_share:.0%}".replace("%", " % off") in page
    assert f"last {limits.power_readings} readings | within {limits.power_clear_share * 100:.0f} %" in page
    assert (limits.begin_readings, limits.end_readings, limits.quiet_seconds) == (3, 3, 600)
    assert f"lasts {limits.power_accept_seconds / 60:.0f} minutes" in page
