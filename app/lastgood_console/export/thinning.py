"""Put marks of a timeline that would hide each other into one mark that counts them. Pure.

How near is too near depends on the shown time: zooming in takes a mark apart again. It serves a run of 54 days with
419 restarts and 2,600 saves as well as one of three minutes. Only what is trusted is left out, for want of room: a
failed check, a finding or a save that is not trusted is always drawn, alone or counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from lastgood.events import CHECKS
from lastgood.timeline import SAID_KINDS, TimelineEntry
from lastgood.timeline_density import check_of, findings_text, together
from lastgood.wording import clock_text, duration_text, joined, moment, step_text
from lastgood_console.export.lane import IMPORTANCE

NEAR_MARKS: Final = 12.0
"""Marks nearer than this, in pixels, hide each other; the other distances are in pixels too."""
NEAR_PASSES: Final = 4.0
NEAR_SPANS: Final = 2.0
NEAR_SAVES: Final = 17.0
NEAR_OUTCOME: Final = 24.0
SHORT_BAR: Final = 8.0
SHORT_ATTEMPT: Final = 5.0
MOST_NAMES: Final = 3
Entries = Sequence[TimelineEntry]
Save = tuple[int | None, int | None]
"""Attempt and step of a save."""


def thinned(found: Entries, pixel: float, now: str, kept: frozenset[Save] = frozenset()) -> list[TimelineEntry]:
    """Return what a picture shows of a timeline, lane by lane.

    ``pixel``: how many seconds one is wide; ``now``: the newest event's time, where what people said later stands;
    ``kept``: saves that always stay.
    """
    lanes: dict[str, list[TimelineEntry]] = {}
    for entry in sorted((_at_the_edge(e, now) for e in found), key=place):
        lanes.setdefault(entry.lane, []).append(entry)
    out: list[TimelineEntry] = []
    for lane, entries in lanes.items():
        if lane in CHECKS:
            out += _checks(entries, pixel)
        elif lane == "saves":
            out += _saves(entries, pixel, kept)
        elif lane != "steps":
            out += _lane(entries, pixel)
    return out


def _at_the_edge(entry: TimelineEntry, now: str) -> TimelineEntry:
    """Put what came long after everything else at the edge, with its time: it must not squeeze the rest."""
    if entry.at <= now or entry.kind not in (*SAID_KINDS, "alert"):
        return entry
    later = f"{moment(entry.at):%d %b} {clock_text(entry.at)}"
    text = f"{entry.text} ({later})" if entry.kind == "alert" else f"later, {later}: {entry.text}"
    return replace(entry, at=now, until=now, text=text)


def place(entry: TimelineEntry) -> str:
    """Return where a mark stands: a finding where it became known, everything else where it happened."""
    return entry.known_at if entry.kind == "finding" else entry.at


def _unix(time: str) -> float:
    return moment(time).timestamp()


def _groups(entries: Entries, near: float, like: Callable[[TimelineEntry], object]) -> Iterator[list[TimelineEntry]]:
    """Yield neighbours that are alike and within so many seconds of the first of them: marks. ``entries``: by place."""
    group: list[TimelineEntry] = []
    start = 0.0
    for entry in entries:
        at = _unix(place(entry))
        if group and (like(entry) != like(group[0]) or at - start > near):
            yield group
            group = []
        start = start if group else at
        group.append(entry)
    if group:
        yield group


def _chains(entries: Entries, near: float, like: Callable[[TimelineEntry], object]) -> Iterator[list[TimelineEntry]]:
    """Yield neighbours that are alike, each within so many seconds of the end of the one before it: spans."""
    group: list[TimelineEntry] = []
    end = 0.0
    for entry in entries:
        if group and (like(entry) != like(group[0]) or _unix(entry.at) - end > near):
            yield group
            group = []
        until = _unix(entry.until)
        end = max(end, until) if group else until
        group.append(entry)
    if group:
        yield group


# checks and saves


def _checks(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    """Yield passes that are too near each other as one bar, failures as one counted mark."""
    failed = [e for e in entries if e.kind == "failed"]
    for group in _groups(failed, NEAR_MARKS * pixel, lambda e: ()):
        text = f"{group[0].lane} failed {len(group)} times, first: {group[0].text}"
        yield replace(group[0], text=text) if len(group) > 1 else group[0]
    rest = [e for e in entries if e.kind != "failed"]
    for group in _chains(rest, NEAR_PASSES * pixel, lambda e: e.kind != "not_run" or e.text):
        if len(group) == 1:
            yield group[0]
        elif group[0].kind == "not_run":
            yield together(group)
        else:
            yield _passes(group, pixel)


def _passes(group: Entries, pixel: float) -> TimelineEntry:
    """Return one bar over passes, or a tick where a bar would be too short to be seen."""
    passed = sum(e.kind == "passed" for e in group)
    text = f"{group[0].lane} passed {passed} times" if passed == len(group) else f"{group[0].lane} ran"
    whole = replace(together(group), kind="ran", known_at=group[-1].known_at, text=text)
    if passed == len(group) and _unix(whole.until) - _unix(whole.at) < SHORT_BAR * pixel:
        return replace(whole, kind="passed", until=whole.at)
    return whole


def _saves(entries: Entries, pixel: float, kept: frozenset[Save]) -> Iterator[TimelineEntry]:
    """Yield the saves that are not trusted, those that are kept, and the trusted ones that have room beside them."""
    named = [e for e in entries if (e.attempt, e.step) in kept]
    odd = [e for e in entries if e.tone != "trusted" and (e.attempt, e.step) not in kept]
    counted = [_counted(group) for group in _groups(odd, NEAR_MARKS * pixel, lambda e: ())]
    grave = [_unix(e.at) for e in counted]  # a trusted one, though named, hides none of these
    named = [e for e in named if e.tone != "trusted" or all(abs(_unix(e.at) - x) >= NEAR_MARKS * pixel for x in grave)]
    fixed = sorted((*named, *counted), key=place)
    yield from fixed
    taken = [_unix(e.at) for e in fixed]
    at, before = 0, float("-inf")
    for entry in entries:
        if entry.tone != "trusted" or (entry.attempt, entry.step) in kept:
            continue
        spot = _unix(entry.at)
        while at < len(taken) and taken[at] < spot:
            before, at = max(before, taken[at]), at + 1
        after = taken[at] if at < len(taken) else float("inf")
        if min(spot - before, after - spot) >= NEAR_SAVES * pixel:
            before = spot
            yield entry


def _counted(group: Entries) -> TimelineEntry:
    """Return saves at one place as one mark, as grave as the gravest of them."""
    if len(group) == 1:
        return group[0]
    gravest = max(group, key=lambda e: IMPORTANCE.get(e.tone, 0))
    steps = [step_text(e.step) for e in (group[0], group[-1]) if e.step is not None]
    each = ", ".join(f"{count} {tone}" for tone, count in Counter(e.tone for e in group).items())
    return replace(
        gravest, at=group[0].at, until=group[0].at, text=f"{len(group)} saves, steps {' to '.join(steps)}: {each}"
    )


# everything else


def _lane(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    for kinds, merge in _MERGES:
        yield from merge([e for e in entries if e.kind in kinds], pixel)
    known = frozenset().union(*(kinds for kinds, _ in _MERGES))
    findings = [_unix(e.known_at) for e in entries if e.kind == "finding"]
    for entry in entries:
        if entry.kind in _OUTCOMES and any(abs(_unix(entry.at) - x) < NEAR_OUTCOME * pixel for x in findings):
            continue  # it would hide the finding; the table has both
        if entry.kind not in known:
            yield entry


def _findings(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    for group in _groups(entries, NEAR_MARKS * pixel, lambda e: ()):
        if len(group) == 1:
            yield group[0]
            continue
        checks = joined(sorted({check_of(e) for e in group}))
        text = group[0].text if len({e.text for e in group}) == 1 else f"{findings_text(group)}: {checks}"
        yield replace(together(group), text=text, known_at=group[0].known_at)


def _alerts(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    """Yield alerts: two at one place stand above each other; more are one mark, as grave as the gravest."""
    for group in _groups(entries, NEAR_MARKS * pixel, lambda e: ()):
        if len(group) <= 2:
            yield from group
            continue
        gravest = max(group, key=lambda e: IMPORTANCE.get(e.tone, 0))
        until = max(e.until for e in group)
        yield replace(gravest, at=group[0].at, until=until, text=_alerts_text(group))


def _alerts_text(group: Entries) -> str:
    fired = [e for e in group if not e.text.endswith(" resolved")]
    names = list(dict.fromkeys(short_alert(e) for e in fired or group))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    count = f"{len(fired)} alert{'' if len(fired) == 1 else 's'}" if fired else f"{len(group)} alerts resolved"
    return f"{count}: {', '.join(names[:MOST_NAMES])}{more}"


def short_alert(entry: TimelineEntry) -> str:
    """Return an alert's name: step and severity are drawn."""
    return entry.text.split(":")[0].split(" fired about ")[0]


