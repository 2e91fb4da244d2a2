"""Compare weights and optimizer state between the ranks of a job, and judge what differs.

:mod:`lastgood.replica` compares whole tensors, :mod:`lastgood.sharded_replicas` shards that have replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from lastgood.fingerprint import TensorDigests, hex64
from lastgood.judge import PROCEED, Decision, Judge
from lastgood.replica import Comparison, belongs_to, compare, optimizer_state, rewritten, trained, weights
from lastgood.session import Session
from lastgood.sharded import digest_whole, locally
from lastgood.sharded_replicas import ShardedReplicas
from lastgood.verdict import Ruling, rule_rewritten, rule_unreduced


class ReplicaCheck:
    """The comparisons of one rank.

    ``why_not``: check -> why it cannot run. ``ignored``: parameters that each rank has alone. ``shards``: how a sharded
    model is compared.
    """

    def __init__(
        self,
        session: Session,
        judge: Judge,
        module: nn.Module,
        optimizers: Sequence[Optimizer],
        *,
        why_not: Mapping[str, str],
        ignored: frozenset[str],
        shards: ShardedReplicas | None,
    ) -> None:
        self._session, self._world, self._judge = session, session.world, judge
        self._module, self._optimizers = module, optimizers
        self._why_not, self._ignored, self._shards = why_not, ignored, shards
        self._reduced = frozenset(trained(module))

    def shared_state(self) -> list[tuple[str, Tensor]]:
        """Return the tensors that every rank must hold alike: weights first, then the optimizers' state."""
        state = optimizer_state(self._module, self._optimizers, self._ignored)
        return [*weights(self._module, self._ignored), *state]

    def run(self, phase: str, state_step: int, step: int, *, gathered: bool = True) -> Decision:
        """Compare the weights after step ``state_step``, in phase ``state`` the optimizer state too. Collective.

        ``gathered``: of a sharded model also what was gathered in this step (not where the step is judged late).
        """
        if "replica" in self._why_not:
            return PROCEED
        read = self.shared_state() if phase == "state" else weights(self._module, self._ignored)
        if self._shards is None:
            return self.judge(compare(self._world, read, self._session.nodes), phase, state_step, step)
        return self._judge_shards(self._shards.compare(read, gathered=gathered), phase, state_step, step)

    def _judge_shards(self, result: Comparison | None, phase: str, state_step: int, step: int) -> Decision:
        assert self._shards is not None
        name = self._shards.phase(phase)
        if result is not None:
            return self.judge(result, name, state_step, step)
        if phase != "immediate":
            reason = "nothing was gathered, or a rank could not look"
            self._judge.journal_check("replica", name, state_step, step, "not_run", reason)
        return PROCEED

    def compare_all(self) -> tuple[Comparison | None, TensorDigests]:
        """Compare weights and optimizer state; return the fingerprints of whole tensors (two lanes) too. Collective."""
        state = self.shared_state()
        if self._shards is None:  # on one rank a sharded model is whole
            result = compare(self._world, locally(state), self._session.nodes, lanes=2)
            return result, result.digests
        compared = self._shards.compare(state, gathered=False) if self._shards.whole else None
        return compared, digest_whole(self._world, state)

    def judge(self, result: Comparison, phase: str, state_step: int, step: int) -> Decision:
        """Journal a comparison, and judge what differs. Collective where something does."""
        ruling = self._ruling_of(result)
        if ruling is None:
            reason = "" if self._shards is None else self._shards.left_out
            self._judge.journal_check("replica", phase, state_step, step, "passed", reason)
            self._judge.pass_("replica", state_step)
            return PROCEED
        named = [*ruling.accused, *ruling.candidates]
        exceptions = {rank: ("failed", "") for rank in named or range(self._world.size)}
        self._judge.journal_check("replica", phase, state_step, step, "failed", exceptions=exceptions)
        if self._world.rank not in exceptions:
            self._judge.pass_("replica", state_step)
        found = self._judge.finding(
            "replica",
            step,
            phase,
            named,
            state_step=state_step,
            tensor=result.tensor,
            observed=hex64(result.observed),
            expected=hex64(result.expected),
        )
        return self._judge.publish("replica", ruling, [found])

    def _ruling_of(self, result: Comparison) -> Ruling | None:
        """Return the ruling; that of software where a parameter differs that every rank changes alone.

        No gradients are averaged into it, or its layer writes it in the forward.
        """
        if result.ruling is None or result.tensor is None:
            return result.ruling
        odd = any(belongs_to(result.tensor, name) for name in trained(self._module) if name not in self._reduced)
        if self._world.agree(not odd):
            return rule_unreduced(result.tensor)
        written = result.tensor.split(":", 1)[-1] in rewritten(self._module)
        return rule_rewritten(result.tensor) if written else result.ruling
