"""Decide what follows an attempt that stopped: the next one, or a person. Pure.

The decision reads the journaled verdict and nothing else, as an operator would: it knows nothing about the fault
that the demo injected. An accused node is replaced in its place by a spare, so every rank keeps its number and its
batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.state import RunState, Verdict


@dataclass(frozen=True, slots=True)
class Roster:
    """The nodes an attempt runs on, by node rank, and those that wait."""

    nodes: tuple[str, ...]
    spares: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Relaunch:
    """The next attempt: where it runs, which checkpoint it resumes from, which nodes it leaves out."""

    roster: Roster
    path: str
    step: int
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """No further attempt, and why: one sentence."""

    reason: str


def next_attempt(state: RunState, roster: Roster) -> Relaunch | Rest:
    """Return what follows the newest attempt of ``state``, which ran on ``roster`` and has ended."""
    verdict = _stopping(state)
    if verdict is None:
        return Rest("No verdict stopped it.")
    if verdict.status not in ("attributed", "confirmed"):
        return Rest("No second attempt: the verdict is undecided, so a person must say which node to leave out.")
    if verdict.resume is None or not verdict.resume.exists:
        return Rest("No second attempt: the verdict names no checkpoint to resume from.")
    accused = {s.node for s in verdict.suspects if s.role == "accused"}
    excluded = tuple(node for node in roster.nodes if node in accused)
    if len(excluded) > len(roster.spares):
        return Rest(f"No second attempt: {len(excluded)} nodes to replace and {len(roster.spares)} spare.")
    return Relaunch(_replaced(roster, excluded), verdict.resume.path, verdict.resume.step, excluded)


def spent(state: RunState) -> bool:
    """Tell whether the injected fault was one that happens once and has happened."""
    return bool(state.injections) and not any(event.data.get("permanent") for event in state.injections)


def _stopping(state: RunState) -> Verdict | None:
    """Return the newest verdict of the newest attempt that stopped it."""
    if state.attempt is None:
        return None
    stops = [v for v in state.verdicts if v.attempt == state.attempt.number and v.action == "stop"]
    return max(stops, key=lambda verdict: (verdict.step, verdict.at), default=None)


def _replaced(roster: Roster, excluded: tuple[str, ...]) -> Roster:
    replacement = dict(zip(excluded, roster.spares, strict=False))
    nodes = tuple(replacement.get(node, node) for node in roster.nodes)
    return Roster(nodes, roster.spares[len(excluded) :])
