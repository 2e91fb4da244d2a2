"""Work out from the options alone what the demo has to show: who is named, which window, what follows.

It never looks at a journal. The rules are those of docs/checks.md, applied to the demo's schedule; ``outcome``
compares them with what the run journaled. Within a step the order is: the step's own checks (finite,
conservation), the replica comparison of the state before it, the replay, the update, and at a save the replica
comparison and the probe; the close comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lastgood.events import CheckName, Status
from lastgood_console.demo.options import Options

End = Literal["open", "recovered", "closed"]

_OWN, _REPLICA, _REPLAY, _UPDATE, _SAVE_REPLICA, _SAVE_PROBE, _CLOSE_REPLICA, _CLOSE_REPLAY = range(8)

When = tuple[int, int]
"""A step and a place in the order of that step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must come out when something is found."""

    check: CheckName
    step: int
    status: Status
    accused: frozenset[int] = frozenset()
    candidates: frozenset[int] = frozenset()
    contained: bool = False
    window: tuple[int, int] | None = None
    """The onset (start, end]; None when the step was contained."""
    resume: int | None = None
    """The step of the last good checkpoint; None when nothing has to be resumed."""
    suspect: tuple[int, ...] = ()
    """Steps of attempt 1 whose saves are suspect."""
    refused: int | None = None
    """The step of the save that was refused."""
    end: End = "open"
    relaunches: bool = False
    """Whether a second attempt has to follow."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the demo saves and when its periodic checks run."""

    options: Options

    def saves(self) -> tuple[int, ...]:
        """Return the steps that are saved: 0, every so many, and the last."""
        return (*range(0, self.options.steps, self.options.save_every), self.options.steps)

    def replay_times(self) -> list[When]:
        """Return when a replay runs: the first step, every so many, at the close, and with probes at every save."""
        if not self.options.replay:
            return []
        times = {(step, _REPLAY) for step in (1, *self._audited())}
        times |= {(step, _SAVE_PROBE) for step in self.saves() if self.options.save_probe and step}
        return sorted(times | {(self.options.steps, _CLOSE_REPLAY)})

    def replica_times(self) -> list[When]:
        """Return when the replicas are compared: every so many steps, at every save, at the close."""
        times = {(step, _REPLICA) for step in self._audited()}
        times |= {(step, _SAVE_REPLICA) for step in self.saves()}
        return sorted(times | {(self.options.steps, _CLOSE_REPLICA)})

    def _audited(self) -> range:
        return range(self.options.audit_every, self.options.steps + 1, self.options.audit_every)


def expect(options: Options) -> Expected | None:
    """Return what must be found, or None when nothing can be (no fault, or replay off and a plausible gradient)."""
    schedule = Schedule(options)
    match options.fault:
        case "none":
            return None
        case "gradient":
            return _gradient(options, schedule) if options.replay else None
        case "nan":
            return _nan(options, schedule) if options.replay else _suspicious(options, schedule)
        case "data":
            return _data(options) if options.replay else _suspicious(options, schedule)
        case "reduce-all" | "reduce-one":
            return _reduce(options, schedule)
        case _:
            return _flip(options, schedule)


def _gradient(options: Options, schedule: Schedule) -> Expected:
    """A replay finds it; with two nodes there is no third one to say who is wrong."""
    found = next(time for time in schedule.replay_times() if time[0] >= options.step)
    start = _last(time[0] for time in schedule.replay_times() if time[0] < options.step)
    undecided = options.nodes == 2
    narrowed = start if undecided else _rerun(schedule, start)
    return Expected(
        check="replay",
        step=found[0],
        status="undecided" if undecided else "attributed",
        accused=frozenset() if undecided else frozenset({options.rank}),
        candidates=_pair(options) if undecided else frozenset(),
        window=(narrowed, found[0]),
        resume=_resume(schedule, start, found),
        suspect=_saved(schedule, narrowed, found),
        refused=found[0] if found[1] == _SAVE_PROBE else None,
        end="open" if undecided else "recovered",
        relaunches=not undecided,
    )


