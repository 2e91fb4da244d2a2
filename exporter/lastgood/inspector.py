"""Run the checks of a job and turn what they find into a decision that is the same on every rank.

The inspector stands between the numbers (:mod:`lastgood.reduce`, :mod:`lastgood.replica`, :mod:`lastgood.replay`) and
the record (:mod:`lastgood.publisher`). All its entry points that may communicate are reached by every rank in the
same order: the end of a synchronised backward, the entry of a save, and close. What it decides from is the summed
vector or gathered numbers, never anything that one rank alone knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lastgood.at_rest import AtRest, Changed
from lastgood.budget import Kind
from lastgood.cadences import Cadences
from lastgood.calibrated import NOT_DETERMINISTIC, CalibratedReplay, calibrated
from lastgood.config import Config
from lastgood.findings import norm_spread
from lastgood.fingerprint import TensorDigests, hex64
from lastgood.fsdp_groups import computes_on
from lastgood.judge import PROCEED, Decision, Judge
from lastgood.late import Armed
from lastgood.notice import warn
from lastgood.pair_evidence import pair_evidence
from lastgood.pairing import partners
from lastgood.projection import tolerance
from lastgood.recorder import Recorder
from lastgood.reduce import BackwardView
from lastgood.replay import Replayer, Round
from lastgood.replica import Comparison, belongs_to, compare, optimizer_state, trained, weights
from lastgood.review import Review
from lastgood.session import Session
from lastgood.sharded import digest_whole, locally
from lastgood.sharded_replicas import ShardedReplicas
from lastgood.side_stream import side_of
from lastgood.stepvector import FLAGS, StepFacts, Tolerance, odd_ranks, relative, stand_out, unpack
from lastgood.stopwatch import stopwatch_of
from lastgood.verdict import (
    Ruling,
    arbitrate,
    confirmed_ranks,
    rule_at_rest,
    rule_conservation,
    rule_finite,
    rule_unreduced,
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
        self._shards = shards
        self.why_not = self._why_not(cannot)
        device = computes_on(module, session.device)
        self.cadences = Cadences(config, session.world, self.why_not, stopwatch_of(device))
        self.spending = self.cadences.spending
        self.side = side_of(device)
        self._promised = promised
        self._reduced = frozenset(trained(module))
        self._may_differ = "replica" in cannot
        self.replayer = replayer
        if recorder is not None and replayer is None and "replay" not in self.why_not:
            self.replayer = Replayer(self.world, recorder, session.nodes, session.environments)
        if "replay" in self.why_not:
            self.replayer = None
        self.judge = Judge(session, config, optimizers)
        self.review = Review(session, self.cadences, self.judge)
        self.calibrated: CalibratedReplay | None = None
        self._at_rest = AtRest()
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
        if self.replayer is None and self.calibrated is None:
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
                self._at_rest.begin(locally(self.shared_state()), step // self.cadences.every("at_rest") - 1)

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
        replicas = self._compare_weights("immediate", step if moved_on else step - 1, step)
        round_ = self._immediate(step, stages, replicas, moved_on)
        ruling = rule_finite(stages, round_.nonfinite_disputes if round_ else [], self.judge.nodes)
        if not round_:
            ruling = self._explain(ruling)
        phase = "loss" if "loss" in stages.values() else "local"
        word = "loss" if phase == "loss" else "local gradient"
        found = [self.judge.finding("finite", step, phase, list(stages), observed=f"a {word} that is not finite")]
        found[0]["expected"] = "finite numbers"
        others = self._others(round_, ruling)
        if round_:
            self._journal_replay(round_, "immediate", step, ruling if ruling.accused else others or ruling)
        if ruling.accused and round_:
            found.append(self.judge.finding("replay", step, "immediate", ruling.accused, observed="not finite"))
            found[1]["expected"] = "finite on another node"
        decision = replicas.worse(self.judge.publish("finite", ruling, found, guarded=not moved_on))
        if round_ and others and others.status and not set(others.accused) <= set(ruling.accused):
            decision = decision.worse(self._publish_replay(round_, "immediate", step, others))
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
        replicas = self._compare_weights("immediate", step if moved_on else step - 1, step)
        decision = decision.worse(replicas)
        round_ = self._immediate(step, {}, replicas, moved_on)
        if round_ is None:
            return decision
        return decision.worse(self._judge_replay(round_, "immediate", step))

    # --- at_rest -----------------------------------------------------------------------------------------------------

    def _rest(self, step: int) -> Decision:
        """End the sample of step ``step`` on every rank, and judge it."""
        if not self.at_rest_due(step):
            return PROCEED
        with self.spending.on("at_rest"):
            return self._end_sample(step)

    def _end_sample(self, step: int) -> Decision:
        (looked, mine), phase = self._second_look(), self._at_rest.phase
        rows = self.world.gather_ints([int(looked), int(mine is not None)])
        if not all(did for did, _ in rows):
            self.judge.journal_check("at_rest", phase or "loop", step - 1, step, "not_run", "no sample was begun")
            return PROCEED
        odd = [rank for rank, (_, changed) in enumerate(rows) if changed]
        exceptions = {rank: ("failed", "") for rank in odd}
        self.judge.journal_check("at_rest", phase, step - 1, step, "failed" if odd else "passed", exceptions=exceptions)
        if mine is None:
            self.judge.pass_("at_rest", step - 1)
        return self._judge_rest(mine, odd, phase, step) if odd else PROCEED

    def _second_look(self) -> tuple[bool, Changed | None]:
        """Look again; a rank that cannot still answers the others, who wait for it. Returns whether it could."""
        begun = self._at_rest.begun
        try:
            return begun, self._at_rest.end()
        except Exception as error:
            self.metrics.error("check")
            warn(f"at_rest could not look again ({type(error).__name__}: {error}). Training goes on.")
            return False, None

    def _judge_rest(self, mine: Changed | None, odd: Sequence[int], phase: str, step: int) -> Decision:
        said = [mine.tensor, mine.observed, mine.expected] if mine else None
        tensor, observed, expected = self.world.broadcast_json(said, source=odd[0])
        ruling = rule_at_rest(odd, self.judge.nodes, tensor)
        facts = {"tensor": tensor, "observed": hex64(observed), "expected": hex64(expected)}
        found = self.judge.finding("at_rest", step, phase, odd, state_step=step - 1, **facts)
        return self.judge.publish("at_rest", ruling, [found])

    # --- replica -----------------------------------------------------------------------------------------------------

    def _audit(self, step: int) -> Decision:
        decision = PROCEED
        if self.replica_due(step):
            kind = self._comparison(step)
            with self.spending.on(kind, runs=int(kind != "replay")):
                decision = self._compare_weights("state" if kind == "state" else "loop", step - 1, step)
                rows = self.world.gather_floats([self.judge.norms[-1]])
                self.spread = norm_spread([row[0] for row in rows])
        if self.replay_due(step):
            with self.spending.on("replay"):
                decision = decision.worse(self._audit_by_replay(decision, step))
        return decision

    def _comparison(self, step: int) -> Kind:
        """Return which cadence the comparison of step ``step`` belongs to: its own, or that of the replay after it."""
        return "state" if self.state_due(step) else "replica" if self.cadences.due("replica", step) else "replay"

    def _audit_by_replay(self, replicas: Decision, step: int) -> Decision:
        phase = self._audit_phase(step)
        if self.recorder is None or self._replicas_differ(replicas, phase, step):
            return PROCEED
        if self.calibrated is not None:
            return self.calibrated.audit(self.recorder, phase, step)
        assert self.replayer is not None
        round_ = self.replayer.round(self.recorder.current[:1], actual=self.recorder.repeats_itself)
        return self._judge_replay(round_, phase, step)

    def _audit_phase(self, step: int) -> str:
        return "first" if step == self.start_step + 1 else "audit"

    def _compare_weights(self, phase: str, state_step: int, step: int) -> Decision:
        if "replica" in self.why_not:
            return PROCEED
        read = self.shared_state() if phase == "state" else weights(self.module, self.ignored)
        if self._shards is None:
            return self._judge_replica(compare(self.world, read, self.session.nodes), phase, state_step, step)
        return self._compare_shards(self._shards, read, phase, state_step, step)

    def _compare_shards(
        self, shards: ShardedReplicas, read: Iterable[tuple[str, Tensor]], phase: str, state_step: int, step: int
    ) -> Decision:
        early = self._late is None  # in a step that is judged late, no gather was looked at
        result, name = shards.compare(read, gathered=early), shards.phase(phase)
        if result is not None:
            return self._judge_replica(result, name, state_step, step)
        if phase != "immediate":
            self.judge.journal_check("replica", name, state_step, step, "not_run", "a rank could not look")
        return PROCEED

    def _ruling_of(self, result: Comparison) -> Ruling | None:
        """Return the ruling; that of software where a parameter differs that no rank's gradients are averaged into."""
        if result.ruling is None or result.tensor is None:
            return result.ruling
        odd = any(belongs_to(result.tensor, name) for name in trained(self.module) if name not in self._reduced)
        return rule_unreduced(result.tensor) if self.world.agree(not odd) else result.ruling

    def _judge_replica(self, result: Comparison, phase: str, state_step: int, step: int) -> Decision:
        ruling = self._ruling_of(result)
        if ruling is None:
            reason = "" if self._shards is None else self._shards.left_out
            self.judge.journal_check("replica", phase, state_step, step, "passed", reason)
            self.judge.pass_("replica", state_step)
            return PROCEED
        named = [*ruling.accused, *ruling.candidates]
        exceptions = {rank: ("failed", "") for rank in named or range(self.world.size)}
        self.judge.journal_check("replica", phase, state_step, step, "failed", exceptions=exceptions)
        if self.world.rank not in exceptions:
            self.judge.pass_("replica", state_step)
        found = self.judge.finding(
            "replica",
            step,
            phase,
            named,
            state_step=state_step,
            tensor=result.tensor,
            observed=hex64(result.observed),
            expected=hex64(result.expected),
        )
        return self.judge.publish("replica", ruling, [found])

    # --- replay ------------------------------------------------------------------------------------------------------

    def _immediate(self, step: int, nonfinite: Mapping[int, str], replicas: Decision, moved_on: bool) -> Round | None:
        """Replay this very step. All micro-batches of a rank whose step was not finite, else the last one.

        ``moved_on``: the weights are no longer those it ran under, so another device can say nothing about it.
        """
        if self.replayer is None or self.recorder is None or self._replicas_differ(replicas, "immediate", step):
            return None
        if moved_on:
            reason = "the step was in the weights before it was judged"
            self.judge.journal_check("replay", "immediate", step, step, "not_run", reason)
            return None
        micros = self.recorder.of(step)
        round_ = self.replayer.round(
            micros if self.world.rank in nonfinite else micros[-1:], actual=False, nonfinite=nonfinite
        )
        if round_.reason:
            self.judge.journal_check("replay", "immediate", step, step, "not_run", round_.reason)
            return None
        return round_

    def _replicas_differ(self, replicas: Decision, phase: str, step: int) -> bool:
        """Tell whether the comparison just before failed: ranks with other weights cannot replay each other's batch."""
        if replicas is PROCEED:
            return False
        self.judge.journal_check("replay", phase, step, step, "not_run", "the replicas differ")
        return True

    def _judge_replay(self, round_: Round, phase: str, step: int) -> Decision:
        if round_.reason:
            self.judge.say(f"replay did not run at step {step}: {round_.reason}")
            self.judge.journal_check("replay", phase, step, step, "not_run", round_.reason)
            return PROCEED
        ruling = arbitrate(round_.disputes, self.judge.nodes)
        if not ruling.deterministic:
            return self._switch_replay_off(ruling, phase, step)
        self._journal_replay(round_, phase, step, ruling)
        return self._publish_replay(round_, phase, step, ruling) if ruling.status else PROCEED

    def _switch_replay_off(self, ruling: Ruling, phase: str, step: int) -> Decision:
        """Bits say nothing any more; from here on replay compares numbers, where they say something."""
        assert self.replayer is not None
        why = f"{NOT_DETERMINISTIC}: {' '.join(ruling.reasons_for)}"
        self.judge.journal_check("replay", phase, step, step, "not_run", why)
        self.calibrated, reason = calibrated(self.replayer, self.judge, phase)
        self.replayer, self.why_not["replay"] = None, reason
        self.cadences.calibrated = self.calibrated is not None
        said = " ".join((*ruling.reasons_for, *ruling.reasons_against))
        self.judge.say(f"replay proves nothing from step {step}: {reason}. {said}")
        if self.world.rank == 0:
            change = {"cadence": self.cadence(), "not_run": {"replay": reason}}
            self.session.publisher.write("cadence", change, step)
        return PROCEED if self.calibrated is None else self.calibrated.begin(phase, step)

    def _journal_replay(self, round_: Round, phase: str, step: int, ruling: Ruling) -> None:
        disputes = [*round_.disputes, *round_.nonfinite_disputes]
        confirmed = confirmed_ranks(round_.pairs, disputes, ruling)
        failed = bool(ruling.accused or ruling.candidates)
        exceptions: dict[int, tuple[str, str]] = {r: ("not_run", why) for r, why in round_.not_run.items()}
        for rank in set(round_.pairs) - confirmed:
            named = rank in ruling.accused or rank in ruling.candidates
            exceptions[rank] = ("failed", "") if named else ("not_run", "its own batch was not confirmed elsewhere")
        self.judge.journal_check("replay", phase, step, step, "failed" if failed else "passed", exceptions=exceptions)
        if self.world.rank in confirmed:
            self.judge.pass_("replay", step)

    def _publish_replay(self, round_: Round, phase: str, step: int, ruling: Ruling) -> Decision:
        named = [*ruling.accused, *ruling.candidates]
        lead = next((d for d in round_.disputes if {d.owner, d.partner} & set(named)), round_.disputes[0])
        wrong_owner = lead.owner in named
        observed, expected = lead.owner_first, lead.partner_first
        if not wrong_owner:
            observed, expected = expected, observed
        found = self.judge.finding(
            "replay",
            step,
            phase,
            named,
            tensor=round_.tensors.get(lead.owner),
            observed=hex64(observed),
            expected=hex64(expected),
            evidence=[pair_evidence(d) for d in round_.disputes],
        )
        return self.judge.publish("replay", ruling, [found])

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
        result, digests = self._compare_all()
        decision = PROCEED
        results |= {"replica": "not_run", "replay": "not_run"}
        if result is not None and self.world.size > 1 and not self._may_differ:
            decision = self._judge_replica(result, phase, step, step)
            results["replica"] = "failed" if result.ruling else "passed"
        name = "probe" if phase == "save" else phase
        able = self.replayer is not None or self.calibrated is not None
        if probe and able and step != self.start_step and not self._replicas_differ(decision, name, step):
            judged, results["replay"] = self._probe(name, step)
            decision = decision.worse(judged)
        return decision, results, digests

    def _compare_all(self) -> tuple[Comparison | None, TensorDigests]:
        """Compare weights and optimizer state; return the fingerprints of whole tensors (two lanes) too. Collective."""
        state = self.shared_state()
        if self._shards is None:  # on one rank a sharded model is whole
            result = compare(self.world, locally(state), self.session.nodes, lanes=2)
            return result, result.digests
        compared = self._shards.compare(state, gathered=False) if self._shards.whole else None
        return compared, digest_whole(self.world, state)

    def shared_state(self) -> list[tuple[str, Tensor]]:
        """Return the tensors that every rank must hold alike: weights first, then the optimizers' state."""
        state = optimizer_state(self.module, self.optimizers, self.ignored)
        return [*weights(self.module, self.ignored), *state]

    def _probe(self, phase: str, step: int) -> tuple[Decision, str]:
        if self.calibrated is not None and self.recorder is not None:
            return self.calibrated.probe(self.recorder, phase, step), "not_run"
        if self.replayer is None or self.recorder is None:
            return PROCEED, "not_run"
        round_ = self.replayer.round(self.recorder.current[-1:], actual=False)
        judged = self._judge_replay(round_, phase, step)
        ran = round_.ran and self.replayer is not None
        return judged, ("passed" if judged is PROCEED else "failed") if ran else "not_run"
