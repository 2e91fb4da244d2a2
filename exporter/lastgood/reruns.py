"""Narrow a window by a re-run that came to the same bits elsewhere. Pure: no torch, no files, no clock.

A later attempt that started outside the window, without any device the finding names, and saved the same fingerprint
at the same step has computed those steps a second time. Up to that step the first computation was right, so the window
begins there. Bits that the same device computed twice prove nothing: a persistent fault repeats itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lastgood.lineage import reach, segments
from lastgood.state import Attempt, Checkpoint, Finding, Point, Window
from lastgood.trust import covered
from lastgood.wording import step_text

Twins = Mapping[tuple[int, str], Sequence[Checkpoint]]


def twins(checkpoints: Iterable[Checkpoint]) -> Twins:
    """Return the saves that several attempts made with one fingerprint: (step, fingerprint) -> saves."""
    by: dict[tuple[int, str], list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        if checkpoint.fingerprint and checkpoint.step > 0:
            by.setdefault((checkpoint.step, checkpoint.fingerprint), []).append(checkpoint)
    return {key: saves for key, saves in by.items() if len({c.attempt for c in saves}) > 1}


def narrowed(finding: Finding, attempts: Mapping[int, Attempt], saves: Twins) -> Finding:
    """Return the finding with its window begun at the last step that a re-run confirmed."""
    window = finding.window
    if window is None or window.contained or not finding.places:
        return finding
    end = Point(window.end_attempt, window.end)
    confirmed = [
        (old, new)
        for same in saves.values()
        for old in same
        if _inside(old, window, end, attempts)
        for new in same
        if _elsewhere(new, finding, window, attempts)
    ]
    if not confirmed:
        return finding
    old, new = max(confirmed, key=lambda pair: (pair[0].attempt, pair[0].step, pair[1].attempt))
    reason = f"attempt {new.attempt} computed the same bits at step {step_text(old.step)} on other devices"
    return replace(finding, window=replace(window, start_attempt=old.attempt, start=old.step, reason=reason))


def _inside(old: Checkpoint, window: Window, end: Point, attempts: Mapping[int, Attempt]) -> bool:
    """Tell whether a save lies on the finding's own lineage, within the window."""
    last = reach(attempts, end, old.attempt)
    return last is not None and old.step <= last and covered(attempts, window, old.point)


def _elsewhere(new: Checkpoint, finding: Finding, window: Window, attempts: Mapping[int, Attempt]) -> bool:
    """Tell whether a save was computed outside the window and without the devices that the finding names."""
    if covered(attempts, window, new.point):
        return False
    named = {place.device for place in finding.places}
    for segment in segments(attempts, new.point):
        if segment.end > window.start and segment.attempt >= window.start_attempt:
            places = attempts[segment.attempt].places
            if not places or any(place.device in named for place in places):
                return False
    return True
