"""Replay steps on other nodes, judge what disagrees, and know what to do where a job does not repeat itself.

A round is :mod:`lastgood.replay`'s. Where bits prove nothing, :mod:`lastgood.calibrated` compares numbers from then on.
"""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.cadences import Cadences
from lastgood.calibrated import NOT_DETERMINISTIC, CalibratedReplay, calibrated
from lastgood.fingerprint import hex64
from lastgood.judge import PROCEED, Decision, Judge
from lastgood.pair_evidence import pair_evidence
from lastgood.recorder import Recorder
from lastgood.replay import Replayer, Round
from lastgood.session import Session
from lastgood.verdict import Ruling, arbitrate, confirmed_ranks


class ReplayCheck:
    """The replays of one rank. ``why_not``: check -> why it cannot run; written when a job does not repeat itself.

    ``replayer`` is None where replay does not run, or does not any more; ``calibrated`` is what took its place.
    """

    def __init__(
        self,
        session: Session,
        judge: Judge,
        cadences: Cadences,
        recorder: Recorder | None,
        replayer: Replayer | None,
        why_not: dict[str, str],
    ) -> None:
        self._session, self._world, self._judge, self._cadences = session, session.world, judge, cadences
        self._recorder, self._why_not = recorder, why_not
        self.replayer: Replayer | None = None
        if "replay" not in why_not and recorder is not None:
            self.replayer = replayer or Replayer(session.world, recorder, session.nodes, session.environments)
        self.calibrated: CalibratedReplay | None = None

    @property
    def runs(self) -> bool:
        """Tell whether batches are replayed at all."""
        return self.replayer is not None or self.calibrated is not None

    def audit(self, replicas: Decision, phase: str, step: int) -> Decision:
        """Compare the gradient that went into the step with another node's. Collective.

        ``replicas``: what the comparison of weights just before said.
        """
        if self._recorder is None or self.replicas_differ(replicas, phase, step):
            return PROCEED
        if self.calibrated is not None:
            return self.calibrated.audit(self._recorder, phase, step)
        assert self.replayer is not None
        round_ = self.replayer.round(self._recorder.current[:1], actual=self._recorder.repeats_itself)
        return self.judge(round_, phase, step)

    def probe(self, phase: str, step: int) -> tuple[Decision, str]:
        """Compare the last batch under the current weights; also returns passed, failed or not_run. Collective."""
        if self.calibrated is not None and self._recorder is not None:
            return self.calibrated.probe(self._recorder, phase, step), "not_run"
        if self.replayer is None or self._recorder is None:
            return PROCEED, "not_run"
        round_ = self.replayer.round(self._recorder.current[-1:], actual=False)
        judged = self.judge(round_, phase, step)
        ran = round_.ran and self.replayer is not None
        return judged, ("passed" if judged is PROCEED else "failed") if ran else "not_run"

    def immediate(self, step: int, nonfinite: Mapping[int, str], replicas: Decision, moved_on: bool) -> Round | None:
        """Replay this very step. All micro-batches of a rank whose step was not finite, else the last one.

        ``moved_on``: the weights are no longer those it ran under, so another device can say nothing about it.
        """
        if self.replayer is None or self._recorder is None or self.replicas_differ(replicas, "immediate", step):
            return None
        if moved_on:
            reason = "the step was in the weights before it was judged"
            self._judge.journal_check("replay", "immediate", step, step, "not_run", reason)
            return None
        micros = self._recorder.of(step)
        round_ = self.replayer.round(
            micros if self._world.rank in nonfinite else micros[-1:], actual=False, nonfinite=nonfinite
        )
        if round_.reason:
            self._judge.journal_check("replay", "immediate", step, step, "not_run", round_.reason)
            return None
        return round_

    def replicas_differ(self, replicas: Decision, phase: str, step: int) -> bool:
        """Tell whether the comparison just before failed: ranks with other weights cannot replay each other's batch."""
        if replicas is PROCEED:
            return False
        self._judge.journal_check("replay", phase, step, step, "not_run", "the replicas differ")
        return True

    def judge(self, round_: Round, phase: str, step: int) -> Decision:
        """Journal a round, and judge what disagreed. Collective where something did."""
        if round_.reason:
            self._judge.say(f"replay did not run at step {step}: {round_.reason}")
            self._judge.journal_check("replay", phase, step, step, "not_run", round_.reason)
            return PROCEED
        ruling = arbitrate(round_.disputes, self._judge.nodes)
        if not ruling.deterministic:
            return self._switch_off(ruling, phase, step)
        self.journal(round_, phase, step, ruling)
        return self.publish(round_, phase, step, ruling) if ruling.status else PROCEED

    def _switch_off(self, ruling: Ruling, phase: str, step: int) -> Decision:
        """Bits say nothing any more; from here on replay compares numbers, where they say something."""
        assert self.replayer is not None
        why = f"{NOT_DETERMINISTIC}: {' '.join(ruling.reasons_for)}"
        self._judge.journal_check("replay", phase, step, step, "not_run", why)
        self.calibrated, reason = calibrated(self.replayer, self._judge, phase)
        self.replayer, self._why_not["replay"] = None, reason
        self._cadences.calibrated = self.calibrated is not None
        said = " ".join((*ruling.reasons_for, *ruling.reasons_against))
        self._judge.say(f"replay proves nothing from step {step}: {reason}. {said}")
        if self._world.rank == 0:
            change = {"cadence": self._cadences.by_check(), "not_run": {"replay": reason}}
            self._session.publisher.write("cadence", change, step)
        return PROCEED if self.calibrated is None else self.calibrated.begin(phase, step)

    def journal(self, round_: Round, phase: str, step: int, ruling: Ruling) -> None:
        """Journal what a round says of each rank."""
        disputes = [*round_.disputes, *round_.nonfinite_disputes]
        confirmed = confirmed_ranks(round_.pairs, disputes, ruling)
        failed = bool(ruling.accused or ruling.candidates)
        exceptions: dict[int, tuple[str, str]] = {r: ("not_run", why) for r, why in round_.not_run.items()}
        for rank in set(round_.pairs) - confirmed:
            named = rank in ruling.accused or rank in ruling.candidates
            exceptions[rank] = ("failed", "") if named else ("not_run", "its own batch was not confirmed elsewhere")
        self._judge.journal_check("replay", phase, step, step, "failed" if failed else "passed", exceptions=exceptions)
        if self._world.rank in confirmed:
            self._judge.pass_("replay", step)

    def publish(self, round_: Round, phase: str, step: int, ruling: Ruling) -> Decision:
        """Publish the finding of a round. Collective."""
        named = [*ruling.accused, *ruling.candidates]
        lead = next((d for d in round_.disputes if {d.owner, d.partner} & set(named)), round_.disputes[0])
        wrong_owner = lead.owner in named
        observed, expected = lead.owner_first, lead.partner_first
        if not wrong_owner:
            observed, expected = expected, observed
        found = self._judge.finding(
            "replay",
            step,
            phase,
            named,
            tensor=round_.tensors.get(lead.owner),
            observed=hex64(observed),
            expected=hex64(expected),
            evidence=[pair_evidence(d) for d in round_.disputes],
        )
        return self._judge.publish("replay", ruling, [found])
