"""Turn a ruling into the record and a decision: findings and verdict with the same bytes everywhere, then the policy.

Rank 0 builds the data and everybody hears it, so that every rank decides from identical bytes. Rank 0 and every named
rank write it: the named one may be the only rank that still can, and readers drop copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch.optim import LBFGS, Optimizer

from lastgood import findings as build
from lastgood.config import Config
from lastgood.notice import warn
from lastgood.session import Session
from lastgood.verdict import Ruling

NORMS_KEPT: Final = 128
"""Steps of local gradient norms kept on each rank for the picture of a suspect against its peers."""
PEERS_SHOWN: Final = 2
MOST_WRITERS: Final = 8
"""A symptom of thousands of ranks is not written thousands of times."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of the step in progress. ``action``: proceed, skip, record or stop."""

    action: str = "proceed"
    message: str = ""
    verdict: Mapping[str, Any] | None = None

    def worse(self, other: Decision) -> Decision:
        """Return the stronger of two decisions."""
        order = ("proceed", "record", "skip", "stop")
        return other if order.index(other.action) > order.index(self.action) else self


PROCEED: Final = Decision()


class Judge:
    """Record what was found, and decide what becomes of the step. Equal on every rank."""

    def __init__(self, session: Session, config: Config, optimizers: Sequence[Optimizer]) -> None:
        self.session, self.config, self.optimizers = session, config, optimizers
        self.world, self.metrics, self.publisher = session.world, session.metrics, session.publisher
        self.nodes = dict(enumerate(session.nodes))
        self.norms: deque[float] = deque(maxlen=NORMS_KEPT)
        self.skipped_in_a_row = 0
        self.passed: dict[str, int] = {}
        self._said: set[str] = set()

    def finding(self, check: str, step: int, phase: str, ranks: Sequence[int], **facts: Any) -> dict[str, Any]:
        """Return the data of a finding."""
        state_step = facts.pop("state_step", step)
        return build.finding_data(
            check=check,
            step=step,
            state_step=state_step,
            phase=phase,
            ranks=list(ranks),
            places=self.session.places,
            **facts,
        )

    def publish(self, check: str, ruling: Ruling, found: list[dict[str, Any]], *, guarded: bool = True) -> Decision:
        """Write findings and verdict on rank 0 and on every named rank, with the same bytes; decide. Collective."""
        named = {*ruling.accused, *ruling.candidates, *(r for f in found for r in f["ranks"])}
        self._add_peers(found, sorted({*ruling.accused, *ruling.candidates} or named)[:PEERS_SHOWN])
        payload = None
        if self.world.rank == 0:
            payload = self._payload(check, ruling, found, guarded)
        payload = self.world.broadcast_json(payload)
        if self.world.rank in named:
            self.metrics.check(check, "failed", -1)
        if self.world.rank in writers(ruling, named):
            self.publisher.write_facts(payload["findings"], payload["verdict"])
        action = payload["verdict"]["action"]
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if action == "skip" else 0
        return Decision(action, payload["message"], payload["verdict"])

    def _payload(self, check: str, ruling: Ruling, found: list[dict[str, Any]], guarded: bool) -> dict[str, Any]:
        action = build.action_of(ruling, check, self.config.policy_for(check), self.skipped_in_a_row)
        emptied = all(_skippable(o) for o in self.optimizers)
        if action == "skip" and not emptied:
            action = "stop"
        for data in found:
            if data["check"] in ("finite", "conservation"):
                data["contained"] = guarded and emptied and action in ("skip", "stop")
        verdict = build.verdict_data(ruling, found, self.session.places, action)
        resume, headline = self.publisher.foresee(found, verdict)
        cleared = ruling.status == "cleared" and action != "stop"
        verdict["resume"] = None if cleared else resume  # training goes on: nobody has to resume
        return {"findings": found, "verdict": verdict, "message": _message(headline, verdict, found[0])}

    def _add_peers(self, found: list[dict[str, Any]], ranks: Sequence[int]) -> None:
        """Attach the named ranks' gradient norms against the others'. Collective."""
        rows = self.world.gather_floats(list(self.norms)) if self.norms and self.world.size > 1 else []
        if not rows or not ranks or self.world.rank != 0:
            return
        first = found[0]["step"] - len(self.norms) + 1
        found[-1]["evidence"] += [build.peers_evidence(rank, first, rows) for rank in ranks]

    def pass_(self, check: str, step: int) -> None:
        """Note that a check passed on this rank."""
        self.passed[check] = step
        self.metrics.check(check, "passed", step)

    def journal_check(
        self,
        check: str,
        phase: str,
        state_step: int,
        step: int,
        result: str,
        reason: str = "",
        exceptions: Mapping[int, tuple[str, str]] | None = None,
    ) -> None:
        """Journal one round of a collective check, on rank 0."""
        if self.world.rank != 0:
            return
        listed = [{"rank": r, "result": v[0], "reason": v[1]} for r, v in sorted((exceptions or {}).items())]
        data = {"check": check, "phase": phase, "state_step": state_step, "result": result, "reason": reason}
        self.publisher.write("check", {**data, "exceptions": listed}, step=step)

    def say(self, text: str) -> None:
        """Warn once, on rank 0."""
        key = text.split(":")[0].split(" at step")[0]
        if self.world.rank == 0 and key not in self._said:
            self._said.add(key)
            warn(text)


def writers(ruling: Ruling, named: Collection[int]) -> set[int]:
    """Return the ranks that write a finding down: rank 0 and the named ones; of many a few, the accused first."""
    return {0, *(sorted(named, key=lambda rank: (rank not in ruling.accused, rank))[:MOST_WRITERS])}


def _message(headline: str, verdict: Mapping[str, Any], finding: Mapping[str, Any]) -> str:
    resume = verdict["resume"]
    advice = "Nothing to resume from is known."
    if resume and resume["step"] >= 0:
        advice = f"Resume from step {resume['step']} ({resume['trust']}): {resume['path']}."
    what = headline or f"The check {finding['check']} failed at step {finding['step']} ({verdict['status']})."
    return f"{what} {advice}"


def _skippable(optimizer: Optimizer) -> bool:
    """LBFGS fills its gradients again in the closure, so its step cannot be emptied."""
    return not isinstance(optimizer, LBFGS)
