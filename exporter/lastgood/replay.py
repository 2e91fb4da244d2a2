"""Run a micro-batch of another node again and compare fingerprints of loss and gradient.

It is the only check that sees a finite wrong gradient before the reduce. In one round every rank sends its recorded
micro-batch to its partner on another node, runs the one it was sent, and all ranks compare. What disagrees is run
again by both sides and by an arbiter on a third node, and :mod:`lastgood.verdict` decides.

Every collective stands at a fixed place that all ranks reach; what can fail in between (a batch that cannot be
pickled, no memory) becomes a status that travels in the next collective, and the round is *not run* on all ranks.
``.grad``, generators, buffers, weights and the wrapper's state are afterwards exactly as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from lastgood.comm import World
from lastgood.pairing import arbiter, partners
from lastgood.recorder import CommunicatesError, MicroBatch, Recorder
from lastgood.replay_package import LOSS, Outcome, free_memory, pack, recorded, run_package
from lastgood.verdict import Dispute, impartial
from lastgood.wrappers import is_compiled_again

MAX_DISPUTES: Final = 16
"""Disputes of one round that are arbitrated; one broken node of eight ranks makes at most sixteen."""

NONFINITE: Final = 1


@dataclass(slots=True)
class Round:
    """What one replay round found; identical on every rank, but for ``failure_here``.

    ``pairs``: owner -> partner. ``not_run``: rank -> reason. ``tensor``, ``observed``, ``expected`` describe the first
    dispute. ``nonfinite_disputes`` compare finiteness instead of fingerprints.
    """

    pairs: dict[int, int] = field(default_factory=dict)
    disputes: list[Dispute] = field(default_factory=list)
    nonfinite_disputes: list[Dispute] = field(default_factory=list)
    not_run: dict[int, str] = field(default_factory=dict)
    reason: str = ""
    tensors: dict[int, str] = field(default_factory=dict)  # owner of a dispute -> tensor

    @property
    def ran(self) -> bool:
        """Tell whether any batch was replayed."""
        return bool(self.pairs) and not self.reason


class Replayer:
    """Run replay rounds over the ranks of a job."""

    can_repeat = True
    """Whether one rank can run a batch alone, as often as it likes."""

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        nodes: Sequence[str],
        environments: Sequence[str],
    ) -> None:
        self.world = world
        self.recorder = recorder
        self.nodes = nodes
        self.environments = environments
        self.rounds = 0

    def round(self, micros: Sequence[MicroBatch], *, actual: bool, nonfinite: Mapping[int, str] | None = None) -> Round:
        """Replay every rank's micro-batches on its partner. Collective.

        ``actual``: compare with the digest of the gradient that really went into the step (audit); otherwise with a
        fresh run under the current weights (probe). ``nonfinite``: ranks whose step was not finite; for them the
        question is whether it is finite elsewhere.
        """
        result = self.begin()
        if result.reason:
            return result
        turn = self.turn(result, micros, actual, nonfinite or {})
        turn.first_runs()
        if not result.reason:
            turn.settle()
        return result

    def turn(self, result: Round, micros: Sequence[MicroBatch], actual: bool, nonfinite: Mapping[int, str]) -> Turn:
        """Return the round as it begins on this rank."""
        return Turn(self, result, micros, actual, dict(nonfinite))

    def begin(self) -> Round:
        """Begin a round: who runs whose batch."""
        self.recorder.backward_ended()
        result = Round(pairs=partners(self.nodes, self.environments, self.rounds))
        self.rounds += 1
        result.not_run = self._unpaired(result.pairs)
        if not result.pairs:
            result.reason = "no partner on another node with the same environment"
        return result

    def _unpaired(self, pairs: Mapping[int, int]) -> dict[int, str]:
        reason = "no partner on another node with the same environment in this round"
        return {rank: reason for rank in range(self.world.size) if rank not in pairs}


class Turn:
    """One round in progress on this rank."""

    def __init__(
        self,
        replayer: Replayer,
        result: Round,
        micros: Sequence[MicroBatch],
        actual: bool,
        nonfinite: dict[int, str],
    ) -> None:
        self.replayer = replayer
        self.world = replayer.world
        self.result = result
        self.micros = micros
        self.actual = actual
        self.nonfinite = nonfinite
        self.blob = b""
        self.own: Outcome | None = None
        self.received: dict[int, bytes] = {}
        self.partner_run: dict[int, Outcome] = {}
        self.firsts: dict[int, tuple[int, int]] = {}  # owner -> (owner's value, partner's value)

    def first_runs(self) -> None:
        """Exchange the packages, run them once, and gather everybody's values."""
        me, pairs = self.world.rank, self.result.pairs
        failure = self.pack()
        to = [pairs[me]] if me in pairs and not failure else []
        senders = [owner for owner, partner in pairs.items() if partner == me]
        if bad := self.agree(failure):
            self.result.reason = bad
            return
        self.received = self.world.exchange(self.blob, to=to, senders=senders)
        failure = failure or self._run_first(senders)
        if bad := self.agree(failure):
            self.result.reason = bad
            return
        self.compare(senders)

    def pack(self) -> str:
        """Serialise this rank's micro-batches. Returns why it could not, or an empty string."""
        if not self.micros:
            return "no recorded batch: the loss was not computed with monitor.loss"
        if self.world.rank in self.nonfinite and any(micro.changed for micro in self.micros):
            return "the batch was changed in place"
        try:
            self.blob = pack(self.micros, self.replayer.recorder)
        except (MemoryError, torch.OutOfMemoryError) as error:
            free_memory(error)
            return "out of memory while packing the batch"
        except Exception as error:  # pickling runs the user's own reduce methods
            return f"the batch cannot be pickled ({type(error).__name__})"
        return ""

    def _run_first(self, senders: Sequence[int]) -> str:
        digests = self.micros[0].digests if self.actual else {}
        if self.actual and not digests:
            return "the gradient of the audit step was not digested"
        try:
            self.own = recorded(self.micros[0], self.replayer.recorder) if self.actual else self._run(self.blob)
            for owner in senders:
                self.partner_run[owner] = self._run(self.received[owner])
        except CommunicatesError:
            return "loss_fn communicates with other ranks"
        except Exception as error:  # whatever the user's loss_fn raises must not stop training
            free_memory(error)
            return f"the replay failed ({type(error).__name__})"
        return ""

    def _run(self, blob: bytes) -> Outcome:
        return run_package(blob, self.replayer.recorder)

    def agree(self, failure: str) -> str:
        """Return "" when no rank failed, else the reason of the lowest rank that did. Collective."""
        bad = self.world.agree(not failure)
        if not bad:
            return ""
        return f"rank {bad[0]}: {self.world.broadcast_json(failure, source=bad[0])}"

    def compare(self, senders: Sequence[int]) -> None:
        """Gather the fingerprints of the first runs. Collective."""
        own = self.own
        assert own is not None
        theirs = self.partner_run[senders[0]] if senders else None
        row = [own.total, int(own.nonfinite), own.shape]
        row += [theirs.total, int(theirs.nonfinite), theirs.shape] if theirs else [0, 0, 0]
        rows = self.world.gather_ints(row)
        if any(rows[owner][2] != rows[partner][5] for owner, partner in self.result.pairs.items()):
            self.result.reason = "owner and partner have gradients of different parameters"  # no device does that
            return
        for owner, partner in sorted(self.result.pairs.items()):
            if owner in self.nonfinite:
                self.firsts[owner] = (NONFINITE, rows[partner][4])
            else:
                self.firsts[owner] = (rows[owner][0], rows[partner][3])

    def settle(self) -> None:
        """Run what disagrees again: owner, partner, and an arbiter on a third node."""
        odd = [o for o, (mine, theirs) in self.firsts.items() if mine != theirs or o in self.nonfinite]
        if not odd:
            return
        arbitrated = sorted(odd, key=lambda o: (o not in self.nonfinite, o))[:MAX_DISPUTES]
        arbiters = self._choose_arbiters(arbitrated, odd)
        again = self._second_runs(arbitrated, arbiters)
        for owner in odd:
            dispute = self._dispute(owner, arbiters.get(owner), again.get(owner))
            (self.result.nonfinite_disputes if owner in self.nonfinite else self.result.disputes).append(dispute)
        for owner in odd[:MAX_DISPUTES]:
            if owner not in self.nonfinite:
                self.result.tensors[owner] = self._first_tensor(owner)

    def _choose_arbiters(self, arbitrated: Sequence[int], odd: Sequence[int]) -> dict[int, int]:
        """Choose owner -> arbiter: a rank in no dispute, else one whose only disputes are with the two."""
        disputes = [(owner, self.result.pairs[owner]) for owner in odd]
        parties = {rank for pair in disputes for rank in pair}
        nodes, environments = self.replayer.nodes, self.replayer.environments
        chosen: dict[int, int] = {}
        for owner in arbitrated:
            pair = (owner, self.result.pairs[owner])
            taken = set(chosen.values())
            partial = {rank for rank in parties if not impartial(rank, pair, disputes)}
            found = arbiter(*pair, nodes, environments, parties | taken)
            found = arbiter(*pair, nodes, environments, partial | taken) if found is None else found
            if found is not None:
                chosen[owner] = found
        return chosen

    def _second_runs(self, arbitrated: Sequence[int], arbiters: Mapping[int, int]) -> dict[int, _Again]:
        me, pairs = self.world.rank, self.result.pairs
        to_arbiter = self.world.exchange(
            self.blob if me in arbiters else b"",
            to=[arbiters[me]] if me in arbiters else [],
            senders=[o for o, q in arbiters.items() if q == me],
        )
        own_arbiter = {q: o for o, q in arbiters.items()}
        to_owner = self.world.exchange(
            self.blob if me in own_arbiter else b"",
            to=[own_arbiter[me]] if me in own_arbiter else [],
            senders=[arbiters[me]] if me in arbiters else [],
        )
        out: dict[int, _Again] = {}
        for owner in arbitrated:
            q = arbiters.get(owner)
            tasks = {owner: self.blob, pairs[owner]: self.received.get(owner, b"")}
            if q is not None:
                tasks[q] = to_arbiter.get(owner, b"")
            flag = owner in self.nonfinite
            second = {q: self.blob, owner: to_owner.get(q, b"")} if q is not None and not flag else {}
            rows = self.world.gather_ints(
                self._measure(tasks, flag)
                + self._measure(second, flag)
                + self._measure_eager(tasks, flag)
                + [int(is_compiled_again())]
            )
            out[owner] = _Again(owner, pairs[owner], q, rows)
        return out

    def _measure(self, tasks: Mapping[int, bytes], flag: bool) -> list[int]:
        """Run this rank's package, if it has one: [1, value], or [0, 0] when it has none or the run failed."""
        blob = tasks.get(self.world.rank, b"")
        if not blob:
            return [0, 0]
        try:
            outcome = self._run(blob)
        except Exception as error:  # as in the first runs: counted as "no second run"
            free_memory(error)
            return [0, 0]
        return [1, int(outcome.nonfinite) if flag else outcome.total]

    def _measure_eager(self, tasks: Mapping[int, bytes], flag: bool) -> list[int]:
        if not self.replayer.recorder.compiled:
            return [0, 0]
        with torch.compiler.set_stance("force_eager"):
            return self._measure(tasks, flag)

    def _dispute(self, owner: int, q: int | None, again: _Again | None) -> Dispute:
        mine, theirs = self.firsts[owner]
        partner = self.result.pairs[owner]
        return Dispute(
            owner=owner,
            partner=partner,
            arbiter=q,
            owner_first=mine,
            owner_second=again.value(owner) if again else None,
            partner_first=theirs,
            partner_second=again.value(partner) if again else None,
            arbiter_first=again.value(q) if again and q is not None else None,
            second_batch_odd=again.second_batch_odd() if again else None,
            eager_agrees=again.eager_agrees() if again else None,
            eager_splits=again.eager_splits() if again else None,
            recompiled=again.recompiled() if again else False,
        )

    def _first_tensor(self, owner: int) -> str:
        """Name the tensor nearest to the loss whose gradient differs: what is wrong there spreads to all before it."""
        partner = self.result.pairs[owner]
        mine = self.own.values.tolist() if self.own and self.world.rank == owner else []
        run = self.partner_run.get(owner)
        theirs = run.values.tolist() if run and self.world.rank == partner else []
        names = list(self.own.names) if self.own and self.world.rank == owner else []
        left = self.world.broadcast_json([names, mine], source=owner)
        right = self.world.broadcast_json(theirs, source=partner)
        if len(left[1]) != len(right):
            return "the set of tensors"
        odd = [name for name, a, b in zip(left[0], left[1], right, strict=True) if a != b and name != LOSS]
        return odd[-1] if odd else LOSS


