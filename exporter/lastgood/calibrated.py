"""What replay does in a job that is not deterministic: compare numbers, journal it as *not run*, suspect nobody.

A round in which nothing lies outside proves nothing: it is journaled as *not run*, with what was compared, so no window
begins after it and no checkpoint is trusted for it. What lies outside is a finding of ``replay`` that names no rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lastgood.findings import number
from lastgood.judge import PROCEED, Decision, Judge
from lastgood.recorder import MicroBatch, Recorder
from lastgood.replay import Replayer
from lastgood.replay_calibrated import CalibratedReplayer, Compared
from lastgood.verdict_spread import evidence_of, rule_apart

NOT_DETERMINISTIC: Final = "the job is not deterministic"
ONLY: Final = f"{NOT_DETERMINISTIC}: only loss and norms are compared, with the spread of its own repeats"


class CalibratedReplay:
    """The replay of a job whose spread is known. Equal on every rank."""

    def __init__(self, replayer: CalibratedReplayer, judge: Judge, first: Compared) -> None:
        self.replayer, self.judge, self._first = replayer, judge, first

    def begin(self, phase: str, step: int) -> Decision:
        """Tell what the round found that calibrated. Collective."""
        return self._tell(self._first, phase, step)

    def audit(self, recorder: Recorder, phase: str, step: int) -> Decision:
        """Compare the gradient that went into the step with another node's. Collective."""
        return self._round(recorder.current[:1], phase, step, actual=recorder.repeats_itself)

    def probe(self, recorder: Recorder, phase: str, step: int) -> Decision:
        """Compare the last batch under the current weights. Collective."""
        return self._round(recorder.current[-1:], phase, step, actual=False)

    def _round(self, micros: Sequence[MicroBatch], phase: str, step: int, *, actual: bool) -> Decision:
        return self._tell(self.replayer.compare(micros, actual=actual), phase, step)

    def _tell(self, compared: Compared, phase: str, step: int) -> Decision:
        self.judge.journal_check("replay", phase, step, step, "not_run", compared.reason or _outcome(compared))
        if not compared.apart:
            return PROCEED
        worst = max(compared.apart, key=lambda found: found.outlier.apart / found.outlier.limit)
        found = self.judge.finding(
            "replay",
            step,
            phase,
            [],
            tensor=worst.tensor,
            observed=f"{number(worst.outlier.one)} on rank {worst.owner}",
            expected=f"{number(worst.outlier.other)}, as on rank {worst.partner}",
            evidence=[evidence_of(pair, self.judge.nodes) for pair in compared.apart],
        )
        return self.judge.publish("replay", rule_apart(compared.apart, self.judge.nodes), [found])


def calibrated(replayer: Replayer, judge: Judge, phase: str) -> tuple[CalibratedReplay | None, str]:
    """Measure how far the job's repeats spread; return what compares from now on, and why nothing is proven.

    None where nothing can be compared or repeated, or at the end of the attempt. Collective.
    """
    if phase == "close" or not replayer.can_repeat:
        return None, NOT_DETERMINISTIC
    numbers = CalibratedReplayer(replayer)
    first = numbers.compare(replayer.recorder.current[-1:], actual=False)
    if first.reason:
        return None, f"{NOT_DETERMINISTIC}, and its numbers cannot be compared: {first.reason}"
    return CalibratedReplay(numbers, judge, first), ONLY


def _outcome(compared: Compared) -> str:
    count = len(compared.apart)
    said = f"{count} of {len(compared.pairs)} pairs lie outside" if count else "nothing lies outside"
    blind = f", {compared.blind} of {compared.blind + compared.quantities} numbers spread too much to be compared"
    untold = f", {len(compared.untold)} pairs could not be repeated"
    return f"{ONLY}; {said}{blind if compared.blind else ''}{untold if compared.untold else ''}"
