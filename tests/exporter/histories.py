"""Build the events of made-up runs, step by step, as rank 0 of a real one would have written them.

A :class:`History` has a clock that goes on by one second an event. Every method writes what one thing in a run writes:
``start``, ``audit``, ``save``, ``find``, ``rule``, ``end``. Devices are ``gpu_uuid`` "GPU-<node>-<slot>".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lastgood.events import CHECKS, Event, Result, fact_id, source_of, utc
from lastgood.fold import derive
from lastgood.state import Incident, Place, RunState

BEGIN = 1_795_917_600.0  # 2026-11-29T02:00:00Z
CADENCE: Mapping[str, int | None] = {"finite": 1, "conservation": 1, "replica": 50, "replay": 50, "at_rest": None}
PASSED: Mapping[str, Result] = {"finite": "passed", "conservation": "passed", "replica": "passed"}


def places(nodes: Sequence[str] = ("node-a", "node-b", "node-c"), per_node: int = 2) -> tuple[Place, ...]:
    """Return the places of a job: ranks ordered by node."""
    return tuple(
        Place(rank=n * per_node + slot, node=node, gpu_uuid=f"GPU-{node}-{slot}", slot=slot)
        for n, node in enumerate(nodes)
        for slot in range(per_node)
    )


@dataclass
class History:
    """The growing journal of one run."""

    run: str = "llama-7b"
    events: list[Event] = field(default_factory=list)
    topologies: dict[int, tuple[Place, ...]] = field(default_factory=dict)
    attempt: int = 0
    now: float = BEGIN
    count: int = 0

    # what a run does

    def start(
        self,
        from_step: int = 0,
        parent: tuple[int, int, str] | None = None,
        *,
        nodes: Sequence[str] = ("node-a", "node-b", "node-c"),
        per_node: int = 2,
        known: bool = True,
        verified: bool = True,
        not_run: Mapping[str, str] | None = None,
        topology: bool = True,
    ) -> History:
        """Begin the next attempt."""
        self.attempt += 1
        where = places(nodes, per_node)
        if topology:
            self.topologies[self.attempt] = where
        off = {"at_rest": "switched off"} | dict(not_run or {})
        return self.write(
            "run.started",
            world_size=len(where),
            topology=f"topology/{self.attempt:06}.json.gz",
            config={},
            cadence={check: None if check in off else CADENCE[check] for check in CHECKS},
            not_run=off,
            environment={"cpu": list(range(len(where)))},
            versions={"lastgood": "0.1.0"},
            seed=1,
            parent=dict(zip(("attempt", "step", "path"), parent, strict=True)) if parent else None,
            parent_known=known,
            parent_verified=verified,
            from_step=from_step,
        )

    def audit(
        self,
        step: int,
        *,
        check: str = "replay",
        phase: str = "audit",
        state_step: int | None = None,
        failed: Sequence[int] = (),
        not_run: Sequence[int] = (),
        result: Result | None = None,
    ) -> History:
        """Run one round; the ranks of ``failed`` and ``not_run`` are its exceptions."""
        odd = [{"rank": r, "result": "failed", "reason": ""} for r in failed]
        odd += [{"rank": r, "result": "not_run", "reason": "no partner"} for r in not_run]
        return self.write(
            "check",
            step,
            check=check,
            phase=phase,
            state_step=step if state_step is None else state_step,
            result=result or ("failed" if failed else "passed"),
            reason="",
            exceptions=odd,
        )

    def save(
        self,
        step: int,
        path: str = "",
        *,
        checks: Mapping[str, Result] | None = None,
        probe: bool = False,
        fingerprint: str = "",
    ) -> History:
        """Save a checkpoint after its replica round, and after a probe if asked."""
        named = dict(PASSED if checks is None else checks)
        if named.get("replica") == "passed":
            self.audit(step, check="replica", phase="save")
        if probe:
            self.audit(step, phase="probe")
            named["replay"] = "passed"
        return self.write(
            "checkpoint.saved",
            step,
            attempt=self.attempt,
            step=step,
            path=path or self.path(step),
            parent=None,
            bytes=402,
            seconds=0.5,
            blocked_seconds=0.5,
            fingerprint=fingerprint or f"{self.attempt:016x}{step:016x}",
            checks=named,
        )

    def refuse(self, step: int, **checks: Result) -> History:
        """Refuse a save for integrity."""
        return self.write(
            "checkpoint.failed",
            step,
            attempt=self.attempt,
            step=step,
            path=self.path(step),
            reason="integrity",
            checks=checks,
        )

    def find(
        self,
        check: str,
        step: int,
        ranks: Sequence[int] = (),
        *,
        phase: str = "audit",
        state_step: int | None = None,
        contained: bool = False,
        tensor: str | None = None,
    ) -> History:
        """Journal a finding as a collective fact."""
        where = {p.rank: p for p in self.topologies.get(self.attempt, places())}
        return self.write(
            "finding",
            step,
            id=fact_id("finding", check, step, phase),
            check=check,
            step=step,
            state_step=step if state_step is None else state_step,
            phase=phase,
            contained=contained,
            ranks=list(ranks),
            devices=[device(where[rank]) for rank in ranks],
            tensor=tensor,
            bucket=0 if check == "conservation" else None,
            observed="4.00",
            expected="0.40",
            evidence=[{"kind": "replay", "text": "Rank 5 (node-c) disagreed."}],
        )

    def rule(
        self,
        status: str,
        *findings: tuple[str, int, str],
        accused: Sequence[int] = (),
        candidates: Sequence[int] = (),
        scope: str = "gpu",
        nature: str = "unknown",
        resume: tuple[int, int, str] | None = None,
        action: str = "stop",
        at_step: int | None = None,
    ) -> History:
        """Journal a verdict on findings, each named by its (check, step, phase)."""
        where = {p.rank: p for p in self.topologies.get(self.attempt, places())}
        named = [(r, "accused") for r in accused] + [(r, "candidate") for r in candidates]
        check, step, phase = findings[-1]
        frozen = dict(zip(("attempt", "step", "path"), resume, strict=True)) if resume else None
        return self.write(
            "verdict",
            step if at_step is None else at_step,
            id=fact_id("verdict", check, step, f"{phase}{at_step or ''}{status}"),
            findings=[fact_id("finding", *finding) for finding in findings],
            status=status,
            scope=scope,
            suspects=[device(where[rank]) | {"role": role} for rank, role in named],
            nature=nature,
            confidence="exact" if status == "attributed" else "low",
            **{"for": ["Rank 5 (node-c) disagreed with rank 3 (node-b)."], "against": []},
            resume=frozen and frozen | {"trust": "trusted", "reason": "All 6 devices passed a replay at step 50."},
            action=action,
        )

    def end(self, last_step: int, reason: str = "integrity") -> History:
        """End the attempt."""
        code = 0 if reason == "completed" else 1
        return self.write("run.ended", last_step, reason=reason, exit_code=code, last_step=last_step)

    def act(self, action: str, **data: Any) -> History:
        """Journal what a person did in the console."""
        return self.write("action", None, writer="console/host-1", action=action, **data)

    def wait(self, seconds: float) -> History:
        """Let time go by."""
        self.now += seconds
        return self

    # how it is written

    def write(self, kind: str, at_step: int | None = None, *, id: str = "", writer: str = "", **data: Any) -> History:
        """Append one event."""
        self.now += 1
        self.count += 1
        source = source_of(self.run, self.attempt, None if id else 0)
        if writer:
            source = f"/lastgood/{self.run}/{writer}"
        self.events.append(
            Event(
                id=id or f"rank-0-{self.count}",
                source=source,
                type=kind,
                time=utc(self.now),
                run=self.run,
                attempt=self.attempt,
                data=data,
                rank=0,
                node="node-a",
                step=at_step,
            )
        )
        return self

    def path(self, step: int) -> str:
        """Return where this attempt saves a step."""
        return f"checkpoints/a{self.attempt}-step-{step:06}"

    # what comes out

    def state(self, present: Mapping[str, str] | None = None) -> RunState:
        """Fold the events."""
        return derive(self.run, self.events, topologies=self.topologies, present=present)

    def incident(self) -> Incident:
        """Return the only incident."""
        (found,) = self.state().incidents
        return found


def device(place: Place) -> dict[str, Any]:
    """Return a place as the data of an event."""
    return {"rank": place.rank, "node": place.node, "gpu_uuid": place.gpu_uuid, "slot": place.slot}


def trusts(state: RunState) -> dict[tuple[int, int], str]:
    """Return (attempt, step) -> trust of every checkpoint."""
    return {(c.attempt, c.step): c.trust for c in state.checkpoints}


def window(incident: Incident) -> tuple[int, int, int, int, bool] | None:
    """Return the window as (start attempt, start, end attempt, end, contained)."""
    w = incident.window
    return (w.start_attempt, w.start, w.end_attempt, w.end, w.contained) if w else None
