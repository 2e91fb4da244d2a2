"""Say which labels the picture of a timeline has and how much room each needs. Pure.

Whether a label has that room is for the browser to see, which alone knows the width and the zoom: a row says where
the neighbours stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from unicodedata import east_asian_width

from lastgood.events import CHECKS
from lastgood.state import NOT_IN_METRICS, Attempt, Incident, Point
from lastgood.step_clock import StepClock
from lastgood.timeline import TimelineEntry
from lastgood.wording import clock_text, step_text
from lastgood_console.components.time_frame import Frame, end_of, stamp, unix
from lastgood_console.components.timeline_chart import Row
from lastgood_console.export.lane import IMPORTANCE
from lastgood_console.export.thinning import place, short_alert

WIDTH: Final = 800.0
"""Width in pixels for which marks are kept apart: that of a small window, since only the browser knows its own."""
LETTER_WIDTH: Final = 5.7
"""Mean width in pixels of a letter of an 11 px label."""
MOST_LETTERS: Final = 60
FAR: Final = 1e14
"""Milliseconds: where the neighbour of the first and the last mark of a lane stands."""
MARK_WIDTH: Final = 10.0
STEPS_APART: Final = 70.0
MOST_STEPS: Final = 11


def width_of(text: str) -> float:
    """Estimate the width of a label in pixels; letters of East Asia are twice as wide."""
    return LETTER_WIDTH * sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def label_of(entry: TimelineEntry) -> str:
    """Return the short label beside a mark; empty when the mark says it."""
    text = _label(entry)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _label(entry: TimelineEntry) -> str:
    match entry.kind:
        case "finding":
            return f"{_subject(entry.text)} · known {clock_text(entry.known_at)}"
        case "alert" if entry.text.endswith(" resolved"):
            return ""
        case "note" | "action" | "restart":
            return entry.text
        case "alert" | "excursion":
            return short_alert(entry)
        case "recovered" | "closed" | "refused" | "failed_save" | "other":
            return entry.text.split(":")[0]
        case "not_run" if entry.lane in CHECKS and entry.until > entry.at:
            return "not run"
        case _:
            return ""


def _subject(text: str) -> str:
    """Shorten ``Replay failed: rank 3, layers.2.mlp.up`` to ``replay · rank 3``."""
    what, _, who = text.partition(": ")
    return " · ".join([what.split(" failed")[0].lower(), *([who.split(",")[0]] if who else [])])


def label_rows(found: Sequence[TimelineEntry], middles: Mapping[str, float], colours: Mapping[str, str]) -> list[Row]:
    """Return a row for each label: where it stands, how wide it is, and its neighbours in the lane."""
    lanes: dict[str, list[TimelineEntry]] = {}
    for entry in found:
        if entry.kind not in ("attempt", "passed", "ran", "verdict"):
            lanes.setdefault(entry.lane, []).append(entry)
    out: list[Row] = []
    for lane, marks in lanes.items():
        out += _lane(sorted(marks, key=_in_turn), middles[lane], colours["ink2"])
    return out


def _lane(marks: Sequence[TimelineEntry], y: float, ink: str) -> Iterator[Row]:
    before, before_width = -FAR, 0.0
    starts = [_ms(_start(e)) for e in marks] + [FAR]
    for entry, after in zip(marks, starts[1:], strict=True):
        label = label_of(entry)
        wide = width_of(label) + MARK_WIDTH + 4
        if label:
            is_alert = entry.lane == "alerts"  # it lasts: its label stands above its line
            yield {
                "at": _ms(_anchor(entry)), "until": _ms(entry.until if is_alert else _anchor(entry)),
                "start": _ms(_start(entry)), "after": after,
                "before": FAR if entry.kind == "not_run" else before,  # its line's left end is not where it is said
                "before_w": before_width, "y": y,
                "label": label, "w": wide, "ink": ink, "dx": 9.0 if is_alert else 11.0, "dy": -7.0 if is_alert else 0.0,
                # left of a finding runs the line back into its window
                "left_dy": -8.0 if is_alert or entry.kind == "finding" else 0.0,
            }  # fmt: skip
        before, before_width = _ms(_anchor(entry)), wide if label else MARK_WIDTH


def untold_row(y: float, ink: str) -> Row:
    """Return the label of a lane of which metrics do not tell, at the left edge wherever one zooms."""
    return {
        "at": -FAR, "until": FAR, "start": FAR, "after": FAR, "before": FAR, "before_w": 0.0, "y": y,
        "label": NOT_IN_METRICS, "w": width_of(NOT_IN_METRICS) + MARK_WIDTH, "ink": ink, "dx": 6.0, "dy": 0.0,
        "left_dy": 0.0,
    }  # fmt: skip


def _in_turn(entry: TimelineEntry) -> tuple[str, int]:
    """Of two marks at the same place the right label is the second one's, and the more important one's."""
    return _anchor(entry), IMPORTANCE.get(entry.tone, 0)


def _anchor(entry: TimelineEntry) -> str:
    return place(entry) if entry.lane in ("alerts", "findings") else entry.until


def _start(entry: TimelineEntry) -> str:
    return place(entry)


def _ms(time: str) -> float:
    return 1000 * unix(time)


def name_rows(found: Sequence[TimelineEntry], middles: Mapping[str, float], colours: Mapping[str, str]) -> list[Row]:
    """Return the names inside the bars of attempts, each with a short form."""
    out = []
    for entry in found:
        if entry.kind == "attempt":
            short = entry.text.partition(" · ")[0]
            out.append({
                "at": _ms(entry.at), "until": _ms(entry.until), "y": middles[entry.lane], "ink": colours["ink"],
                "label": entry.text, "w": width_of(entry.text) + 10, "short": short, "short_w": width_of(short) + 10,
            })  # fmt: skip
    return out


# steps


def step_rows(
    shown: Sequence[Attempt],
    incident: Incident,
    clock: StepClock,
    frame: Frame,
    y: float,
    colours: Mapping[str, str],
) -> list[Row]:
    """Return the step numbers of a time: the window's edges first, then the ends of attempts, then round steps."""
    apart = frame.span * STEPS_APART / WIDTH
    placed: dict[float, int] = {}
    for step, at in _wanted(shown, incident, clock, frame):
        if frame.low <= at <= frame.high and all(abs(at - other) >= apart for other in placed):
            placed[at] = step
    out = []
    for (at, step), (after, _) in pairwise([*sorted(placed.items()), (FAR / 1000, 0)]):
        out.append({
            "at": 1000 * at, "until": 1000 * at, "after": 1000 * after, "y": y, "label": step_text(step),
            "w": width_of(step_text(step)) + 6, "ink": colours["ink3"],
        })  # fmt: skip
    return out


