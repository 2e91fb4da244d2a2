"""Find the ranks whose part of a reduced bucket is wrong, once the sum over all ranks has said that one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

from lastgood.comm import World
from lastgood.stepvector import StepFacts, relative
from lastgood.verdict import Ruling
from lastgood.verdict_sharded import rule_averaged, rule_scattered


@dataclass(slots=True)
class BucketParts:
    """What this rank put into a bucket, and the part it got out of it: float64 projections on the gradient's device.

    ``put``: per rank of the group what was put into its part; a single number where all of the group get the same.
    ``members``: ranks of the group. ``after``: comparable with the sum (the mean, where all get the same) of what the
    group put in.
    """

    members: Sequence[int]
    place: int
    put: Tensor
    same: bool
    after: Tensor | None = None

    @classmethod
    def scattered(cls, group: dist.ProcessGroup, slices: Tensor) -> BucketParts:
        """Return what a reduce-scatter begins with."""
        return cls(dist.get_process_group_ranks(group), dist.get_rank(group), slices, False)

    @classmethod
    def averaged(cls, group: dist.ProcessGroup | None, before: Tensor, after: Tensor) -> BucketParts:
        """Return what an average between replicas begins and ends with."""
        members = dist.get_process_group_ranks(group)
        return cls(members, dist.get_rank(group), before.reshape(1), True, after)


class Parts:
    """All buckets of one backward on this rank."""

    def __init__(self, world: World, nodes: Mapping[int, str], parts: Mapping[int, BucketParts]) -> None:
        self.world, self.nodes, self.parts = world, nodes, parts

    def rule(self, bucket: int, facts: StepFacts, limit: float) -> tuple[list[int], Ruling]:
        """Return the ranks that hold a wrong part, and the ruling; the same on every rank. Collective."""
        mine = self.parts.get(bucket)
        rows = self.world.gather_json(None if mine is None or mine.after is None else _row(mine))
        if any(row is None for row in rows):
            return [], rule_scattered([], self.nodes, bucket)
        scale = facts.scales[bucket] * self.world.size
        if not rows[0]["same"]:
            off = {rank: relative(_sum_into(rows, row), row["after"], scale) for rank, row in enumerate(rows)}
            holders = _worst(off, limit)
            return holders, rule_scattered(holders, self.nodes, bucket)
        return self._rule_replicas(rows, bucket, scale, limit)

    def _rule_replicas(self, rows: Sequence[Any], bucket: int, scale: float, limit: float) -> tuple[list[int], Ruling]:
        off = {}
        for rank, row in enumerate(rows):
            mean = sum(rows[member]["put"][0] for member in row["members"]) / len(row["members"])
            off[rank] = relative(mean, row["after"], scale)
        wrong = _worst(off, limit)
        worst = max(wrong or [0], key=lambda rank: off[rank])
        members = rows[worst]["members"]
        afters = [rows[member]["after"] for member in members]
        common = max(set(afters), key=afters.count)
        odd = [member for member, after in zip(members, afters, strict=True) if after != common]
        if 2 * len(odd) > len(members):
            odd = []
        return odd or [rank for rank in wrong if rank in members], rule_averaged(odd, members, self.nodes, bucket)


def _row(mine: BucketParts) -> dict[str, Any]:
    assert mine.after is not None
    return {
        "members": list(mine.members),
        "place": mine.place,
        "put": mine.put.tolist(),
        "same": mine.same,
        "after": float(mine.after),
    }


def _sum_into(rows: Sequence[Any], row: Mapping[str, Any]) -> float:
    """Return what the group of a rank put into the rank's part."""
    return float(sum(rows[member]["put"][row["place"]] for member in row["members"]))


def _worst(off: Mapping[int, float], limit: float) -> list[int]:
    """Return the ranks that are off; half the limit, since the parts had weights of up to 1.5 in the sum."""
    return sorted(rank for rank, ratio in off.items() if not ratio <= limit / 2)
