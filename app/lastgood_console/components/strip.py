"""Draw the checkpoint strip: attempts as lines that descend from each other, saves with their trust, the window.

The window lies only on the attempts it covers; that shows why a save with the same step number in a later attempt is
not suspect. Must serve: the incident (full, names at the lines' ends), the overview's rows (small), runs with
hundreds of attempts (the last three are drawn, the rest counted) and thousands of saves (trusted ones are thinned
out, the others never). First :func:`layout`, which decides what is drawn and where in steps; then HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lastgood.state import NOT_IN_METRICS, Attempt, Checkpoint, Incident, RunState, Trust, Window
from lastgood.wording import TRUSTED_MEANS, step_text, window_text
from lastgood_console.characters import escape
from lastgood_console.components.symbols import symbol

MOST_LINES: Final = 3
MOST_SAVES: Final = 40
EDGE: Final = 0.025
"""A step number nearer to the left edge stands at its right, since it would be cut there."""
LETTER: Final = 0.0145
"""The share of the width that one letter of a step number takes where the page is narrow."""
NAME_ROOM: Final = 25
"""So many characters of a name at a line's end always have room; a longer name gets more."""
_HOW: Final = {"completed": "completed ", NOT_IN_METRICS: "ended "}
"""How an attempt came to its end, by the reason; else it stopped."""
ALWAYS_IN_KEY: Final[tuple[Trust, ...]] = ("trusted", "unverified", "suspect", "tainted")


@dataclass(frozen=True, slots=True)
class Line:
    """An attempt from its first to its last step. ``parent_row`` is None when it descends from nothing drawn."""

    row: int
    attempt: int
    start: int
    end: int
    parent_row: int | None
    running: bool
    name: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A save."""

    row: int
    step: int
    trust: Trust
    last_good: bool
    title: str


@dataclass(frozen=True, slots=True)
class Band:
    """The part of the window that lies on one attempt. Its left edge is outside the window, its right edge inside."""

    row: int
    start: int
    end: int
    opens: bool
    closes: bool


@dataclass(frozen=True, slots=True)
class Strip:
    """What is drawn. Positions are steps between ``low`` and ``high``."""

    low: int
    high: int
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    bands: tuple[Band, ...]
    ticks: tuple[int, ...]
    last_good_step: int | None
    earlier_attempts: int
    later_attempts: int
    window: Window | None

    def share(self, step: int) -> float:
        """Return where a step lies, from 0 (left) to 1 (right)."""
        span = self.high - self.low
        return 0.0 if span <= 0 else min(1.0, max(0.0, (step - self.low) / span))


def layout(
    state: RunState, incident: Incident | None = None, *, newest_saves: int | None = None, tick_gap: float = 0.07
) -> Strip:
    """Decide what to draw of a run.

    ``newest_saves`` zooms to so many last saves (and the last good one and the window). ``tick_gap``: the smallest
    share of the width between two step numbers.
    """
    window = incident.window if incident else None
    shown = _shown_attempts(state, incident)
    rows = {attempt.number: row for row, attempt in enumerate(shown)}
    saves = [c for c in state.checkpoints if c.attempt in rows]
    lines = tuple(_line(attempt, rows, state) for attempt in shown)
    low = _low(lines, saves, state, window, newest_saves)
    shown = [a for a, line in zip(shown, lines, strict=True) if line.end >= low]  # the others ended left of it
    rows = {attempt.number: row for row, attempt in enumerate(shown)}
    saves = [c for c in saves if c.attempt in rows]
    lines = tuple(_line(attempt, rows, state) for attempt in shown)
    most = MOST_SAVES if newest_saves is None else 2 * newest_saves
    saves = _thinned([c for c in saves if c.step >= low], state, most)
    marks = tuple(_mark(c, rows, state) for c in saves)
    bands = tuple(_bands(window, state.attempts, rows))
    high = max([low, *(x.end for x in lines), *(m.step for m in marks), *(b.end for b in bands)])
    strip = Strip(low, high, lines, marks, bands, (), _last_good_step(state, rows), *_not_drawn(state, shown), window)
    return _with_ticks(strip, tick_gap)  # fmt: skip


def _shown_attempts(state: RunState, incident: Incident | None) -> list[Attempt]:
    """Return the attempts of the window and the one that recovered; then those next to them, or the run's newest."""
    window = incident.window if incident else None
    wanted = {window.start_attempt, window.end_attempt} if window else set()
    over = incident.recovered_by if incident else None
    wanted |= {over} if over is not None else set()
    others = [a.number for a in state.attempts if a.number not in wanted]
    if over is None:
        others.reverse()
    else:  # what came after it says nothing about it
        others = sorted((n for n in others if n < over), reverse=True)
    wanted |= set(others[: max(0, MOST_LINES - len(wanted))])
    return [a for a in state.attempts if a.number in wanted]


def _not_drawn(state: RunState, shown: Sequence[Attempt]) -> tuple[int, int]:
    """Count the attempts before the last drawn one that are not drawn, and those after it."""
    last = max((a.number for a in shown), default=0)
    later = sum(a.number > last for a in state.attempts)
    return len(state.attempts) - len(shown) - later, later