def _nan(options: Options, schedule: Schedule) -> Expected:
    """The step's own check finds it, and the immediate replay is finite elsewhere."""
    found = (options.step, _OWN)
    start = _last(time[0] for time in schedule.replay_times() if time < found)
    return Expected(
        check="finite",
        step=options.step,
        status="attributed",
        accused=frozenset({options.rank}),
        window=(_rerun(schedule, start), options.step),
        resume=_resume(schedule, start, found),
        suspect=_saved(schedule, _rerun(schedule, start), found),
        end="recovered",
        relaunches=True,
    )


def _suspicious(options: Options, schedule: Schedule) -> Expected:
    """Without a replay nobody can tell data from hardware: the step is skipped and the next ones pass."""
    return Expected(
        check="finite",
        step=options.step,
        status="suspicious",
        contained=True,
        resume=_last(step for step in schedule.saves() if step < options.step),
        end="recovered" if options.step < options.steps else "open",
    )


def _data(options: Options) -> Expected:
    """The not-a-number comes back on another node: it came with the batch."""
    return Expected(check="finite", step=options.step, status="cleared", contained=True, end="closed")


def _reduce(options: Options, schedule: Schedule) -> Expected:
    """Conservation finds it in the very step; the immediate replay then passes on every device."""
    one = options.fault == "reduce-one"
    undecided = one and options.world_size == 2
    return Expected(
        check="conservation",
        step=options.step,
        status="undecided" if undecided else "attributed" if one else "confirmed",
        accused=frozenset({options.rank}) if one and not undecided else frozenset(),
        candidates=frozenset(range(2)) if undecided else frozenset(),
        contained=True,
        resume=_last(step for step in schedule.saves() if step < options.step),
        end="open" if undecided else "recovered",
        relaunches=not undecided,
    )


def _flip(options: Options, schedule: Schedule) -> Expected:
    """The next comparison that reads the flipped bit finds it; two replicas cannot outvote each other."""
    times = schedule.replica_times()
    found = next(time for time in times if _reads(time, options))
    passed = (time for time in times if time < found and _proves(time, found))
    start = _last(_state(time) for time in passed if _state(time) < options.step)
    undecided = options.world_size == 2
    return Expected(
        check="replica",
        step=found[0],
        status="undecided" if undecided else "attributed",
        accused=frozenset() if undecided else frozenset({options.rank}),
        candidates=frozenset(range(2)) if undecided else frozenset(),
        window=(start, _state(found)),
        resume=_resume(schedule, start, found),
        suspect=_saved(schedule, start, found),
        refused=found[0] if found[1] == _SAVE_REPLICA else None,
        end="open" if undecided else "recovered",
        relaunches=not undecided,
    )


def _reads(time: When, options: Options) -> bool:
    """Tell whether a comparison sees the flip. A flipped optimizer state reaches the weights one update later."""
    late = 1 if options.fault == "optimizer" and time[1] == _REPLICA else 0
    return time > (options.step, _UPDATE) and _state(time) >= options.step + late


def _proves(time: When, found: When) -> bool:
    """Tell whether a comparison read all that the failed one read: in the loop, weights only."""
    return found[1] == _REPLICA or time[1] != _REPLICA


def _state(time: When) -> int:
    """Return the step of the state that a comparison reads: in the loop, the one before the step."""
    return time[0] - 1 if time[1] == _REPLICA else time[0]


def _resume(schedule: Schedule, start: int, found: When) -> int:
    """Return the newest save outside the window that was audited afterwards, else the newest outside; else 0."""
    outside = [step for step in schedule.saves() if step <= start]
    audited = _last(time[0] for time in schedule.replay_times() if time < found)
    trusted = _last(step for step in outside if step <= audited)
    return trusted or _last(outside)


def _rerun(schedule: Schedule, start: int) -> int:
    """Return where the window starts once attempt 2 has computed the same bits for the saves before the fault."""
    return max(start, _last(step for step in schedule.saves() if step < schedule.options.step))


def _saved(schedule: Schedule, start: int, found: When) -> tuple[int, ...]:
    """Return the saves inside the window that were made before the finding."""
    return tuple(step for step in schedule.saves() if start < step and (step, _CLOSE_REPLICA) <= found)


def _pair(options: Options) -> frozenset[int]:
    """Return the rank and the one in its slot on the other of two nodes: each replays the other's batches."""
    return frozenset((options.rank, (options.rank + options.ranks_per_node) % options.world_size))


def _last(steps: Iterable[int]) -> int:
    """Return the newest step; 0, the state before training, when there is none."""
    return max(steps, default=0)
