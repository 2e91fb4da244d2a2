"""Hold a trial's record against the truth: found or missed, by whom, how late, who was blamed, which steps and saves.

Pure: a run's state as :func:`lastgood.fold.derive` made it, the ranks' truth, and the truth of the clean run with the
same seed. Nothing is taken from the state but what a user of lastgood would be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from lastgood.drill.plan import ARBITER, BATCH, CHECKPOINT, CONTROL, Trial
from lastgood.drill.reach import LOAD, Demand, demands, firsts
from lastgood.drill.truth import Truth
from lastgood.state import Finding, Incident, RunState

Result = Literal["detected", "missed", "beyond", "outside", "no effect", "clean", "alarm"]
"""``detected``, ``missed``: inside reach. ``beyond``: outside reach and found all the same; ``outside``: not found.
``clean``, ``alarm``: controls, the second with a finding or a wrong refusal."""
Blame = Literal["right", "wrong", "undecided", ""]

NOBODY: Final = ("local bucket", "reduced, all ranks", BATCH, CHECKPOINT, ARBITER)
"""Rows in which no device can or may be named: all ranks hold the same wrong result, or no device is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one trial."""

    trial: str
    row: str
    kind: str
    when: str
    result: Result
    checks: tuple[str, ...] = ()
    """The checks of the first finding's step."""
    latency: int | None = None
    """Steps from the first faulty step to the first finding."""
    blame: Blame = ""
    names: bool = False
    """Whether the evidence is exact and has to name a device."""
    window: bool | None = None
    """Whether the window contains the first faulty step after the last passed audit; None where there is none."""
    last_good: bool | None = None
    """Whether the last good checkpoint is bit for bit that of the clean run; None where that says nothing."""
    escapes: int = 0
    """Faulty steps before the window: missed, and measured."""
    false: int = 0
    """Findings that no fault explains."""
    steps: int = 0
    complaints: tuple[str, ...] = ()
    """What misses a target, a sentence each."""


def score(trial: Trial, state: RunState, truth: Truth, clean: Truth | None) -> Outcome:
    """Return what came of a trial. ``clean``: the truth of its reference."""
    happened = _training(state)
    asked = firsts([*demands(trial, truth, happened)])
    found = _found(state, trial)
    base = _Base(trial, state, truth, clean, happened, asked, found)
    return base.control() if trial.row == CONTROL else base.fault()


