"""Sample weights and optimizer state within a step, and judge on all ranks what changed while nobody wrote."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lastgood.at_rest import AtRest, Changed
from lastgood.comm import World
from lastgood.fingerprint import hex64
from lastgood.judge import PROCEED, Decision, Judge
from lastgood.notice import warn
from lastgood.sharded import locally
from lastgood.verdict import rule_at_rest


class RestCheck:
    """The samples of one rank, one at a time (:mod:`lastgood.at_rest`)."""

    def __init__(self, world: World, judge: Judge) -> None:
        self.sample = AtRest()
        self._world, self._judge = world, judge

    def begin(self, state: Sequence[tuple[str, Tensor]], number: int) -> None:
        """Begin sample ``number``, before the first forward of its step. Not collective."""
        self.sample.begin(locally(state), number)

    def end(self, step: int) -> Decision:
        """End the sample of step ``step`` on every rank, and judge it. Collective."""
        (looked, mine), phase = self._second_look(), self.sample.phase
        rows = self._world.gather_ints([int(looked), int(mine is not None)])
        if not all(did for did, _ in rows):
            self._judge.journal_check("at_rest", phase or "loop", step - 1, step, "not_run", "no sample was begun")
            return PROCEED
        odd = [rank for rank, (_, changed) in enumerate(rows) if changed]
        exceptions = {rank: ("failed", "") for rank in odd}
        result = "failed" if odd else "passed"
        self._judge.journal_check("at_rest", phase, step - 1, step, result, exceptions=exceptions)
        if mine is None:
            self._judge.pass_("at_rest", step - 1)
        return self._rule(mine, odd, phase, step) if odd else PROCEED

    def _second_look(self) -> tuple[bool, Changed | None]:
        """Look again; a rank that cannot still answers the others, who wait for it. Returns whether it could."""
        begun = self.sample.begun
        try:
            return begun, self.sample.end()
        except Exception as error:
            self._judge.metrics.error("check")
            warn(f"at_rest could not look again ({type(error).__name__}: {error}). Training goes on.")
            return False, None

    def _rule(self, mine: Changed | None, odd: Sequence[int], phase: str, step: int) -> Decision:
        said = [mine.tensor, mine.observed, mine.expected] if mine else None
        tensor, observed, expected = self._world.broadcast_json(said, source=odd[0])
        ruling = rule_at_rest(odd, self._judge.nodes, tensor)
        facts = {"tensor": tensor, "observed": hex64(observed), "expected": hex64(expected)}
        found = self._judge.finding("at_rest", step, phase, odd, state_step=step - 1, **facts)
        return self._judge.publish("at_rest", ruling, [found])
