"""Choose who replays whose batch. Pure.

Ranks with the same environment key are ordered by node and shifted by the largest node size m: the partner of the
rank at position i is the one at i + m. With 2m <= n every partner is on another node, since a node's ranks are a run
of at most m positions on the circle. Otherwise the shift rotates with the round, and a rank whose partner is then on
its own node does not run in that round. Ranks alone with their environment key have no partner: healthy ranks with
different thread counts or hardware disagree bitwise, so comparing them would accuse the innocent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence


def partners(nodes: Sequence[str], environments: Sequence[str], round_number: int = 0) -> dict[int, int]:
    """Return owner -> partner (ranks); owners without a partner in this round are left out."""
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, environment in enumerate(environments):
        groups[environment].append(rank)
    out: dict[int, int] = {}
    for members in groups.values():
        out |= _pair(sorted(members, key=lambda r: (nodes[r], r)), nodes, round_number)
    return out


def arbiter(
    owner: int, partner: int, nodes: Sequence[str], environments: Sequence[str], busy: Collection[int]
) -> int | None:
    """Return a rank on a third node with the owner's environment key that is not in ``busy``, or None."""
    taken = {nodes[owner], nodes[partner]}
    for rank, node in enumerate(nodes):
        if node not in taken and rank not in busy and environments[rank] == environments[owner]:
            return rank
    return None


def _pair(order: Sequence[int], nodes: Sequence[str], round_number: int) -> dict[int, int]:
    n = len(order)
    largest = max(Counter(nodes[r] for r in order).values())
    if largest == n:
        return {}
    shift = largest if 2 * largest <= n else 1 + round_number % (n - 1)
    pairs = {rank: order[(i + shift) % n] for i, rank in enumerate(order)}
    return {owner: partner for owner, partner in pairs.items() if nodes[owner] != nodes[partner]}


def environment_data(environments: Sequence[str]) -> dict[str, list[int]]:
    """Return environment key -> ranks, as a start is journaled: the key that most ranks have names none of them.

    16,384 ranks by number in every start of a run are more than all that it journals otherwise.
    """
    groups: dict[str, list[int]] = {}
    for rank, key in enumerate(environments):
        groups.setdefault(key, []).append(rank)
    usual = max(groups, key=lambda key: len(groups[key]), default=None)
    return {key: [] if key == usual else ranks for key, ranks in groups.items()}