def _wanted(
    shown: Sequence[Attempt], incident: Incident, clock: StepClock, frame: Frame
) -> Iterator[tuple[int, float]]:
    window = incident.window
    points = []
    if window is not None:
        points = [Point(window.end_attempt, window.end), Point(window.start_attempt, window.start)]
    seen = [a for a in shown if unix(end_of(a)) >= frame.low and unix(a.started_at) <= frame.high]
    points += [Point(a.number, a.from_step) for a in seen] + [Point(a.number, a.last_step) for a in seen]
    for attempt in sorted(seen, key=lambda a: unix(a.started_at) - unix(end_of(a)))[:MOST_STEPS]:
        points += [Point(attempt.number, step) for step in _round_steps(attempt, clock, frame)]
    for point in points:
        at = clock.at(point)
        if at is not None:
            yield point.step, unix(at)


def _round_steps(attempt: Attempt, clock: StepClock, frame: Frame) -> range:
    """Return about ten round steps of what is shown of an attempt."""
    first = clock.step_at(attempt.number, stamp(frame.low))
    last = clock.step_at(attempt.number, stamp(frame.high))
    if first is None or last is None or last <= first:
        return range(0)
    stride = next(n * 10**e for e in range(15) for n in (1, 2, 5) if (last - first) / (n * 10**e) <= MOST_STEPS)
    return range(first - first % stride + stride, last + 1, stride)
