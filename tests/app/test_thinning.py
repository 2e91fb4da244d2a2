"""Hold what a dense timeline leaves out: trusted saves for want of room, and nothing else unsaid."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from lastgood.timeline import TimelineEntry
from lastgood.timeline_entry import Tone, entry_of
from lastgood_console.export.lane import lowered
from lastgood_console.export.thinning import NEAR_MARKS, NEAR_SAVES, place, thinned

START = datetime(2026, 11, 29, tzinfo=UTC)
NOW = "2027-01-01T00:00:00.000000Z"


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def made(lane: str, kind: str, tone: Tone, seconds: float, text: str, until: float | None = None) -> TimelineEntry:
    end = None if until is None else at(until)
    return entry_of(lane, kind, tone, "", 1, int(seconds), at(seconds), text, until=end)


def seconds_of(entry: TimelineEntry) -> float:
    return (datetime.fromisoformat(place(entry)) - START).total_seconds()


def counted(entries: list[TimelineEntry]) -> int:
    """Return for how many entries the marks speak."""
    return sum(int(found[1]) if (found := re.match(r"(?:\w+ failed )?(\d+) ", e.text)) else 1 for e in entries)


times = st.lists(st.floats(0, 5_000, allow_nan=False).map(lambda s: round(s, 3)), max_size=80)


@given(times, st.sampled_from([0.1, 1.0, 50.0]))
def test_every_finding_is_drawn_or_counted_and_no_two_marks_hide_each_other(places: list[float], pixel: float) -> None:
    found = [made("findings", "finding", "accused", s, f"Replay failed: rank {n}") for n, s in enumerate(places)]
    shown = thinned(found, pixel, NOW)
    assert counted(shown) == len(found)
    spots = sorted(map(seconds_of, shown))
    near = NEAR_MARKS * pixel - 1e-6  # what is left of a microsecond in seconds since 1970
    assert all(b - a > near for a, b in zip(spots, spots[1:], strict=False))


@given(times, st.sampled_from([0.1, 1.0, 50.0]))
def test_every_failed_check_is_drawn_or_counted(places: list[float], pixel: float) -> None:
    found = [made("replay", "failed", "accused", s, f"replay failed at step {n}") for n, s in enumerate(places)]
    shown = thinned(found, pixel, NOW)
    told = sum(int(e.text.split(" ")[2]) if " times, first" in e.text else 1 for e in shown)
    assert told == len(found)


tones: st.SearchStrategy[Tone] = st.sampled_from(["trusted", "unverified", "suspect", "tainted", "missing"])


@given(st.lists(st.tuples(st.integers(0, 5_000), tones), max_size=80, unique_by=lambda p: p[0]), st.integers(0, 79))
def test_only_trusted_saves_are_left_out_and_never_those_the_page_names(
    saves: list[tuple[int, Tone]], named: int
) -> None:
    found = [made("saves", "saved", tone, s, f"checkpoints/{s}: {tone}") for s, tone in saves]
    kept = frozenset({(1, saves[named % len(saves)][0])} if saves else set())
    shown = thinned(found, 10.0, NOW, kept)
    odd = Counter({tone: 0 for tone in ("unverified", "suspect", "tainted", "missing")})
    for e in shown:
        if re.match(r"\d+ saves, ", e.text):
            odd.update({tone: int(count) for count, tone in re.findall(r"(\d+) (\w+)", e.text.rpartition(": ")[2])})
        elif e.tone != "trusted":
            odd[e.tone] += 1
    assert odd == Counter({tone: sum(t == tone for _, t in saves) for tone in odd})
    for _, step in kept:
        grave = [s for s, tone in saves if tone != "trusted" and abs(s - step) < NEAR_MARKS * 10.0]
        assert grave or any(e.step == step for e in shown)
    trusted = [seconds_of(e) for e in shown if e.tone == "trusted" and (e.attempt, e.step) not in kept]
    others = [seconds_of(e) for e in shown]
    for spot in trusted:
        assert sum(abs(spot - other) < NEAR_SAVES * 10.0 for other in others) == 1  # itself


def test_a_trusted_save_with_room_beside_it_stays() -> None:
    found = [made("saves", "saved", "trusted", 100 * n, f"checkpoints/{n}: trusted") for n in range(20)]
    assert len(thinned(found, 1.0, NOW)) == 20
    assert 5 <= len(thinned(found, 20.0, NOW)) <= 7


def test_passes_become_a_bar_with_gaps_where_nothing_ran() -> None:
    ticks = [made("replica", "passed", "trusted", s, "replica passed") for s in (*range(0, 100), *range(200, 300))]
    assert [(e.kind, e.text) for e in thinned(ticks, 1.0, NOW)] == [("ran", "replica passed 100 times")] * 2
    assert len(thinned(ticks, 0.01, NOW)) == 200
    twins = [made("replica", "passed", "trusted", s, "replica passed") for s in (10, 11)]
    (tick,) = thinned(twins, 1.0, NOW)  # a bar of one pixel is none
    assert (tick.kind, tick.text, tick.until) == ("passed", "replica passed 2 times", tick.at)


def test_a_failure_is_not_swallowed_by_the_passes_around_it() -> None:
    ticks = [made("replica", "passed", "trusted", s, "replica passed") for s in range(100)]
    shown = thinned([*ticks, made("replica", "failed", "accused", 50.5, "replica failed at step 50")], 1.0, NOW)
    assert {e.kind for e in shown} == {"ran", "failed"}


def test_short_attempts_are_one_bar_and_long_ones_stay() -> None:
    def attempt(number: int, low: float, high: float) -> TimelineEntry:
        e = entry_of("attempts", "attempt", "neutral", "", number, 0, at(low), f"attempt {number}", until=at(high))
        return e

    short = [attempt(n, n * 2.0, n * 2.0 + 1.9) for n in range(1, 51)]
    long = attempt(51, 102.0, 5_000.0)
    shown = thinned([*short, long], 1.0, NOW)
    assert [e.text for e in shown] == ["attempts 1 to 50 · 50 short ones", "attempt 51"]


def test_three_alerts_at_one_place_are_one_as_grave_as_the_gravest() -> None:
    tones: tuple[Tone, ...] = ("warning", "critical", "info")
    found = [made("alerts", "alert", tone, n, f"Rule{n}: said", until=90 + n) for n, tone in enumerate(tones)]
    (shown,) = thinned(found, 1.0, NOW)
    assert (shown.tone, shown.text, shown.at, shown.until) == (
        "critical", "3 alerts: Rule0, Rule1, Rule2", at(0), at(92),
    )  # fmt: skip


@given(times)
def test_alerts_that_are_drawn_can_be_told_apart(places: list[float]) -> None:
    found = [made("alerts", "alert", "warning", s, f"Rule{n}: said") for n, s in enumerate(places)]
    shown = sorted(thinned(found, 1.0, NOW), key=place)
    spots = [seconds_of(e) for e in shown]
    low = lowered([(s, "warning") for s in spots], NEAR_MARKS)
    for n, spot in enumerate(spots):
        same = [m for m in range(len(spots)) if m != n and low[m] == low[n] and abs(spots[m] - spot) < NEAR_MARKS]
        assert same == [] or all(low[m] for m in (n, *same))


def test_many_restarts_say_how_many_and_how_long() -> None:
    found = [made("restarts", "restart", "neutral", 3 * n, "Restarted", until=3 * n + 2) for n in range(30)]
    (shown,) = thinned(found, 2.0, NOW)
    assert shown.text == "30 restarts, 1 min in all"


def test_notes_at_one_place_are_one_and_late_ones_stand_at_the_edge() -> None:
    late = [made("notes", "note", "note", 1e9 + n, f"Note: {n}") for n in range(5)]
    (shown,) = thinned(late, 1.0, NOW)
    assert (shown.at, shown.text) == (NOW,
        "5 notes: later, 07 Aug 01:46:40: Note: 0; later, 07 Aug 01:46:41: Note: 1; "
        "later, 07 Aug 01:46:42: Note: 2; and 2 more",
    )  # fmt: skip


def test_a_verdict_or_an_end_that_lies_on_its_finding_gives_way() -> None:
    finding = made("findings", "finding", "accused", 100, "Replay failed: rank 3")
    near, far = (made("findings", "recovered", "trusted", s, "Recovered by attempt 2") for s in (110, 300))
    assert [e.kind for e in thinned([finding, near, far], 1.0, NOW)] == ["finding", "recovered"]


def test_a_suspect_save_is_not_hidden_by_the_trusted_one_that_the_page_names() -> None:
    found = [made("saves", "saved", "trusted", 100, "a: trusted"), made("saves", "saved", "suspect", 105, "b: suspect")]
    kept = frozenset({(1, 100)})
    assert [e.tone for e in thinned(found, 1.0, NOW, kept)] == ["suspect"]
    assert {e.tone for e in thinned(found, 0.1, NOW, kept)} == {"suspect", "trusted"}


def test_an_alert_that_came_later_stands_at_the_edge_with_its_time() -> None:
    (shown,) = thinned([made("alerts", "alert", "critical", 1e9, "ReplayMismatch: said", until=2e9)], 1.0, NOW)
    assert (shown.at, shown.until, shown.text) == (NOW, NOW, "ReplayMismatch: said (07 Aug 01:46:40)")


def test_saves_at_one_place_are_one_mark_as_grave_as_the_gravest() -> None:
    tones: tuple[Tone, ...] = ("unverified", "tainted", "suspect", "unverified")
    found = [made("saves", "saved", tone, 100 + n, f"checkpoints/{n}: {tone}") for n, tone in enumerate(tones)]
    (shown,) = thinned(found, 1.0, NOW)
    assert (shown.tone, shown.at) == ("tainted", at(100))
    assert shown.text == "4 saves, steps 100 to 103: 2 unverified, 1 tainted, 1 suspect"
