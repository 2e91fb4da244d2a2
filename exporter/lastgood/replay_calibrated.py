"""Replay in a job that is not deterministic: compare the loss and the norm of every gradient, not their bits.

In the first round every rank runs its micro-batch a few times, and they agree on how far each quantity spreads in this
job (:mod:`lastgood.spread`), between nodes as well: each may repeat itself, with a kernel of its own. A round goes as
every replay: the partner on another node runs the owner's micro-batch once. Where a quantity lies outside, owner and
partner both repeat that very batch, and only what is outside these repeats too is reported: another batch may spread
more than those of the calibration did. What the repeats showed widens the job's spread, so that the same question is
not asked again.

Every collective stands at a fixed place that all ranks reach, and what is decided is decided from gathered numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lastgood.projection import numbers_of, square_sum
from lastgood.recorder import MicroBatch
from lastgood.replay import MAX_DISPUTES, Replayer, Round, Turn
from lastgood.replay_package import LOSS, Outcome, free_memory, run_package
from lastgood.rounding import rounding, types_of
from lastgood.spread import REPEATS, Outlier, compared, difference, farthest, spreads
from lastgood.verdict_spread import Apart

_INSIDE, _OUTSIDE, _UNTOLD = 0, 1, 2


@dataclass(slots=True)
class Compared:
    """What one calibrated round found; the same on every rank.

    ``pairs``: owner -> partner. ``reason``: why it did not run, or an empty string. ``untold``: owners whose batch
    could not be repeated. ``quantities`` and ``blind``: how many can be compared, and how many spread too much.
    """

    pairs: dict[int, int]
    reason: str = ""
    apart: list[Apart] = field(default_factory=list)
    untold: list[int] = field(default_factory=list)
    quantities: int = 0
    blind: int = 0


class CalibratedReplayer(Replayer):
    """Run replay rounds that compare numbers. Takes the place of ``before``, with the recorder that it had."""

    def __init__(self, before: Replayer) -> None:
        super().__init__(before.world, before.recorder, before.nodes, before.environments)
        self.rounds = before.rounds
        self.recorder.digest = number_bits
        self.names = [*self.recorder.order, LOSS]
        self.spreads: list[float] = []
        self.floor = 0.0

    def widen(self, seen: Sequence[float]) -> None:
        """Take the widest of what was known and what every rank has seen now. Collective."""
        widest = [max(pair) for pair in zip(seen, self.spreads, strict=True)]
        self.spreads = self._largest(widest)

    def compare(self, micros: Sequence[MicroBatch], *, actual: bool) -> Compared:
        """Replay every rank's micro-batches on its partner and compare numbers; the first round calibrates.

        ``actual``: as for :meth:`round`. Collective.
        """
        begun = self.begin()
        turn = _CalibratedTurn(self, begun, micros, actual, {})
        if not begun.reason:
            turn.first_runs()
        if not begun.reason and not self.spreads:
            begun.reason = self._calibrate(turn)
        if not begun.reason:
            turn.screen()
            turn.settle()
        count = compared(self.spreads, self.floor)
        return Compared(begun.pairs, begun.reason, turn.apart, turn.untold, count, len(self.spreads) - count)

    def _calibrate(self, turn: _CalibratedTurn) -> str:
        """Repeat every rank's micro-batches and agree on the spreads. Returns why it cannot, or "". Collective."""
        with types_of(self.recorder) as types:
            rows = turn.repeats(turn.blob)
        if bad := turn.agree("" if rows else "the micro-batch cannot be repeated"):
            return bad
        self.floor = self._largest([rounding(types)])[0]
        within = self._but_one_node(spreads(rows), {rank: rank for rank in range(self.world.size)})
        between = self._but_one_node(turn.apart_from_partner(), turn.result.pairs)
        self.spreads = [max(pair) for pair in zip(within, between, strict=True)]
        if not compared(self.spreads, self.floor):
            return f"its repeats differ by {max(self.spreads):.0%} and more, too much to compare anything"
        return ""

    def _but_one_node(self, seen: Sequence[float], partner: Mapping[int, int]) -> list[float]:
        """Return the largest of all ranks, leaving out the node without which it is smallest, one by one.

        ``partner``: rank -> whom its numbers come from as well. A number of two nodes cannot be of the one that is left
        out; where the job has no third one, all count. Collective.
        """
        me, nodes = self.world.rank, self.nodes
        mine = {nodes[me], nodes[partner.get(me, me)]}
        largest = self._largest(seen)
        if any(nodes[rank] != nodes[other] for rank, other in partner.items()) and len(set(nodes)) < 3:
            return largest
        rank_of = self._largest([me if own == top else -1 for own, top in zip(seen, largest, strict=True)])
        holders = [int(rank) for rank in rank_of]
        without = [
            self._largest([0.0 if nodes[left_out] in mine else own for own, left_out in zip(seen, odd, strict=True)])
            for odd in (holders, [partner.get(rank, rank) for rank in holders])
        ]
        return [min(pair) for pair in zip(*without, strict=True)]

    def _largest(self, numbers: Sequence[float]) -> list[float]:
        """Return the largest of all ranks, one by one. Collective."""
        largest: list[float] = self.world.max_(torch.tensor(numbers, dtype=torch.float64)).tolist()
        return largest


