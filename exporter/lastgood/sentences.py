"""Say in sentences what speaks for a verdict, what against it, and what nobody knows. Pure: no torch, files, clock.

"For" and "against" are what the rank that ruled wrote down; a finding without a verdict speaks for itself. What is
unknown follows from the windows and from what was not run. None of the three lists is ever empty, so that "nothing
known" is read as a statement and not as a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lastgood.incidents import Draft
from lastgood.state import Attempt, Device, Finding
from lastgood.wording import step_text

NOTHING_KNOWN = ("Nothing known.",)
MOST_EVIDENCE = 5


def in_favour(d: Draft, accused: Mapping[Device, set[tuple[int, int]]]) -> tuple[str, ...]:
    """Return the reasons for the verdict."""
    said = [s for verdict in d.deciding for s in verdict.reasons_for]
    said = said or [s for finding in d.findings[:MOST_EVIDENCE] for s in _evidence(finding)]
    again = [
        f"Rank {s.rank} ({s.node}) was accused {len(accused[s.device])} times in this run."
        for s in d.suspects
        if s.role == "accused" and len(accused.get(s.device, ())) > 1
    ]
    return _distinct([*said, *again])


def _evidence(finding: Finding) -> list[str]:
    where = f" on {_ranks(finding)}" if finding.ranks else ""
    first = f"{finding.check.capitalize()} failed at step {step_text(finding.step)}{where}."
    return [first, *(str(e["text"]) for e in finding.evidence if e.get("text"))]


def _ranks(finding: Finding) -> str:
    nodes = {place.rank: place.node for place in finding.places}
    shown = [f"rank {r} ({nodes[r]})" if r in nodes else f"rank {r}" for r in finding.ranks[:3]]
    more = len(finding.ranks) - len(shown)
    return ", ".join([*shown, f"{more} more ranks"] if more else shown)


def against(d: Draft) -> tuple[str, ...]:
    """Return the reasons against the verdict."""
    return _distinct(s for verdict in d.deciding for s in verdict.reasons_against) or NOTHING_KNOWN


def unknown(d: Draft, attempts: Mapping[int, Attempt]) -> tuple[str, ...]:
    """Return what the evidence does not say."""
    return _distinct([*_first_step(d), *_who(d), *_why(d, attempts), *_nature(d)]) or NOTHING_KNOWN


def _first_step(d: Draft) -> Iterable[str]:
    window = d.window
    if d.status == "cleared" or window is None or window.contained:
        return
    if window.start_attempt != window.end_attempt:
        yield (
            f"The first wrong step: any after step {step_text(window.start)} of attempt {window.start_attempt}, "
            f"up to step {step_text(window.end)} of attempt {window.end_attempt}."
        )
    elif window.end - window.start > 1:
        steps = f"{step_text(window.start + 1)} to {step_text(window.end)}"
        yield f"The first wrong step: {window.reason}, so any of {steps}."


def _who(d: Draft) -> Iterable[str]:
    if d.status == "undecided":
        yield f"Which of the {len(d.suspects)} candidates it was."
    if d.status == "confirmed" and not d.suspects:
        yield "Which rank or link it was: no rank stands out."


def _why(d: Draft, attempts: Mapping[int, Attempt]) -> Iterable[str]:
    if d.status == "suspicious":
        reason = attempts[d.findings[0].attempt].not_run.get("replay")
        because = f"replay did not run ({reason})" if reason else "it was not replayed on another node"
        yield f"Whether the data, the software or a device is the cause: {because}."


def _nature(d: Draft) -> Iterable[str]:
    if d.status == "attributed" and d.nature == "unknown":
        yield "Whether it comes back: the device was not tried again on the same numbers."


def _distinct(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))