class _Again:
    """The gathered second runs of one dispute: per rank [ran, value] for its batch, a second batch, and eager; then
    whether some code was compiled again."""

    def __init__(self, owner: int, partner: int, q: int | None, rows: Sequence[Sequence[int]]) -> None:
        self.owner, self.partner, self.q, self.rows = owner, partner, q, rows

    def value(self, rank: int, column: int = 0) -> int | None:
        """Return the rank's value in the column, or None when it did not run."""
        row = self.rows[rank]
        return row[column + 1] if row[column] else None

    def recompiled(self) -> bool:
        """Tell whether owner or partner has compiled some code more than once."""
        return bool(self.rows[self.owner][6] or self.rows[self.partner][6])

    def second_batch_odd(self) -> bool | None:
        """Tell whether owner and arbiter disagree on the arbiter's batch."""
        if self.q is None:
            return None
        mine, theirs = self.value(self.owner, 2), self.value(self.q, 2)
        return None if mine is None or theirs is None else mine != theirs

    def eager_agrees(self) -> bool | None:
        """Tell whether owner and partner agree without compilation."""
        mine, theirs = self.value(self.owner, 4), self.value(self.partner, 4)
        return None if mine is None or theirs is None else mine == theirs

    def eager_splits(self) -> bool | None:
        """Tell whether, without compilation, the owner still differs from partner and arbiter."""
        if self.q is None:
            return None
        mine, theirs, third = self.value(self.owner, 4), self.value(self.partner, 4), self.value(self.q, 4)
        return None if mine is None or theirs is None or third is None else theirs == third != mine
