"""Say which rank runs on which device: nodes in use, spares, and nodes that come back from repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from lastgood.state import Place

PER_NODE: Final = 8
REPAIR_SECONDS: Final = 3 * 86400.0


@dataclass
class Cluster:
    """The nodes of a cluster. ``ranks`` is a multiple of 8; one node in 40 is a spare."""

    ranks: int
    seed: int
    used: list[str] = field(init=False)
    _spare: list[str] = field(init=False)
    _repaired: list[tuple[float, str]] = field(default_factory=list)
    _boards: dict[tuple[str, int], int] = field(default_factory=dict)  # (node, slot) -> how often it got a new GPU
    _made: dict[tuple[int, str, int, int], Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ranks < 2 * PER_NODE or self.ranks % PER_NODE:
            raise ValueError(f"{self.ranks} ranks: a multiple of {PER_NODE} from {2 * PER_NODE} on is needed")
        nodes = self.ranks // PER_NODE
        names = [f"gpu-{number:04}" for number in range(nodes + max(4, nodes // 40))]
        self.used, self._spare = names[:nodes], names[nodes:]

    def places(self) -> tuple[Place, ...]:
        """Return the places of all ranks: 8 to a node, in the order of the nodes in use."""
        return tuple(
            self._place(8 * n + slot, node, slot) for n, node in enumerate(self.used) for slot in range(PER_NODE)
        )

    def _place(self, rank: int, node: str, slot: int) -> Place:
        key = (rank, node, slot, self._boards.get((node, slot), 0))
        if key not in self._made:
            bits = f"{Random(f'{self.seed} {key[1:]}').getrandbits(128):032x}"
            uuid = f"GPU-{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"
            self._made[key] = Place(rank, node, uuid, slot)
        return self._made[key]

    def replace(self, place: Place, now: float, board: bool) -> None:
        """Put a spare in the place of a node; ``board``: it comes back from repair with a new GPU."""
        ready = [node for at, node in self._repaired if at <= now]
        self._repaired = [(at, node) for at, node in self._repaired if at > now]
        self._spare += ready
        if not self._spare:
            self._spare.append(self._repaired.pop(0)[1])  # the one that was broken first is mended in a hurry
        self.used[self.used.index(place.node)] = self._spare.pop(0)
        self._repaired.append((now + REPAIR_SECONDS, place.node))
        if board:
            key = (place.node, place.slot)
            self._boards[key] = self._boards.get(key, 0) + 1

    def reorder(self) -> None:
        """Order the ranks by node again: after replacements nearly every rank moves."""
        self.used.sort()