def _restarts(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    for group in _chains(entries, NEAR_SPANS * pixel, lambda e: ()):
        if len(group) == 1:
            yield group[0]
            continue
        seconds = sum(_unix(e.until) - _unix(e.at) for e in group)
        yield replace(together(group), text=f"{len(group)} restarts, {duration_text(seconds)} in all")


def _attempts(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    """Yield attempts; neighbours that are too short to be told apart are one bar."""
    for group in _chains(entries, NEAR_SPANS * pixel, lambda e: _unix(e.until) - _unix(e.at) < SHORT_ATTEMPT * pixel):
        if len(group) == 1 or _unix(group[0].until) - _unix(group[0].at) >= SHORT_ATTEMPT * pixel:
            yield from group
            continue
        text = f"attempts {group[0].attempt} to {group[-1].attempt} · {len(group)} short ones"
        yield replace(together(group), text=text)


def _notes(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    for group in _groups(entries, NEAR_MARKS * pixel, lambda e: ()):
        if len(group) == 1:
            yield group[0]
            continue
        words = "; ".join(e.text for e in group[:MOST_NAMES])
        more = f"; and {len(group) - MOST_NAMES} more" if len(group) > MOST_NAMES else ""
        who = joined(list(dict.fromkeys(e.who for e in group)))
        yield replace(together(group), text=f"{len(group)} notes: {words}{more}", who=who)


def _others(entries: Entries, pixel: float) -> Iterator[TimelineEntry]:
    """Yield other incidents of the run; those that stand alike at one place are one mark."""
    for group in _groups(entries, NEAR_MARKS * pixel, lambda e: e.tone):
        if len(group) == 1:
            yield group[0]
            continue
        names = ", ".join(e.text.partition(":")[0].removeprefix("incident ") for e in group[:MOST_NAMES])
        more = f" and {len(group) - MOST_NAMES} more" if len(group) > MOST_NAMES else ""
        yield replace(group[0], text=f"{len(group)} incidents: {names}{more}")


_OUTCOMES: Final = frozenset({"verdict", "recovered", "closed"})
_MERGES: Final[tuple[tuple[frozenset[str], Callable[[Entries, float], Iterator[TimelineEntry]]], ...]] = (
    (frozenset({"finding"}), _findings),
    (frozenset({"alert", "excursion"}), _alerts),
    (frozenset({"restart"}), _restarts),
    (frozenset({"attempt"}), _attempts),
    (frozenset({"note", "action"}), _notes),
    (frozenset({"other"}), _others),
)
"""Kinds, and how those of them that are too near each other become one mark."""