class _CalibratedTurn(Turn):
    """One calibrated round in progress on this rank. A number is (place in ``names``) -> loss or norm."""

    replayer: CalibratedReplayer

    def __init__(
        self,
        replayer: CalibratedReplayer,
        result: Round,
        micros: Sequence[MicroBatch],
        actual: bool,
        nonfinite: dict[int, str],
    ) -> None:
        super().__init__(replayer, result, micros, actual, nonfinite)
        self.suspects: list[int] = []
        self.first: tuple[list[float], list[float]] | None = None  # the owner's numbers and its partner's
        self.apart: list[Apart] = []
        self.untold: list[int] = []

    def compare(self, senders: Sequence[int]) -> None:
        """Send each owner its partner's numbers. Collective."""
        me, pairs = self.world.rank, self.result.pairs
        theirs = [self._numbers(self.partner_run[owner]) for owner in senders]
        got = self._pass_back(theirs, senders, [pairs[me]] if me in pairs else [])
        if got and self.own is not None:
            self.first = self._numbers(self.own), got[0]

    def apart_from_partner(self) -> list[float]:
        """Return how far this rank's numbers and its partner's are apart; 0 without a partner."""
        if self.first is None:
            return [0.0] * len(self.replayer.names)
        return [difference(one, other) for one, other in zip(*self.first, strict=True)]

    def screen(self) -> None:
        """Let all ranks hear whose batch gave numbers outside the job's spread. Collective."""
        outside = False
        if self.first is not None:
            outside = farthest(*self.first, self.replayer.spreads, self.replayer.floor) is not None
        self.suspects = [rank for rank, (said,) in enumerate(self.world.gather_ints([int(outside)])) if said]

    def settle(self) -> None:
        """Let owner and partner repeat what lies outside, and keep what is outside their own repeats too."""
        if not self.suspects:
            return
        me, pairs = self.world.rank, self.result.pairs
        asked = self.suspects[:MAX_DISPUTES]
        owners = [owner for owner in asked if pairs[owner] == me]
        mine = self.repeats(self.blob) if me in asked else []
        theirs = [row for owner in owners for row in self.repeats(self.received[owner])]
        got = self._pass_back(theirs, owners, [pairs[me]] if me in asked else [])
        known = [0.0] * len(self.replayer.names)
        state, outlier = _INSIDE, None
        if me in asked:
            state, outlier, known = self._judge(mine, got, known)
        self._tell(asked, state, outlier)
        self.replayer.widen(known)

    def repeats(self, blob: bytes) -> list[list[float]]:
        """Run the package several times: one row of numbers for each; none when a run failed."""
        try:
            return [self._numbers(run_package(blob, self.replayer.recorder)) for _ in range(REPEATS)]
        except Exception as error:  # whatever the user's loss_fn raises must not stop training
            free_memory(error)
            return []

    def _judge(
        self, mine: list[list[float]], theirs: list[list[float]], known: list[float]
    ) -> tuple[int, Outlier | None, list[float]]:
        if not mine or not theirs or self.first is None:
            return _UNTOLD, None, known
        narrower = [min(pair) for pair in zip(spreads(mine), spreads(theirs), strict=True)]
        seen = [max(pair) for pair in zip(narrower, self.replayer.spreads, strict=True)]
        outlier = farthest(*self.first, seen, self.replayer.floor)
        return (_INSIDE, None, seen) if outlier is None else (_OUTSIDE, outlier, known)

    def _tell(self, asked: Sequence[int], state: int, outlier: Outlier | None) -> None:
        """Let all ranks hear what each owner has found. Collective."""
        found = outlier or Outlier(0, 0.0, 0.0, 0.0, 0.0)
        states = self.world.gather_ints([state, found.index])
        numbers = self.world.gather_floats([found.one, found.other, found.spread, found.limit])
        self.untold = [owner for owner in asked if states[owner][0] == _UNTOLD]
        for owner in asked:
            if states[owner][0] == _OUTSIDE:
                outlier = Outlier(states[owner][1], *numbers[owner])
                name = self.replayer.names[outlier.index]
                self.apart.append(Apart(owner=owner, partner=self.result.pairs[owner], tensor=name, outlier=outlier))

    def _pass_back(self, rows: list[list[float]], to: Sequence[int], senders: Sequence[int]) -> list[list[float]]:
        """Send rows of numbers to the one rank of ``to`` and return those of the one of ``senders``. Collective."""
        blob = torch.tensor(rows, dtype=torch.float64).numpy().tobytes()
        got = self.world.exchange(blob, to=to, senders=senders)
        width = len(self.replayer.names)
        for received in got.values():
            flat = torch.frombuffer(bytearray(received), dtype=torch.float64)
            return flat.view(-1, width).tolist()
        return []

    def _numbers(self, outcome: Outcome) -> list[float]:
        """Return the numbers of a run; not a number for a parameter without a gradient."""
        values = outcome.values.view(torch.float64).tolist()
        by_name = dict(zip(outcome.names, values, strict=True))
        return [by_name.get(name, math.nan) for name in self.replayer.names]


def number_bits(tensor: Tensor, name: str) -> Tensor:
    """Return the loss itself, or the norm of a gradient, as float64 in an int64 scalar; infinite when not finite."""
    value = tensor.double().reshape(()) if name == LOSS else square_sum(numbers_of(tensor)).sqrt()
    return torch.where(value.isfinite(), value, math.inf).view(torch.int64)
