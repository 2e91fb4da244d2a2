"""Tell what happened in a demo from its journal: who sits where, what was said when. Pure.

Everything here is derived from events and the state folded from them; the screen only draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from lastgood.events import Event
from lastgood.state import Attempt, Place, RunState
from lastgood.wording import joined, rank_text, ranks_text

Mood = Literal["plain", "good", "doubt", "bad"]
Health = Literal["running", "accused", "candidate", "ended"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened, in one line."""

    key: tuple[str, str]
    time: str
    attempt: int
    step: int | None
    text: str
    mood: Mood = "plain"


@dataclass(frozen=True, slots=True)
class Seat:
    """A node and how its ranks are doing. A spare has none; of a node that was left out, only who was named."""

    node: str
    ranks: tuple[tuple[int, Health], ...]
    role: Literal["used", "spare", "left out"] = "used"


def moments(state: RunState, events: Iterable[Event]) -> tuple[Moment, ...]:
    """Return what happened, oldest first; rounds that passed at a save are left to the save's own line."""
    places = {attempt.number: attempt.places for attempt in state.attempts}
    told: dict[tuple[Any, ...], Moment] = {}
    for event in sorted(events, key=lambda e: (e.attempt, e.time, e.key)):
        line = _line(event, places.get(event.attempt, ()))
        if line is not None:
            text, mood = line
            told.setdefault(_same(event), Moment(event.key, event.time, event.attempt, event.step, text, mood))
    return tuple(told.values())


def seats(state: RunState | None, nodes: Sequence[str], ranks_per_node: int, spares: Sequence[str]) -> tuple[Seat, ...]:
    """Return the nodes of the newest attempt with their ranks, then the spares and the nodes that were left out."""
    named = _named(state)
    ended = state is not None and state.attempt is not None and state.attempt.ended_at is not None
    out = []
    for number, node in enumerate(nodes):
        ranks = range(number * ranks_per_node, (number + 1) * ranks_per_node)
        out.append(Seat(node, tuple((r, named.get((node, r), "ended" if ended else "running")) for r in ranks)))
    out += [Seat(node, (), "spare") for node in spares]
    for node in sorted({node for node, _ in named} - set(nodes)):
        out.append(Seat(node, tuple((r, health) for (where, r), health in named.items() if where == node), "left out"))
    return tuple(out)


def _named(state: RunState | None) -> dict[tuple[str, int], Health]:
    """Return (node, rank) -> role for everyone a verdict of an incident names."""
    if state is None:
        return {}
    return {
        (suspect.node, suspect.rank): suspect.role
        for incident in state.incidents
        if incident.status in ("attributed", "undecided")
        for suspect in incident.suspects
    }


def _same(event: Event) -> tuple[Any, ...]:
    """Return what makes two events one line: an injection is told once per attempt, whoever else had it too."""
    return ("injection", event.attempt, event.data.get("site")) if event.type == "injection" else event.key


def _line(event: Event, places: Sequence[Place]) -> tuple[str, Mood] | None:
    teller = _TELLERS.get(event.type)
    return None if teller is None else teller(event, places)


def _started(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    nodes = list(dict.fromkeys(place.node for place in places))
    where = f" on {joined(nodes)}" if nodes else ""
    parent = event.data.get("parent")
    source = f", from {parent['path']}" if parent else ""
    return f"attempt {event.attempt} starts: {event.data['world_size']} ranks{where}{source}", "plain"


def _ended(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    reason = str(event.data["reason"])
    words = {
        "completed": f"attempt {event.attempt} ran to its end",
        "integrity": f"attempt {event.attempt} stopped: every rank raised IntegrityError",
        "exception": f"attempt {event.attempt} ended with an error",
        "signal": f"attempt {event.attempt} was ended by a signal",
    }
    return words.get(reason, f"attempt {event.attempt} ended: {reason}"), "good" if reason == "completed" else "plain"


def _checked(event: Event, places: Sequence[Place]) -> tuple[str, Mood] | None:
    data = event.data
    name = str(data["check"])
    kind = {"probe": f"{name} probe", "immediate": f"immediate {name}", "close": f"closing {name}"}.get(
        data["phase"], name
    )
    if data["result"] == "not_run":
        return f"{kind} not run: {data['reason']}", "doubt"
    if data["result"] == "failed":
        odd = [e["rank"] for e in data["exceptions"] if e["result"] == "failed"]
        return f"{kind} failed on {ranks_text(odd)}" if odd else f"{kind} failed", "bad"
    if data["check"] == "replica" and data["phase"] == "save":
        return None
    return f"{kind} passed", "good"


def _found(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    data = event.data
    who = f" on {ranks_text(data['ranks'])}" if data["ranks"] else ""
    where = f" in {data['tensor']}" if data["tensor"] else ""
    kept = "; the step was kept out of the weights" if data["contained"] else ""
    return f"finding: {data['check']} failed{who}{where}{kept}", "bad"


def _ruled(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    data = event.data
    names = [rank_text(Place(s["rank"], s["node"], s["gpu_uuid"], s["slot"])) for s in data["suspects"]]
    joint = {"attributed": " to ", "undecided": " between "}.get(data["status"], ": ")
    who = f"{joint}{joined(names)}" if names else ""
    resume = data.get("resume")
    source = f"; resume from {resume['path']}" if resume and resume["step"] >= 0 and data["action"] == "stop" else ""
    mood: Mood = {"attributed": "bad", "confirmed": "bad"}.get(data["status"], "doubt")  # type: ignore[assignment]
    return f"verdict: {data['status']}{who}{source}", mood


def _saved(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    return f"saved {event.data['path']}", "plain"


def _refused(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    if event.data.get("reason") == "integrity":
        return f"refused to save {event.data['path']}: a check failed", "bad"
    return f"could not save {event.data['path']}: {event.data.get('reason', 'unknown')}", "doubt"


def _loaded(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    return f"loaded {event.data['path']}; the live tensors match its fingerprint", "good"


def _injected(event: Event, places: Sequence[Place]) -> tuple[str, Mood]:
    data = event.data
    who = "every rank" if data["site"] == "reduce-all" else f"rank {data['rank']}"
    return f"injected on purpose on {who}: {data['tensor']}, {data['detail']}", "doubt"


def _strayed(event: Event, places: Sequence[Place]) -> tuple[str, Mood] | None:
    """Tell the beginning of an excursion, and a growing error counter; that it is over is no news here."""
    beginning = event.data["state"] == "started" or event.data["started"] == event.data["ended"]
    return (f"device excursion: {event.data['text']}", "doubt") if beginning else None


_TELLERS: Final = {
    "run.started": _started,
    "run.ended": _ended,
    "check": _checked,
    "finding": _found,
    "verdict": _ruled,
    "checkpoint.saved": _saved,
    "checkpoint.failed": _refused,
    "checkpoint.loaded": _loaded,
    "injection": _injected,
    "device.excursion": _strayed,
}


def newest(state: RunState | None) -> Attempt | None:
    """Return the newest attempt that has started."""
    return None if state is None else state.attempt


def passed_steps(state: RunState | None, own: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """Return check -> (last step passed or -1, why it does not run).

    ``own``: what the first rank counts for the checks of every step, which the journal does not hold one by one.
    """
    if state is None:
        return {}
    shown: dict[str, tuple[int, str]] = {}
    for status in state.checks:
        if status.check == "at_rest":
            continue
        step = max(status.last_pass_step, own.get(status.check, -1))
        shown[status.check] = (step, "" if status.running else status.reason)
    return shown
