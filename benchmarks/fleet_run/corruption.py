"""Journal what lastgood finds of silent data corruption: rulings by the real rules, from evidence as a fleet gives it.

A fault is told in the six ways that it can come to light (:data:`KINDS`, in turn), plus a batch that is not finite on
any node, which is no fault, and one replay that nobody could settle and that does not reproduce itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from fleet_run.training import SAVE_EVERY, Training
from lastgood.events import Event, fact_id, source_of
from lastgood.findings import (
    action_of,
    finding_data,
    finding_id,
    peers_evidence,
    resume_data,
    verdict_data,
)
from lastgood.state import LastGood
from lastgood.verdict import (
    Dispute,
    Ruling,
    arbitrate,
    confirmed_ranks,
    rule_conservation,
    rule_finite,
    rule_replica,
)
from lastgood.wording import step_text

Kind = Literal["persistent", "weight", "nan", "reduce", "transient", "undecided"]
KINDS: Final[Sequence[Kind]] = ("persistent", "weight", "nan", "reduce", "transient", "undecided")
PERIOD: Final = 600  # steps after which audits and saves meet again
PEERS: Final = 64  # ranks whose norms are made up; the quantiles of 16,384 look the same
NORM_STEPS: Final = 128
NO_PROBE: Final = "out of memory in the check on rank {}"


def last_step(kind: Kind, step: int) -> int:
    """Return the first step from ``step`` on at which a fault of this kind comes to light.

    Replay audits at 400 of 600 steps see a fault behind a save (at 300), those at 200 do not.
    """
    if kind in ("persistent", "transient"):
        return step + (400 - step) % PERIOD
    if kind == "undecided":
        return step + (200 - step) % PERIOD
    return step + -step % SAVE_EVERY if kind == "weight" else step


@dataclass(frozen=True)
class Reporter:
    """Journals findings about one rank of a training run, with its partner and arbiter on other nodes."""

    training: Training
    rank: int

    @property
    def partner(self) -> int:
        return (self.rank + 8) % len(self.training.places)

    @property
    def arbiter(self) -> int:
        return (self.rank + 16) % len(self.training.places)

    @property
    def nodes(self) -> Mapping[int, str]:
        return {place.rank: place.node for place in self.training.places}

    def report(self, kind: Kind) -> list[Event]:
        """Journal a fault at the step in progress and return the finding and the verdict events of rank 0."""
        match kind:
            case "persistent" | "transient" | "undecided":
                return self._replay(kind)
            case "weight":
                return self._weight()
            case "nan":
                return self._nan()
            case "reduce":
                return self._reduce()

    def _values(self) -> tuple[int, int]:
        chance = self.training.chance
        return chance.getrandbits(40), chance.getrandbits(40)

    def _dispute(self, kind: Kind) -> Dispute:
        wrong, right = self._values()
        second = {"persistent": wrong, "transient": right, "undecided": wrong ^ 1}[kind]
        arbiter = self.arbiter if kind == "persistent" else None
        return Dispute(
            owner=self.rank, partner=self.partner, arbiter=arbiter, owner_first=wrong, owner_second=second,
            partner_first=right, partner_second=right, arbiter_first=right if arbiter is not None else None,
            second_batch_odd=kind == "persistent" or None,
        )  # fmt: skip

    def _replay(self, kind: Kind) -> list[Event]:
        t, dispute = self.training, self._dispute(kind)
        ruling = arbitrate([dispute], self.nodes)
        pairs = {self.rank: self.partner, self.partner: self.arbiter}
        named = {*ruling.accused, *ruling.candidates}
        odd = pairs.keys() - confirmed_ranks(pairs, [dispute], ruling)
        why = "its own batch was not confirmed elsewhere"
        t.round("replay", "audit", t.step, "failed",
                exceptions={r: ("failed", "") if r in named else ("not_run", why) for r in odd})  # fmt: skip
        found = self._finding(
            "replay", "audit", sorted(named), observed=_hex(dispute.owner_first), expected=_hex(dispute.partner_first),
            tensor="layers.71.feed_forward.w2.weight", evidence=[_pair(dispute), *self._norms(factor=1.0)],
        )  # fmt: skip
        return self.publish("replay", ruling, [found])

    def _weight(self) -> list[Event]:
        t, (wrong, right) = self.training, self._values()
        tensor = "layers.12.attention.wo.weight"
        digests = dict.fromkeys(range(len(t.places)), right) | {self.rank: wrong}
        ruling = rule_replica(digests, self.nodes, tensor)
        t.round("replica", "save", t.step, "failed", exceptions={self.rank: ("failed", "")})
        found = self._finding("replica", "save", [self.rank], observed=_hex(wrong), expected=_hex(right), tensor=tensor,
                              evidence=self._norms(factor=1.0))  # fmt: skip
        events = self.publish("replica", ruling, [found])
        t.write("checkpoint.failed", t.begin_save("failed") | {"reason": "integrity"}, 0.1)
        return events

    def _nan(self) -> list[Event]:
        t = self.training
        dispute = Dispute(owner=self.rank, partner=self.partner, arbiter=None, owner_first=1, owner_second=0,
                          partner_first=0, partner_second=0, arbiter_first=None)  # fmt: skip
        ruling = rule_finite({self.rank: "local"}, [dispute], self.nodes)
        t.round("replay", "immediate", t.step, "failed", exceptions={self.rank: ("failed", "")})
        seen = self._finding("finite", "local", [self.rank], contained=True, expected="finite numbers",
                             observed="a local gradient that is not finite")  # fmt: skip
        again = self._finding("replay", "immediate", [self.rank], observed="not finite",
                              expected="finite on another node", evidence=self._norms(factor=float("nan")))  # fmt: skip
        return self.publish("finite", ruling, [seen, again])

    def _reduce(self) -> list[Event]:
        t, bucket = self.training, 17
        ruling = rule_conservation([self.rank], len(t.places), self.nodes, bucket)
        found = self._finding("conservation", "reduce", [self.rank], contained=True, bucket=bucket,
                              observed="0.257 of the local norms", expected="at most 4e-06",
                              evidence=self._norms(factor=1.0))  # fmt: skip
        return self.publish("conservation", ruling, [found])

    def bad_batch(self) -> list[Event]:
        """Journal a batch whose loss is not finite on any node: the step is skipped, and that is all."""
        dispute = Dispute(owner=self.rank, partner=self.partner, arbiter=None, owner_first=1, owner_second=None,
                          partner_first=1, partner_second=None, arbiter_first=None)  # fmt: skip
        ruling = rule_finite({self.rank: "loss"}, [dispute], self.nodes)
        self.training.round("replay", "immediate", self.training.step)
        found = self._finding("finite", "loss", [self.rank], contained=True, observed="a loss that is not finite",
                              expected="finite numbers")  # fmt: skip
        return self.publish("finite", ruling, [found])

    # --- what they share ---------------------------------------------------------------------------------------------

    def _finding(self, check: str, phase: str, ranks: Sequence[int], **facts: Any) -> dict[str, Any]:
        t = self.training
        return finding_data(
            check=check, step=t.step, state_step=t.step, phase=phase, ranks=ranks, places=t.places, **facts
        )

    def publish(self, check: str, ruling: Ruling, found: Sequence[Mapping[str, Any]]) -> list[Event]:
        """Journal findings and verdict on rank 0 and on every named rank, with the same ids and data."""
        t = self.training
        verdict = verdict_data(ruling, found, t.places, action_of(ruling, check, "stop", 0))
        if ruling.status != "cleared":
            verdict["resume"] = resume_data(self._last_good(found))
        source, key = source_of(t.run, t.attempt), fact_id("verdict", check, t.step, found[0]["phase"])
        told = []
        for rank in sorted({0, *ruling.accused, *ruling.candidates}):
            writer = t.writer(rank)
            t.now += 0.01
            told += [writer.write("finding", f, step=t.step, event_id=finding_id(f), source=source) for f in found]
            told.append(writer.write("verdict", verdict, step=t.step, event_id=key, source=source))
        return told[: len(found) + 1]

    def _last_good(self, found: Sequence[Mapping[str, Any]]) -> LastGood:
        t, start = self.training, min(window_start(self.training, f) for f in found)
        best = [save for save in t.saved if save.step <= start][-1]
        reason = f"All {len(t.places)} devices passed a replay at step {step_text(best.step)}."
        return LastGood(best.attempt, best.step, best.path, "trusted", reason)

    def _norms(self, factor: float) -> list[dict[str, Any]]:
        """Return one rank's gradient norms against others': the last is ``factor`` times what it should be."""
        t, first = self.training, max(self.training.from_step + 1, self.training.step - NORM_STEPS + 1)
        level = [0.35 + 0.1 / (1 + step / 1e4) for step in range(first, t.step + 1)]
        rows = [[norm * t.chance.lognormvariate(0, 0.08) for norm in level] for _ in range(PEERS)]
        rows[0][-1] *= factor
        return [{**peers_evidence(0, first, rows), "rank": self.rank}]


def window_start(training: Training, found: Mapping[str, Any]) -> int:
    """Return the last step that is proven good for what a finding says."""
    saves = [save.step for save in training.saved]
    if found["check"] in ("finite", "conservation"):
        return max(0, training.step - 1)
    if found["check"] == "replica":
        return max(saves)
    audited = (training.step - 1) // 200 * 200
    start = audited if audited > training.from_step else training.from_step
    return start if training.probe_fails else max(start, *saves)


def _hex(value: int) -> str:
    return f"{value:016x}"


def _pair(d: Dispute) -> dict[str, Any]:
    """Return one pair of a replay round as the evidence of a finding."""
    asked = "" if d.arbiter is None else f" Rank {d.arbiter} was asked."
    values = {name: getattr(d, name) for name in ("owner_first", "owner_second", "partner_first", "partner_second",
                                                  "arbiter_first")}  # fmt: skip
    return {
        "kind": "replay",
        "text": f"Rank {d.partner} ran a batch of rank {d.owner} and got another gradient.{asked}",
        "owner": d.owner, "partner": d.partner, "arbiter": d.arbiter,
        **{name: None if value is None else _hex(value) for name, value in values.items()},
        "second_batch_odd": d.second_batch_odd,
    }  # fmt: skip
