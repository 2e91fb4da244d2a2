"""Join findings into incidents, and follow each to its end. Pure: no torch, no files, no clock.

One broken GPU makes thousands of ranks report, survives a restart and is found again: that is one incident. Findings
belong together when their windows overlap in one attempt, when the same device fails step after step, or when one
device fails again within 24 h of the restart that followed its last finding.

The id is a hash of the first finding in (attempt, step, check) order. A finding that arrives late can become the
first, and can join two incidents; so the id that any of the findings would give alone stays as an alias.

Each finding has its newest verdict, and the incident has the strongest of these. A cleared finding keeps to its own
kind: not-a-number from the data is not part of the story of a GPU that broke later, even where the windows overlap.
How an incident went on is :mod:`lastgood.recovery`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lastgood.events import Confidence, Event, Nature, Scope, Status
from lastgood.records import finding_order
from lastgood.state import Attempt, Device, Finding, Suspect, Verdict, Window

Group = tuple[Finding, ...]
SAME_DEVICE = timedelta(hours=24)
STRENGTH: Mapping[str, int] = {"attributed": 4, "confirmed": 3, "undecided": 2, "suspicious": 1, "cleared": 0}
MOST_NAMED = 8
"""A finding without a verdict that concerns more ranks than this names none of them."""


def incident_id(run: str, finding: Finding) -> str:
    """Return the id of an incident whose first finding this is."""
    text = f"{run}\0{finding.attempt}\0{finding.step}\0{finding.check}"
    return f"r-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


# --- grouping --------------------------------------------------------------------------------------------------------


def group(findings: Sequence[Finding], verdicts: Verdicts, attempts: Mapping[int, Attempt]) -> list[Group]:
    """Return the findings (each with its window) joined into incidents, in canonical order."""
    cleared = [f for f in findings if verdicts.cleared(f)]
    standing = [f for f in findings if not verdicts.cleared(f)]
    return sorted((*_join(cleared, attempts), *_join(standing, attempts)), key=lambda g: finding_order(g[0]))


def _join(findings: Sequence[Finding], attempts: Mapping[int, Attempt]) -> list[Group]:
    boss = list(range(len(findings)))

    def top(i: int) -> int:
        while boss[i] != i:
            boss[i] = boss[boss[i]]
            i = boss[i]
        return i

    for a, b in (*_overlapping(findings), *_same_device(findings, attempts)):
        boss[max(top(a), top(b))] = min(top(a), top(b))
    groups: dict[int, list[Finding]] = {}
    for i, finding in enumerate(findings):
        groups.setdefault(top(i), []).append(finding)
    return [tuple(sorted(g, key=finding_order)) for g in groups.values()]


def _overlapping(findings: Sequence[Finding]) -> Iterator[tuple[int, int]]:
    """Yield pairs of one attempt whose windows share a step, by a sweep over their starts."""
    by_attempt: dict[int, list[tuple[int, int, int]]] = {}
    for i, finding in enumerate(findings):
        start, end = _span(finding)
        by_attempt.setdefault(finding.attempt, []).append((start, end, i))
    for spans in by_attempt.values():
        furthest, holder = -2, -1
        for start, end, i in sorted(spans):
            if start < furthest:
                yield holder, i
            if end > furthest:
                furthest, holder = end, i


def _span(finding: Finding) -> tuple[int, int]:
    """Return a window in steps of its own attempt; one that began before the attempt did begins at -1."""
    window = finding.window
    assert window is not None
    return (window.start if window.start_attempt == finding.attempt else -1, window.end)


def _same_device(findings: Sequence[Finding], attempts: Mapping[int, Attempt]) -> Iterator[tuple[int, int]]:
    """Yield pairs of one device: at the very next step of an attempt, or soon after the restart that followed."""
    last: dict[Device, int] = {}
    earlier: dict[Device, int] = {}
    for i in sorted(range(len(findings)), key=lambda i: finding_order(findings[i])):
        for device in {place.device for place in findings[i].places}:
            before = last.get(device)
            if before is not None and findings[before].attempt != findings[i].attempt:
                earlier[device] = before
            elif before is not None and findings[before].step + 1 >= findings[i].step:
                yield before, i
            old = earlier.get(device)
            if old is not None and _soon(findings[old], findings[i], attempts):
                yield old, i
            last[device] = i


def _soon(old: Finding, new: Finding, attempts: Mapping[int, Attempt]) -> bool:
    restarts = [attempts[number].started_at for number in attempts if number > old.attempt]
    return _moment(new.at) - _moment(min(restarts)) <= SAME_DEVICE


def _moment(time: str) -> datetime:
    return datetime.fromisoformat(time.replace("Z", "+00:00"))


# --- what the verdicts say -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An incident as its findings and verdicts have it; how it went on and what it cost comes later.

    ``deciding`` are the verdicts that give the incident its status.
    """

    id: str
    aliases: tuple[str, ...]
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    deciding: tuple[Verdict, ...]
    status: Status
    scope: Scope
    suspects: tuple[Suspect, ...]
    nature: Nature
    confidence: Confidence
    actions: tuple[Event, ...] = ()

    @property
    def standing(self) -> tuple[Finding, ...]:
        """Return the findings that are not cleared."""
        return () if self.status == "cleared" else self.findings

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return the windows that cover something: of findings that are neither cleared nor contained."""
        return tuple(f.window for f in self.standing if f.window is not None and not f.window.contained)

    @property
    def window(self) -> Window | None:
        """Return the earliest start, and the last end in the attempt of that finding; contained only if all are."""
        every = [f.window for f in self.findings if f.window is not None]
        windows = [w for w in every if not w.contained] or every
        if not windows:
            return None
        first = min(windows, key=lambda w: (w.start_attempt, w.start, w.end_attempt, w.end))
        return replace(first, end=max(w.end for w in windows if w.end_attempt == first.end_attempt))

    @property
    def stopped(self) -> bool:
        """Tell whether the policy stopped the attempt."""
        return any(verdict.action == "stop" for verdict in self.verdicts)


class Verdicts:
    """Finds what was said about a finding: a verdict names findings of its own attempt."""

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        self._about: dict[tuple[int, str], list[Verdict]] = {}
        for verdict in verdicts:
            for finding in verdict.findings:
                self._about.setdefault((verdict.attempt, finding), []).append(verdict)

    def about(self, finding: Finding) -> Sequence[Verdict]:
        """Return every verdict that names a finding."""
        return self._about.get((finding.attempt, finding.id), ())

    def newest(self, finding: Finding) -> Verdict | None:
        """Return the verdict that stands for a finding: the newest, of two at once the stronger."""
        return max(self.about(finding), key=lambda v: (v.step, v.at, STRENGTH[v.status]), default=None)

    def cleared(self, finding: Finding) -> bool:
        """Tell whether a finding turned out not to be hardware."""
        newest = self.newest(finding)
        return newest is not None and newest.status == "cleared"


def draft(run: str, findings: Group, verdicts: Verdicts) -> Draft:
    """Put together what is said about one group of findings."""
    newest = [(finding, verdicts.newest(finding)) for finding in findings]
    statuses: list[Status] = [v.status if v else "suspicious" for _, v in newest]
    status = max(statuses, key=lambda s: STRENGTH[s])
    deciding = _distinct(v for _, v in newest if v is not None and v.status == status)
    suspects = _suspects(status, deciding, [f for f, s in zip(findings, statuses, strict=True) if s == status])
    ids = list(dict.fromkeys(incident_id(run, finding) for finding in findings))
    last = deciding[-1] if deciding else None
    return Draft(
        id=ids[0],
        aliases=tuple(sorted(ids[1:])),
        findings=findings,
        verdicts=_distinct(v for finding in findings for v in verdicts.about(finding)),
        deciding=deciding,
        status=status,
        scope=_scope(last, suspects),
        suspects=suspects,
        nature=_nature(deciding),
        confidence=last.confidence if last else "low",
    )


def _distinct(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    unique = {(v.attempt, v.step, v.at, v.id): v for v in verdicts}
    return tuple(unique[key] for key in sorted(unique))


def _suspects(status: Status, deciding: Sequence[Verdict], findings: Sequence[Finding]) -> tuple[Suspect, ...]:
    """Return the accused of an attributed incident, else the candidates, one entry per device.

    A suspicious finding accuses nobody; the ranks it was seen on are candidates, unless there are too many to mean
    anything.
    """
    role = "accused" if status == "attributed" else "candidate"
    named = {s.device: s for verdict in deciding for s in verdict.suspects if s.role == role}
    if status == "suspicious" and not named:
        seen = {p.device: Suspect(p.rank, p.node, p.gpu_uuid, p.slot) for f in findings for p in f.places}
        named = seen if len(seen) <= MOST_NAMED else {}
    return tuple(sorted(named.values()))


def _scope(last: Verdict | None, suspects: Sequence[Suspect]) -> Scope:
    """Return the newest deciding verdict's scope, widened when other verdicts accuse other devices."""
    if last is None:
        return "gpu" if suspects else "job"
    if last.status != "attributed" or len(suspects) <= len(last.suspects):
        return last.scope
    return "node" if len({s.node for s in suspects}) == 1 else "group"


def _nature(deciding: Sequence[Verdict]) -> Nature:
    natures = {v.nature for v in deciding}
    if "persistent" in natures:
        return "persistent"
    natures.discard("unknown")
    return natures.pop() if len(natures) == 1 else "unknown"


def accusations(drafts: Iterable[Draft]) -> dict[Device, set[tuple[int, int]]]:
    """Return when each device was accused: the (attempt, step) of attributed verdicts that still stand."""
    found: dict[Device, set[tuple[int, int]]] = {}
    for d in drafts:
        for verdict in d.deciding if d.status == "attributed" else ():
            for suspect in verdict.suspects:
                if suspect.role == "accused":
                    found.setdefault(suspect.device, set()).add((verdict.attempt, verdict.step))
    return found
