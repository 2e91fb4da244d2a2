"""Say bursts of alerts, findings and restarts in one entry each, and narrow a timeline that has too many marks.

What is put together is counted in its text, so nobody takes a burst for one event. Pure: no files, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import Final

from lastgood import wording
from lastgood.events import CHECKS
from lastgood.state import Incident, Point
from lastgood.step_clock import StepClock
from lastgood.timeline_entry import SAID_KINDS, TimelineEntry

MOST_MARKS: Final = 600
"""With more marks, the picture narrows to the window's surroundings and passes merge into spans. Alerts alike count as
few, since pictures condense them."""
MOST_ALIKE: Final = 5
"""Of more alerts that say the same, the last shown one speaks for all the others."""
BURST_SECONDS: Final = 60.0
"""More than a few findings of one check that became known no further apart than this are one burst."""


def condensed(timeline: Iterable[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    """Put what more than a few alerts or findings say alike into one entry, for pictures and tables."""
    found = tuple(timeline)
    instead: dict[int, TimelineEntry | None] = {}
    for rest, spoken in (*_alike_alerts(found), *_bursts(found)):
        instead |= dict.fromkeys(map(id, rest))
        instead[id(rest[0])] = spoken
    return tuple(kept for entry in found if (kept := instead.get(id(entry), entry)) is not None)


def _alike_alerts(found: Sequence[TimelineEntry]) -> Iterator[tuple[list[TimelineEntry], TimelineEntry]]:
    alike: dict[str, list[TimelineEntry]] = {}
    for entry in found:
        if entry.kind == "alert":
            alike.setdefault(entry.text.partition(": ")[0], []).append(entry)
    for short, entries in alike.items():
        rest = entries[MOST_ALIKE - 1 :]
        if len(rest) > 1:
            until = max(entry.until for entry in rest)
            yield rest, replace(rest[0], text=f"{len(rest)} more like it: {short}", until=until)


def _bursts(found: Sequence[TimelineEntry]) -> Iterator[tuple[list[TimelineEntry], TimelineEntry]]:
    """Yield the findings of one check that became known within a short time of each other, and what says them all."""
    findings = sorted((e for e in found if e.kind == "finding"), key=lambda e: (check_of(e), e.known_at))
    for check, same in groupby(findings, key=check_of):
        for burst in _near_in_time(list(same)):
            if len(burst) > MOST_ALIKE:
                last = max(e.known_at for e in burst)
                text = f"{findings_text(burst)}: {check}, until {wording.clock_text(last)}"
                yield burst, replace(together(burst), text=text)


def check_of(finding: TimelineEntry) -> str:
    """Return the check that a finding's text names: ``replay`` of ``Replay failed: rank 3``."""
    return finding.text.partition(" failed")[0].lower()


def _near_in_time(ordered: Sequence[TimelineEntry]) -> Iterator[list[TimelineEntry]]:
    burst: list[TimelineEntry] = []
    for entry in ordered:
        if (
            burst
            and (wording.moment(entry.known_at) - wording.moment(burst[-1].known_at)).total_seconds() > BURST_SECONDS
        ):
            yield burst
            burst = []
        burst.append(entry)
    if burst:
        yield burst


def findings_text(burst: Sequence[TimelineEntry]) -> str:
    """Count findings and the ranks that they are about: ``212 findings, 208 ranks``."""
    ranks = {rank for entry in burst for rank in entry.ranks}
    return f"{len(burst)} findings" + (f", {len(ranks)} rank{'' if len(ranks) == 1 else 's'}" if ranks else "")


def together(burst: Sequence[TimelineEntry]) -> TimelineEntry:
    """Return one entry over all that a burst spans, in the words of its first."""
    ranks = tuple(sorted({rank for entry in burst for rank in entry.ranks}))
    return replace(burst[0], at=min(e.at for e in burst), until=max(e.until for e in burst), ranks=ranks)


def narrowed(found: list[TimelineEntry], incident: Incident, clock: StepClock) -> list[TimelineEntry]:
    """Return what a picture of an incident can hold: with too many marks, the window's surroundings."""
    return _merged(_near(found, incident, clock)) if _are_many(found) else found


def _are_many(found: Sequence[TimelineEntry]) -> bool:
    return len(condensed(found)) > MOST_MARKS


def _near(found: list[TimelineEntry], incident: Incident, clock: StepClock) -> list[TimelineEntry]:
    """Keep what lies around the window: as much before it as it is long (and a minute), and all that followed.

    What people said is kept whenever they said it, and every alert: whoever exports an incident has all of them.
    """
    window = incident.window
    began = (clock.at(Point(window.start_attempt, window.start)) if window else None) or incident.opened_at
    length = wording.moment(incident.opened_at) - wording.moment(began) + timedelta(minutes=1)
    low = (wording.moment(began) - length).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    end = incident.recovered_at or incident.closed_at or max(e.until for e in found)
    high = (wording.moment(end) + length).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    kept = SAID_KINDS | {"alert"}
    near = [e for e in found if (e.until >= low and e.at <= high) or e.kind in kept]
    return [e if e.kind in kept else replace(e, at=max(e.at, low), until=min(e.until, high)) for e in near]


def _merged(found: list[TimelineEntry]) -> list[TimelineEntry]:
    """Merge neighbouring passes of one check into one span, when there are still too many marks."""
    if not _are_many(found):
        return found
    rest = [e for e in found if e.lane not in CHECKS]
    checks = sorted((e for e in found if e.lane in CHECKS), key=lambda e: (e.lane, e.attempt or 0, e.at))
    for (_, _, kind), group in groupby(checks, key=lambda e: (e.lane, e.attempt, e.kind)):
        run = list(group)
        if kind == "passed" and len(run) > 1:
            text = f"{run[0].lane} passed {len(run)} times"
            rest.append(replace(run[0], kind="ran", until=run[-1].until, known_at=run[-1].known_at, text=text))
        else:
            rest += run
    return rest
