"""Run the checks of a job and turn what they find into a decision that is the same on every rank.

The inspector stands between the numbers (:mod:`lastgood.reduce`) and the record (:mod:`lastgood.publisher`). It judges
``finite`` and ``conservation`` itself, and says when the others run (:class:`ReplicaCheck`, :class:`ReplayCheck`,
:class:`RestCheck`). All its entry points that may communicate are reached by every rank in the same order: the end of a
synchronised backward, the entry of a save, and close. What it decides from is the summed vector or gathered numbers,
never anything that one rank alone knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lastgood.budget import Kind
from lastgood.cadences import Cadences
from lastgood.config import Config
from lastgood.findings import norm_spread
from lastgood.fingerprint import TensorDigests
from lastgood.fsdp_groups import computes_on
from lastgood.judge import PROCEED, Decision, Judge
from lastgood.late import Armed
from lastgood.pairing import partners
from lastgood.projection import tolerance
from lastgood.recorder import Recorder
from lastgood.reduce import BackwardView
from lastgood.replay import Replayer, Round
from lastgood.replay_check import ReplayCheck
from lastgood.replica_check import ReplicaCheck
from lastgood.rest_check import RestCheck
from lastgood.review import Review
from lastgood.session import Session
from lastgood.sharded_replicas import ShardedReplicas
from lastgood.side_stream import side_of
from lastgood.stepvector import FLAGS, StepFacts, Tolerance, odd_ranks, relative, stand_out, unpack
from lastgood.stopwatch import stopwatch_of
from lastgood.verdict import (
    Ruling,
    arbitrate,
    rule_conservation,
    rule_finite,
)


class Inspector:
    """The checks of one rank. ``why_not``: check -> why it cannot run in this attempt (the same on every rank).

    ``cannot``: what the job's communication hook rules out. ``promised``: only the user's word says that it averages.
    """

    def __init__(
        self,
        session: Session,
        config: Config,
        module: nn.Module,
        optimizers: Sequence[Optimizer],
        recorder: Recorder | None,
        *,
        cannot: Mapping[str, str],
        promised: bool = False,
        scaled: bool = False,
        ignored: frozenset[str] = frozenset(),
        shards: ShardedReplicas | None = None,
        replayer: Replayer | None = None,
    ) -> None:
        self.session, self.config, self.module, self.optimizers = session, config, module, optimizers
        self.world, self.metrics = session.world, session.metrics
        self.recorder = recorder
        self.scaled = scaled
        self.ignored = ignored
        self.why_not = self._why_not(cannot)
        device = computes_on(module, session.device)
        self.cadences = Cadences(config, session.world, self.why_not, stopwatch_of(device))
        self.spending = self.cadences.spending
        self.side = side_of(device)
        self._promised = promised
        self._may_differ = "replica" in cannot
        self.judge = Judge(session, config, optimizers)
        self.replay = ReplayCheck(session, self.judge, self.cadences, recorder, replayer, self.why_not)
        self.resting = RestCheck(session.world, self.judge)
        self._replicas = ReplicaCheck(
            session, self.judge, module, optimizers, why_not=self.why_not, ignored=ignored, shards=shards
        )
        self.review = Review(session, self.cadences, self.judge)
        self.tolerance: Tolerance | None = None
        self.previous_odd = False
        self.reduced_norm: float | None = None
        self.spread: dict[str, object] = {}  # the ranks' gradient norms at the last replica check, for progress
        self.start_step = 0
        self._unmeasured = ""  # why conservation did not run in a step, as it was last said
        self._late: Armed | None = None  # what kept the step out that is judged late now
        self._audited = 0  # the newest step whose due checks ran: once per step, whatever is synchronised in it

    # --- what runs, and when -----------------------------------------------------------------------------------------

    def cadence(self) -> dict[str, int | None]:
        """Return check -> steps between two runs now; None for a check that does not run."""
        return self.cadences.by_check()

    def _why_not(self, cannot: Mapping[str, str]) -> dict[str, str]:
        out: dict[str, str] = {}
        if self.recorder is None:
            out["at_rest"] = "no loss_fn"
        elif not self.config.at_rest_every:
            out["at_rest"] = "switched off"
        if self.world.size == 1:
            return out | dict.fromkeys(("conservation", "replica", "replay"), "one rank")
        if not self.config.replica_every:
            out["replica"] = "switched off"
        if self.recorder is None:
            out["replay"] = "no loss_fn"
        elif not self.config.replay_every:
            out["replay"] = "switched off"
        elif self.ignored:
            out["replay"] = "the ranks have parameters of their own, which DistributedDataParallel ignores"
        elif not partners(self.session.nodes, self.session.environments):
            out["replay"] = "no partner on another node with the same environment"
        return out | dict(cannot)

    def replay_due(self, step: int) -> bool:
        """Tell whether step ``step`` is audited by replay: the attempt's first one and every cadence."""
        if not self.replay.runs:
            return False
        return step == self.start_step + 1 or self.cadences.due("replay", step)

    def replica_due(self, step: int) -> bool:
        """Tell whether weights are compared in step ``step``; always just before a replay."""
        if "replica" in self.why_not:
            return False
        return self.cadences.due("replica", step) or self.state_due(step) or self.replay_due(step)

    def state_due(self, step: int) -> bool:
        """Tell whether the replica check of step ``step`` reads the optimizer state as well."""
        return self.cadences.due("state", step)

    def at_rest_due(self, step: int) -> bool:
        """Tell whether step ``step`` is sampled for bits that change while nobody writes."""
        return self.cadences.due("at_rest", step)

    def before_forward(self, step: int) -> None:
        """Begin the sample of step ``step``, before its first forward. Not collective."""
        if self.at_rest_due(step):
            with self.side.apart(), self.spending.on("at_rest", runs=0):
                self.resting.begin(self.shared_state(), step // self.cadences.every("at_rest") - 1)

    # --- the end of a synchronised backward --------------------------------------------------------------------------

    def after_backward(self, view: BackwardView, step: int, audit: bool) -> Decision:
        """Judge step ``step`` (in progress). ``audit``: this is its last synchronised backward."""
        with self.spending.on("every_step"):
            decision = self._judge_step(view, step)
        if decision is None:
            return PROCEED
        if audit and decision.action in ("proceed", "record") and step != self._audited:
            self._audited = step
            decision = decision.worse(self._rest(step)).worse(self._audit(step))
            self.review.begin(step)
        return decision

    def reads_at_once(self, step: int) -> bool:
        """Tell whether other checks run at the end of step ``step``, so that its numbers are needed then."""
        return self.replica_due(step) or self.replay_due(step) or self.at_rest_due(step)

    def arm(self, dtype: torch.dtype | None) -> Armed:
        """Return what keeps the step in progress out of the weights before its numbers are read."""
        self._learn_tolerance(dtype)
        checked = "conservation" not in self.why_not
        proven = not self._promised or "conservation" in self.judge.passed
        return Armed(
            finite=self.config.policy_for("finite") != "record" and not self.scaled,
            conservation=self.config.policy_for("conservation") != "record" and checked and proven,
            checked=checked,
            narrow=dtype is not None and dtype.itemsize < 4,
            limit=self.tolerance.value if self.tolerance else math.inf,
        )

    def judge_late(self, view: BackwardView, step: int, armed: Armed) -> Decision:
        """Judge step ``step``, whose update has begun or is done. Returns stop, record or proceed, never skip."""
        self._late = armed
        try:
            with self.spending.on("every_step", runs=0):
                decision = self._judge_step(view, step)
        finally:
            self._late = None
        if decision is None or decision.action == "stop":
            return decision or PROCEED
        self.review.begin(step, late=True)
        return PROCEED

    def _moved_on(self, check: str) -> bool:
        """Tell whether a step that failed ``check`` is in the weights already."""
        return self._late is not None and not self._late.keeps_out(check)

    def _judge_step(self, view: BackwardView, step: int) -> Decision | None:
        """Judge the numbers of every step. None: the ranks are at different ones, and nothing can be said."""
        facts = unpack(view.total, self.world.size, view.floors)
        self.judge.norms.append(view.local_norm)
        self.reduced_norm = self.reduced_norm if view.reduced_norm is None else view.reduced_norm
        self.metrics.grad_norm(view.local_norm, self.reduced_norm)
        if not facts.same_step:
            self.judge.say(
                "The ranks are at different optimizer steps: no check ran. Call monitor.resume on all ranks."
            )
            return None
        self._learn_tolerance(view.dtype)
        decision = self._numbers(view, facts, step)
        if decision.action == "proceed":
            self.judge.skipped_in_a_row = 0
        return decision

    def _numbers(self, view: BackwardView, facts: StepFacts, step: int) -> Decision:
        self._count_nonfinite(view, facts)
        limit = self.tolerance.value if self.tolerance else math.inf
        bad = [] if "conservation" in self.why_not else [i for i, ratio in enumerate(facts.ratios) if ratio > limit]
        was_odd, self.previous_odd = self.previous_odd, self._own_odd(view, facts, limit)
        if facts.nonfinite_loss or facts.nonfinite_local:
            return self._nonfinite(view, step)
        if facts.nonfinite_reduced and (not bad or (view.dtype is not None and view.dtype.itemsize < 4)):
            return self._overflow(step)
        self.judge.pass_("finite", step)
        if bad and self._promised and "conservation" not in self.judge.passed:
            return self._switch_conservation_off("the communication hook does not return the average", step)
        if not facts.measured:
            self._conservation_did_not_run("a gradient is sparse, or could not be read", step)
        if bad:
            self.previous_odd = False  # said now, not again at the next step
            return self._conservation(view, facts, bad, step, limit)
        if facts.previous:
            return self._late_conservation(step, was_odd)
        if facts.measured and facts.ratios and "conservation" not in self.why_not:
            self.judge.pass_("conservation", step)
            if self.tolerance:
                self.tolerance.watch(facts.ratios)
        return PROCEED

    def _learn_tolerance(self, dtype: torch.dtype | None) -> None:
        if self.tolerance is None and dtype is not None:
            self.tolerance = Tolerance(tolerance(dtype))

    def _own_odd(self, view: BackwardView, facts: StepFacts, limit: float) -> bool:
        """Tell whether this rank's own reduced result is off, which the sum over many ranks may hide."""
        if not facts.measured or "conservation" in self.why_not or view.shards is not None:
            return False
        pairs = zip(facts.expected, facts.scales, strict=True)
        return any(relative(e, view.own[3 * i + 1], s) > limit for i, (e, s) in enumerate(pairs))

    def _count_nonfinite(self, view: BackwardView, facts: StepFacts) -> None:
        own = dict(zip(FLAGS, view.own[-len(FLAGS) :], strict=True))
        for stage in ("loss", "local", "reduced"):
            if own[stage] or (stage == "reduced" and facts.nonfinite_local):
                self.metrics.nonfinite(stage)

    # --- finite ------------------------------------------------------------------------------------------------------

    def _nonfinite(self, view: BackwardView, step: int) -> Decision:
        own = dict(zip(FLAGS, view.own[-len(FLAGS) :], strict=True))
        if self.scaled:  # an infinity in scaled gradients is how a loss scaler searches: counted, no finding
            return PROCEED
        rows = self.world.gather_ints([int(own["loss"]), int(own["local"])])
        stages = {r: "loss" if row[0] else "local" for r, row in enumerate(rows) if any(row)}
        moved_on = self._moved_on("finite")
        replicas = self._compare_now(step, moved_on)
        round_ = self.replay.immediate(step, stages, replicas, moved_on)
        ruling = rule_finite(stages, round_.nonfinite_disputes if round_ else [], self.judge.nodes)
        if not round_:
            ruling = self._explain(ruling)
        phase = "loss" if "loss" in stages.values() else "local"
        word = "loss" if phase == "loss" else "local gradient"
        found = [self.judge.finding("finite", step, phase, list(stages), observed=f"a {word} that is not finite")]
        found[0]["expected"] = "finite numbers"
        others = self._others(round_, ruling)
        if round_:
            self.replay.journal(round_, "immediate", step, ruling if ruling.accused else others or ruling)
        if ruling.accused and round_:
            found.append(self.judge.finding("replay", step, "immediate", ruling.accused, observed="not finite"))
            found[1]["expected"] = "finite on another node"
        decision = replicas.worse(self.judge.publish("finite", ruling, found, guarded=not moved_on))
        if round_ and others and others.status and not set(others.accused) <= set(ruling.accused):
            decision = decision.worse(self.replay.publish(round_, "immediate", step, others))
        return decision

    def _explain(self, ruling: Ruling) -> Ruling:
        reason = f"Replay did not run: {self.why_not.get('replay', 'no batch was recorded')}."
        return replace(ruling, reasons_against=(*ruling.reasons_against, reason))

    def _others(self, round_: Round | None, ruling: Ruling) -> Ruling | None:
        """Rule on pairs that disagreed although both were finite."""
        if round_ is None or not round_.disputes:
            return None
        explained = {*ruling.accused}
        left = [d for d in round_.disputes if not {d.owner, d.partner} & explained]
        return arbitrate(left, self.judge.nodes) if left else None

    def _overflow(self, step: int) -> Decision:
        """A reduced gradient that is not finite although all local ones are, where the sum may simply overflow."""
        if self.scaled:
            return PROCEED
        found = self.judge.finding("finite", step, "reduced", [], observed="a reduced gradient that is not finite")
        found["expected"] = "finite numbers"
        ruling = rule_finite({}, [], self.judge.nodes)
        return self.judge.publish("finite", ruling, [found], guarded=not self._moved_on("finite"))

    # --- conservation ------------------------------------------------------------------------------------------------

    def _conservation(
        self, view: BackwardView, facts: StepFacts, bad: Sequence[int], step: int, limit: float
    ) -> Decision:
        bucket = max(bad, key=lambda i: facts.ratios[i])
        if view.shards is not None:
            odd, ruling = view.shards.rule(bucket, facts, limit)
        else:
            afters = [row[0] for row in self.world.gather_floats([view.own[3 * bucket + 1]])]
            odd = stand_out(afters, odd_ranks(afters, facts.expected[bucket], facts.scales[bucket], limit))
            ruling = rule_conservation(odd, self.world.size, self.judge.nodes, bucket)
        found = self.judge.finding(
            "conservation",
            step,
            "reduce",
            odd,
            bucket=bucket,
            observed=f"{facts.ratios[bucket]:.3g} of the local norms",
            expected=f"at most {limit:.3g}",
        )
        moved_on = self._moved_on("conservation")
        decision = self.judge.publish("conservation", ruling, [found], guarded=not moved_on)
        return self._with_immediate(decision, step, moved_on)

    def _switch_conservation_off(self, reason: str, step: int) -> Decision:
        """Nothing of this attempt has passed yet, so it is the hook: no device is wrong from the first step on."""
        self.why_not["conservation"] = reason
        self.previous_odd = False
        self._conservation_did_not_run(reason, step)
        return PROCEED

    def _conservation_did_not_run(self, reason: str, step: int) -> None:
        """Say it once, and journal it once."""
        if self._unmeasured != reason:
            self._unmeasured = reason
            self.judge.say(f"conservation does not run at step {step}: {reason}")
            self.judge.journal_check("conservation", "reduce", step, step, "not_run", reason)

    def _late_conservation(self, step: int, was_odd: bool) -> Decision:
        """A rank's own test failed in the previous step, too little to be seen in the sum."""
        rows = self.world.gather_ints([int(was_odd)])
        odd = [r for r, (said,) in enumerate(rows) if said]
        ruling = rule_conservation(odd if len(odd) < self.world.size else [], self.world.size, self.judge.nodes, 0)
        found = self.judge.finding("conservation", step, "flag", odd, state_step=step - 1)
        found |= {"observed": "own result off in the step before", "expected": "the sum of the ranks' projections"}
        decision = self.judge.publish("conservation", ruling, [found], guarded=False)
        return self._with_immediate(decision, step, self._moved_on("flag"))

    def _with_immediate(self, decision: Decision, step: int, moved_on: bool) -> Decision:
        replicas = self._compare_now(step, moved_on)
        decision = decision.worse(replicas)
        round_ = self.replay.immediate(step, {}, replicas, moved_on)
        if round_ is None:
            return decision
        return decision.worse(self.replay.judge(round_, "immediate", step))

    def _compare_now(self, step: int, moved_on: bool) -> Decision:
        """Compare weights after a finding. In a step that is judged late, no gather was looked at."""
        return self._replicas.run("immediate", step if moved_on else step - 1, step, gathered=self._late is None)

    # --- the checks that have a cadence ------------------------------------------------------------------------------

    def _rest(self, step: int) -> Decision:
        """End the sample of step ``step`` on every rank, and judge it."""
        if not self.at_rest_due(step):
            return PROCEED
        with self.spending.on("at_rest"):
            return self.resting.end(step)

    def _audit(self, step: int) -> Decision:
        decision = PROCEED
        if self.replica_due(step):
            kind = self._comparison(step)
            with self.spending.on(kind, runs=int(kind != "replay")):
                decision = self._replicas.run("state" if kind == "state" else "loop", step - 1, step)
                rows = self.world.gather_floats([self.judge.norms[-1]])
                self.spread = norm_spread([row[0] for row in rows])
        if self.replay_due(step):
            with self.spending.on("replay"):
                phase = "first" if step == self.start_step + 1 else "audit"
                decision = decision.worse(self.replay.audit(decision, phase, step))
        return decision

    def _comparison(self, step: int) -> Kind:
        """Return which cadence the comparison of step ``step`` belongs to: its own, or that of the replay after it."""
        return "state" if self.state_due(step) else "replica" if self.cadences.due("replica", step) else "replay"

    # --- saves and close ---------------------------------------------------------------------------------------------

    def examine(self, phase: str, step: int, probe: bool) -> tuple[Decision, dict[str, str], TensorDigests]:
        """Check weights and optimizer state after step ``step``, and probe by replay. Collective (save, close).

        Returns the decision, check -> result for the save's record, and the fingerprints (two lanes).
        """
        self.review.end()
        passed = self.judge.passed
        results: dict[str, str] = {}
        if step != self.start_step:  # no step of this attempt ran before: there was nothing for them to see
            results |= {n: "passed" if passed.get(n) == step else "not_run" for n in ("finite", "conservation")}
        result, digests = self._replicas.compare_all()
        decision = PROCEED
        results |= {"replica": "not_run", "replay": "not_run"}
        if result is not None and self.world.size > 1 and not self._may_differ:
            decision = self._replicas.judge(result, phase, step, step)
            results["replica"] = "failed" if result.ruling else "passed"
        name = "probe" if phase == "save" else phase
        probe = probe and self.replay.runs and step != self.start_step
        if probe and not self.replay.replicas_differ(decision, name, step):
            judged, results["replay"] = self.replay.probe(name, step)
            decision = decision.worse(judged)
        return decision, results, digests

    def shared_state(self) -> list[tuple[str, Tensor]]:
        """Return the tensors that every rank must hold alike: weights first, then the optimizers' state."""
        return self._replicas.shared_state()
