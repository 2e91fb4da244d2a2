"""Compare what several ranks of a sharded model hold alike: shards with a replica, whole tensors, gathered copies.

Ranks that hold the same part of a tensor (HSDP: along the replicate dimension) are compared with each other and with
nobody else. A part that one rank alone holds has no replica; :mod:`lastgood.at_rest` looks at it. What FSDP2 gathers is
a copy of the weights on every rank for the time of a layer, and is compared with the shards
(:mod:`lastgood.gather_digest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from lastgood.comm import World
from lastgood.fingerprint import TensorDigests, canonical_name, digest_tensors
from lastgood.fsdp_groups import named_parameters
from lastgood.gather_digest import GatherDigest
from lastgood.gather_order import held_by
from lastgood.replica import Comparison, first_difference, fold, weights
from lastgood.sharded import holding, local
from lastgood.verdict import Ruling, majority, rule_replica
from lastgood.verdict_sharded import rule_parts

Named = tuple[str, Tensor]


class ShardedReplicas:
    """The comparisons of one job. ``alone``: canonical names of the parameters of which no other rank holds the same.

    Making it is collective. ``gathers`` is None where the gathers cannot be seen.
    """

    def __init__(self, world: World, nodes: Sequence[str], module: nn.Module, gathers: GatherDigest | None) -> None:
        self.world, self.nodes, self.gathers = world, dict(enumerate(nodes)), gathers
        self._alike: dict[str, list[list[int]]] = {}  # spread -> ranks that hold the same, of groups of two or more
        self.alone = self._without_replica(weights(module))
        self.names = [canonical_name(name) for name, _ in named_parameters(module)]

    @property
    def whole(self) -> bool:
        """Tell whether every parameter has a replica."""
        return not self.alone

    @property
    def why_not(self) -> str:
        """Return why nothing can be compared, or ""."""
        if self.gathers is not None or len(self.alone) < len(self.names):
            return ""
        return "every rank holds a part of its own, and what is gathered cannot be seen"

    @property
    def left_out(self) -> str:
        """Say what is not compared: parameters of which nobody else has a copy, not even for the time of a layer."""
        if self.whole or self.gathers is not None:
            return ""
        return f"{len(self.alone)} of {len(self.names)} parameters have no replica"

    def begin_micro(self) -> None:
        """Say that a micro-batch of the training begins."""
        if self.gathers is not None:
            self.gathers.order.begin(held_by(self.gathers.groups))

    def end_micro(self) -> None:
        """Say that its backward has ended."""
        if self.gathers is not None:
            self.gathers.order.end()

    def phase(self, phase: str) -> str:
        """Return the phase under which a comparison is journaled: it must not claim to have read everything."""
        if self.whole:
            return phase
        return "gather" if len(self.alone) == len(self.names) else "loop"

    def compare(self, items: Iterable[Named], *, gathered: bool) -> Comparison | None:
        """Compare named tensors, and with ``gathered`` the copies of this step; None: nothing to compare. Collective.

        The digests of the result are of what this rank holds.
        """
        shards = self._compare_shards(list(items))
        copies = self.gathers.compare(self.world, self.nodes) if gathered and self.gathers is not None else None
        if shards is not None and (shards.ruling is not None or copies is None):
            return shards
        return copies

    def _compare_shards(self, items: Sequence[Named]) -> Comparison | None:
        spread = self._by_spread(items)
        compared = {kind: held for kind, held in spread.items() if self._alike[kind]}
        if not compared or (self.alone and set(compared) == {"whole"} and len(self.alone) == len(self.names)):
            return None  # step counters alone are no replica of a state
        digests = {kind: digest_tensors(held) for kind, held in compared.items()}
        rows = self.world.gather_ints([fold(digest.total().cpu()) for digest in digests.values()])
        found: list[tuple[Ruling, str | None, int, int]] = []
        for column, (kind, digest) in enumerate(digests.items()):
            for ranks in self._alike[kind]:
                totals = {rank: rows[rank][column] for rank in ranks}
                if len(set(totals.values())) > 1:
                    found.append(self._rule(totals, digest))
        first = next(iter(digests.values()))
        if not found:
            return Comparison(first, None)
        return Comparison(first, rule_parts([f[0] for f in found], self.nodes), *found[0][1:])

    def _rule(self, totals: Mapping[int, int], digest: TensorDigests) -> tuple[Ruling, str | None, int, int]:
        """Rule on ranks that should hold the same. Collective."""
        outcome = majority(totals)
        odd = outcome.odd[0] if outcome.odd else min(totals)
        reference = next(rank for rank in totals if totals[rank] != totals[odd])
        tensor, observed, expected = first_difference(self.world, digest, odd, reference)
        nodes = {rank: self.nodes[rank] for rank in totals}
        return rule_replica(totals, nodes, tensor), tensor, observed, expected

    def _without_replica(self, items: Iterable[Named]) -> frozenset[str]:
        spread = self._by_spread(list(items))
        return frozenset(name for kind, held in spread.items() if not self._alike[kind] for name, _ in held)

    def _by_spread(self, items: Sequence[Named]) -> dict[str, list[Named]]:
        """Sort local parts by how they are spread; learn of each new way which ranks hold the same. Collective then."""
        out: dict[str, list[Named]] = {}
        places: dict[str, tuple[int, ...]] = {}
        for name, tensor in items:
            kind, place = holding(tensor)
            out.setdefault(kind, []).append((name, local(tensor)))
            places[kind] = place
        if new := sorted(kind for kind in out if kind not in self._alike):
            rows = self.world.gather_json([places[kind] for kind in new])
            for column, kind in enumerate(new):
                self._alike[kind] = _alike([row[column] for row in rows])
        return dict(sorted(out.items()))


def _alike(places: Sequence[Any]) -> list[list[int]]:
    """Return the groups of two or more ranks with the same place."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(places):
        groups.setdefault(tuple(place), []).append(rank)
    return [ranks for ranks in groups.values() if len(ranks) > 1]