@dataclass(frozen=True, slots=True)
class _Base:
    trial: Trial
    state: RunState
    truth: Truth
    clean: Truth | None
    happened: Sequence[Mapping[str, Any]]
    asked: Sequence[Demand]
    found: Sequence[Finding]

    def control(self) -> Outcome:
        """Score a job without a fault: any finding is a false alarm, and its last save must load."""
        wrong = [f"{len(self.state.findings)} findings in a clean job"] if self.state.findings else []
        wrong += ["the load of an intact checkpoint was refused"] if self.truth.refused else []
        wrong += [f"rank {rank} was accused" for rank in sorted(_accused(self.state))]
        return self._outcome("alarm" if wrong else "clean", false=len(self.state.findings), complaints=tuple(wrong))

    def fault(self) -> Outcome:
        """Score a job with a fault."""
        blame, first = self._blame(), self.found[0] if self.found else None
        result = self._result()
        escapes = self._escapes() if first else 0
        names = first is not None and self.trial.row not in NOBODY and len(self.truth.weights[0]) > 2
        names = names and not self._open_by_rule()
        window = self._window(escapes) if self._dates() else None
        seen = result in ("detected", "beyond")
        last_good = self._last_good() if seen and self.trial.row not in (BATCH, CHECKPOINT) else None
        outcome = self._outcome(
            result,
            checks=self._checks(first),
            latency=max(0, first.step - self._onset()) if first else None,
            blame=blame,
            names=names and seen,
            window=window,
            last_good=last_good,
            escapes=escapes,
            false=len(self.state.findings) - len(self.found),
        )
        return _with(outcome, tuple(self._complaints(outcome)))

    def _outcome(self, result: Result, **facts: Any) -> Outcome:
        trial = self.trial
        return Outcome(
            trial=trial.name, row=trial.row, kind=trial.kind, when=trial.when, result=result, steps=trial.steps, **facts
        )

    def _result(self) -> Result:
        if self._no_effect():
            return "no effect"
        if not self.asked:
            return "beyond" if self.found else "outside"
        return "missed" if self._missing() else "detected"

    def _no_effect(self) -> bool:
        """Tell whether the fault changed nothing: final weights and every save are those of the clean run."""
        if self.trial.row == CHECKPOINT or self.clean is None:
            return False
        steps = [s for s in range(self.trial.steps + 1) if self.trial.saves(s)]
        return all(self.truth.equals(step, self.clean) for step in steps)

    def _missing(self) -> list[Demand]:
        return [demand for demand in self.asked if not self._met(demand)]

    def _met(self, demand: Demand) -> bool:
        if LOAD in demand.checks:
            return bool(self.truth.refused)
        return any(f.check in demand.checks and demand.step <= f.step <= demand.latest for f in self.found)

    def _checks(self, first: Finding | None) -> tuple[str, ...]:
        if self.trial.row == CHECKPOINT and self.truth.refused:
            return (LOAD,)
        at = [f.check for f in self.found if first and f.step == first.step]
        return tuple(dict.fromkeys(at))

    def _onset(self) -> int:
        return min((int(data["step"]) for data in self.happened), default=self.trial.steps)

    def _blame(self) -> Blame:
        """Say whom the verdicts accuse over the whole trial."""
        accused = _accused(self.state)
        if accused - self.trial.ranks:
            return "wrong"
        if accused:
            return "right"
        return "undecided" if self.state.verdicts else ""

    def _open_by_rule(self) -> bool:
        """Tell whether the arbitration leaves a case of an intermittent fault open, as documented.

        The device came to its own wrong value twice on one batch and was right on a second one: two nodes that choose
        other kernels for one batch look like that, so nobody is accused before it is seen again.
        """
        pairs = [e for f in self.found for e in f.evidence if e.get("kind") == "replay"]
        named = {s.rank for v in self.state.verdicts for s in v.suspects}
        once = bool(pairs) and all(e.get("second_batch_odd") is False for e in pairs)
        return self.trial.when == "intermittent" and once and self.trial.ranks <= named and not _accused(self.state)

    # --- which steps, which save --------------------------------------------------------------------------------------

    def _dates(self) -> bool:
        """Tell whether a window can be judged: a device was broken, and it did harm before it was found."""
        if not self.found or self.trial.row in (BATCH, ARBITER):
            return False
        return any(int(data["step"]) <= self.found[0].step for data in self.happened)

    def _escapes(self) -> int:
        """Count the faulty steps before the window of the first finding."""
        window = self._incident_window()
        return 0 if window is None else len({int(d["step"]) for d in self.happened if int(d["step"]) <= window[0]})

    def _window(self, escapes: int) -> bool | None:
        """Tell whether the window holds the first faulty step after its start, and no audit that failed lies before.

        Earlier faulty steps are excused where there was nothing to find up to the window's start: a fault that did not
        act in an audited step, was below the tolerance, or had not yet reached what was compared. An intermittent one
        may be found because it acted in a replay, with no faulty step since the last passed one: then there is
        nothing to hold.
        """
        window = self._incident_window()
        if window is None:
            return False
        start, end = window
        if any(start < int(d["step"]) <= end for d in self.happened):
            return not escapes or self._was_right_at(start)
        if self.trial.when == "intermittent" and self.found[0].check == "replay":
            return None
        return self.trial.row.startswith("optimizer") and self._was_right_at(start)

    def _was_right_at(self, step: int) -> bool:
        """Tell whether the checks were right to pass ``step``: nothing was to be found up to there.

        Of a permanent fault that replay found the step must be one whose gradient the ranks know to be right.
        """
        if any(demand.step <= step for demand in self.asked):
            return False
        return self.trial.when != "permanent" or self.found[0].check != "replay" or step in self.truth.changed

    def _incident_window(self) -> tuple[int, int] | None:
        incident = _incident_of(self.state, self.found[0])
        window = incident.window if incident else None
        return None if window is None else (window.start, window.end)

    def _last_good(self) -> bool:
        good = self.state.last_good
        if not good.exists or good.step == 0 or self.clean is None:
            return True
        return self.truth.equals(good.step, self.clean)

    # --- what misses a target ---------------------------------------------------------------------------------------

    def _complaints(self, outcome: Outcome) -> Iterator[str]:
        if outcome.result == "missed":
            for demand in self._missing():
                yield f"{' or '.join(demand.checks)} did not find it at step {demand.step} to {demand.latest}"
        if outcome.blame == "wrong":
            wrong = ", ".join(str(rank) for rank in sorted(_accused(self.state) - self.trial.ranks))
            yield f"rank {wrong} was accused, and is healthy"
        if outcome.names and outcome.result == "detected" and outcome.blame == "undecided":
            yield "exact evidence named nobody"
        if outcome.result == "detected" and outcome.window is False:
            yield f"the window {self._incident_window()} does not contain the first faulty step after its start"
        if outcome.result == "detected" and outcome.last_good is False and not outcome.escapes:
            yield f"the last good checkpoint {self.state.last_good.step} is a faulty one"
        if outcome.false:
            yield f"{outcome.false} findings before any fault"
        if self.trial.row != ARBITER and (reason := _not_deterministic(self.state)):
            yield f"one broken device switched replay off: {reason}"


def _with(outcome: Outcome, complaints: tuple[str, ...]) -> Outcome:
    facts = {name: getattr(outcome, name) for name in Outcome.__dataclass_fields__}
    return Outcome(**{**facts, "complaints": complaints})


def _not_deterministic(state: RunState) -> str:
    """Return why replay was taken for impossible in this job, or an empty string."""
    return next((r.reason for r in state.rounds if r.check == "replay" and "not deterministic" in r.reason), "")


def _training(state: RunState) -> list[Mapping[str, Any]]:
    """Return the injections that training saw; those within a replay left no trace in it."""
    return [event.data for event in state.injections if not event.data.get("replay")]


def _found(state: RunState, trial: Trial) -> list[Finding]:
    """Return the findings since the fault is there, earliest first; it may show in a replay before it does harm."""
    begin = min((fault.step for fault in trial.faults), default=trial.steps + 1)
    return sorted((f for f in state.findings if f.step >= begin), key=lambda f: (f.step, f.at))


def _accused(state: RunState) -> frozenset[int]:
    """Return every rank that a verdict of the run accuses."""
    return frozenset(s.rank for verdict in state.verdicts for s in verdict.suspects if s.role == "accused")


def _incident_of(state: RunState, finding: Finding) -> Incident | None:
    return next((i for i in state.incidents if any(f.id == finding.id for f in i.findings)), None)