def _line(attempt: Attempt, rows: dict[int, int], state: RunState) -> Line:
    parent = rows.get(attempt.parent.attempt) if attempt.parent else None
    running = attempt.ended_at is None and attempt is state.attempts[-1]
    saved = max((c.step for c in state.checkpoints if c.attempt == attempt.number), default=attempt.from_step)
    end = max(attempt.last_step, attempt.from_step, saved)
    how = "" if running else _HOW.get(attempt.end_reason or "", "stopped ")
    name = f"attempt {attempt.number} {how}at {step_text(end)}"
    return Line(rows[attempt.number], attempt.number, attempt.from_step, end, parent, running, name)


def _low(
    lines: Sequence[Line], saves: Sequence[Checkpoint], state: RunState, window: Window | None, newest: int | None
) -> int:
    first = min((x.start for x in lines), default=0)
    if newest is None or not saves:
        return first
    keep = [c.step for c in sorted(saves, key=lambda c: c.point)[-newest:]]
    keep += [state.last_good.step] if state.last_good.exists else []
    keep += [window.start] if window else []
    low = min(keep)
    return max(first, low - (max(x.end for x in lines) - low) // 10)


def _thinned(saves: list[Checkpoint], state: RunState, most: int) -> list[Checkpoint]:
    """Leave out evenly so many trusted saves that ``most`` remain; never the last good, never another trust."""
    if len(saves) <= most:
        return saves
    optional = [c for c in saves if c.trust == "trusted" and not is_last_good(c, state)]
    room = max(0, most - (len(saves) - len(optional)))
    stride = max(1, -(-len(optional) // room)) if room else len(optional) + 1
    kept = {c.point for i, c in enumerate(reversed(optional)) if i % stride == 0} if room else set()
    dropped = {c.point for c in optional} - kept
    return [c for c in saves if c.point not in dropped]


def is_last_good(checkpoint: Checkpoint, state: RunState) -> bool:
    """Tell whether this is the checkpoint to resume the run from."""
    good = state.last_good
    same = (checkpoint.attempt, checkpoint.step, checkpoint.path) == (good.attempt, good.step, good.path)
    return good.exists and same


def _last_good_step(state: RunState, rows: dict[int, int]) -> int | None:
    return state.last_good.step if state.last_good.exists and state.last_good.attempt in rows else None


def _mark(checkpoint: Checkpoint, rows: dict[int, int], state: RunState) -> Mark:
    good = is_last_good(checkpoint, state)
    words = f"{'last good, ' if good else ''}{checkpoint.trust}: {checkpoint.reason}"
    title = f"step {step_text(checkpoint.step)}, attempt {checkpoint.attempt} · {words} · {checkpoint.path}"
    return Mark(rows[checkpoint.attempt], checkpoint.step, checkpoint.trust, good, title)


def _bands(window: Window | None, attempts: Sequence[Attempt], rows: dict[int, int]) -> Iterable[Band]:
    """Yield the window's part of each drawn attempt on the way back from its end to its start."""
    by_number = {a.number: a for a in attempts}
    attempt = by_number.get(window.end_attempt) if window else None
    end = window.end if window else 0
    while window and attempt is not None and attempt.number >= window.start_attempt:
        first = attempt.number == window.start_attempt
        start = max(window.start, attempt.from_step) if first else attempt.from_step
        if attempt.number in rows and end > start:
            yield Band(rows[attempt.number], start, end, opens=first, closes=attempt.number == window.end_attempt)
        if first or attempt.parent is None or attempt.parent.attempt >= attempt.number:
            return
        end, attempt = attempt.parent.step, by_number.get(attempt.parent.attempt)


def _with_ticks(strip: Strip, gap: float) -> Strip:
    """Choose the step numbers: the last good one, then the window, then the saves, as far as they do not meet.

    ``gap``: the smallest share of the width between two of them; long numbers need more.
    """
    gap = max(gap, LETTER * len(step_text(strip.high)))
    outside = not (strip.window and strip.window.contained)
    edges = [b.end for b in strip.bands if b.closes] + [b.start for b in strip.bands if b.opens and outside]
    first = [strip.last_good_step] if strip.last_good_step is not None else []
    ends = [x for line in strip.lines for x in (line.start, line.end)]
    candidates = [*first, *edges, *sorted({m.step for m in strip.marks}), *ends]
    chosen: list[int] = []
    for step in candidates:
        if strip.low <= step and all(abs(strip.share(step) - strip.share(x)) >= gap for x in chosen):
            chosen.append(step)
    return Strip(strip.low, strip.high, strip.lines, strip.marks, strip.bands, tuple(sorted(chosen)),
                 strip.last_good_step, strip.earlier_attempts, strip.later_attempts, strip.window)  # fmt: skip


# HTML


def strip_html(strip: Strip, *, names: bool = True) -> str:
    """Return the strip; ``names``: with the attempts' names at the lines' ends (else the small form for lists)."""
    pitch, top = (24, 14) if names else (20, 13)
    height = top + pitch * len(strip.lines) + 12
    tops = {line.row: top + pitch * line.row for line in strip.lines}
    parts = [_band_html(strip, b, tops) for b in strip.bands]
    parts += [_line_html(strip, line, tops, names) for line in strip.lines]
    parts += [_mark_html(strip, m, tops) for m in strip.marks]
    parts += [_tick_html(strip, step, height - 18) for step in strip.ticks]
    kind = "lg-strip" if names else "lg-strip lg-strip-list"
    label = escape(spoken(strip), quote=True)
    room = f' style="--lg-name-room:{_name_room(strip)}ch"' if names else ""
    plot = f'<div class="lg-strip-plot"{room}>{"".join(parts)}</div>'
    return f'<div class="{kind}" role="img" aria-label="{label}" style="height:{height}px">{plot}</div>'


def _name_room(strip: Strip) -> int:
    """Return how many characters the longest name at a line's end has: the plot ends so far from the right edge."""
    return max(NAME_ROOM, *(len(line.name) for line in strip.lines), 0)


def spoken(strip: Strip) -> str:
    """Return the strip in words, for those who do not see it."""
    names = [line.name for line in strip.lines]
    saves = [f"step {step_text(m.step)} {'last good, ' if m.last_good else ''}{m.trust}" for m in strip.marks]
    window = [f"window {window_text(strip.window)}"] if strip.window else []
    return "Checkpoints: " + "; ".join([*names, *saves, *window])


def _at(strip: Strip, step: int, top: int, more: str = "") -> str:
    return f'style="left:{100 * strip.share(step):.3f}%;top:{top}px;{more}"'


def _between(strip: Strip, start: int, end: int, top: int) -> str:
    left, right = 100 * strip.share(start), 100 * strip.share(end)
    return f'style="left:{left:.3f}%;width:{max(0.0, right - left):.3f}%;top:{top}px"'


def _band_html(strip: Strip, band: Band, tops: dict[int, int]) -> str:
    classes = "lg-band" + (" lg-band-open" if band.opens else "") + (" lg-band-close" if band.closes else "")
    return f'<div class="{classes}" {_between(strip, band.start, band.end, tops[band.row])}></div>'


def _line_html(strip: Strip, line: Line, tops: dict[int, int], names: bool) -> str:
    top = tops[line.row]
    now = " lg-line-now" if line.running else ""
    out = f'<div class="lg-line{now}" {_between(strip, line.start, line.end, top)}></div>'
    end = "lg-arrow" if line.running else "lg-stop"
    out += f'<div class="{end}" {_at(strip, line.end, top)}></div>'
    if line.parent_row is not None and line.start >= strip.low:
        above = tops[line.parent_row]
        out += f'<div class="lg-elbow" {_at(strip, line.start, above, f"height:{top - above + 1}px")}></div>'
    if names:
        out += f'<div class="lg-name" {_at(strip, line.end, top)}>{escape(line.name)}</div>'
    return out


def _mark_html(strip: Strip, mark: Mark, tops: dict[int, int]) -> str:
    shape = symbol(mark.trust, last_good=mark.last_good)
    title = escape(mark.title, quote=True)
    return f'<div class="lg-mark" title="{title}" {_at(strip, mark.step, tops[mark.row])}>{shape}</div>'


def _tick_html(strip: Strip, step: int, top: int) -> str:
    bold = " lg-tick-lastgood" if step == strip.last_good_step else ""
    bold += " lg-tick-first" if strip.share(step) < EDGE else ""
    return f'<div class="lg-tick{bold}" {_at(strip, step, top)}>{step_text(step)}</div>'


def key_html(strip: Strip) -> str:
    """Return the key of the strip, with what trusted means; only of what is drawn: metrics tell of no save."""
    items = _saves_key(strip) if strip.marks else []
    if strip.window:
        items.append(f'<span class="lg-word"><span class="lg-key-band"></span>{_window_words(strip.window)}</span>')
    for count, word in ((strip.earlier_attempts, "earlier"), (strip.later_attempts, "later")):
        if count:
            what = "attempt is" if count == 1 else "attempts are"
            items.append(f"<span>{count} {word} {what} not drawn</span>")
    items += [f"<span>{TRUSTED_MEANS}</span>"] if strip.marks else []
    return f'<div class="lg-key">{"".join(items)}</div>' if items else ""


def _saves_key(strip: Strip) -> list[str]:
    present = {m.trust for m in strip.marks}
    more: tuple[Trust, ...] = ("missing", "unreadable")
    trusts = [*ALWAYS_IN_KEY, *(t for t in more if t in present)]
    items = [f'<span class="lg-word">{symbol(t)}{t}</span>' for t in trusts]
    if strip.last_good_step is not None:
        items.append('<span class="lg-word"><span class="lg-key-lastgood"></span>last good</span>')
    return items


def _window_words(window: Window) -> str:
    if window.contained:
        return f"step {step_text(window.end)}, contained: it is in no checkpoint"
    words = f"window {escape(window_text(window))}"
    if window.start_attempt != window.end_attempt:
        return words
    return f"{words}: {step_text(window.start)} is outside, {step_text(window.end)} inside"
