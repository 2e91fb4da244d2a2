"""The causes of interruptions of a 54-day run on 16,384 GPUs, and when each comes in a run of any length.

The counts are those of table 5 of "The Llama 3 Herd of Models" (arXiv 2407.21783): 419 unexpected interruptions, and
47 planned ones from its text. A run of other length has its share of them. When they came was not published: gaps are
drawn, seeded, as those of independent failures are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

DAYS: Final = 54
DAY_SECONDS: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt ended. ``ended``: what ``run.ended`` says (None: nobody could say), ``device``: a GPU broke."""

    name: str
    count: int
    ended: str | None
    device: bool = False
    node: bool = False  # the node is taken out of the run


PLANNED: Final = Cause("planned maintenance", 47, "signal")
CORRUPTION: Final = Cause("silent data corruption", 6, "integrity", device=True, node=True)
CAUSES: Final[Sequence[Cause]] = (
    Cause("faulty GPU", 148, "exception", device=True, node=True),
    Cause("GPU HBM3 memory", 72, "exception", device=True, node=True),
    Cause("software bug", 54, "exception"),
    Cause("network switch or cable", 35, "exception"),
    Cause("host maintenance", 32, "signal", node=True),
    Cause("GPU SRAM memory", 19, "exception", device=True, node=True),
    Cause("GPU system processor", 17, "exception", device=True, node=True),
    Cause("NIC", 7, "exception", node=True),
    Cause("NCCL watchdog timeouts", 7, "exception"),
    CORRUPTION,
    Cause("GPU thermal interface and sensor", 6, "exception", device=True, node=True),
    Cause("SSD", 3, None, node=True),
    Cause("power supply", 3, None, node=True),
    Cause("server chassis", 2, None, node=True),
    Cause("IO expansion board", 2, None, node=True),
    Cause("dependency", 2, "exception"),
    Cause("CPU", 2, None, node=True),
    Cause("system memory", 2, None, node=True),
)


@dataclass(frozen=True, slots=True)
class Interruption:
    """``at``: seconds since the run began; ``down``: seconds until the next attempt started."""

    cause: Cause
    at: float
    down: float


def share_of(days: float) -> list[Cause]:
    """Return the causes of a run of so many days, in the order of the table: its share, by largest remainders."""
    causes = [*CAUSES, PLANNED]
    wanted = [cause.count * days / DAYS for cause in causes]
    counts = [int(count) for count in wanted]
    order = sorted(
        range(len(causes)), key=lambda i: (causes[i] is not CORRUPTION or counts[i] > 0, counts[i] - wanted[i])
    )
    for i in order[: max(1, round(sum(wanted))) - sum(counts)]:
        counts[i] += 1
    return [cause for cause, count in zip(causes, counts, strict=True) for _ in range(count)]


def plan(days: float, chance: Random) -> Iterator[Interruption]:
    """Yield the interruptions of a run; what is left of its time then is the last attempt's."""
    causes = share_of(days)
    chance.shuffle(causes)
    downs = [chance.uniform(240.0, 900.0) for _ in causes]
    last = min(6 * 3600.0, days * DAY_SECONDS / 6)
    gaps = [0.08 + chance.expovariate(1.0) for _ in causes]
    second = max(0.0, days * DAY_SECONDS - last - sum(downs)) / sum(gaps)
    at = 0.0
    for cause, down, gap in zip(causes, downs, gaps, strict=True):
        at += gap * second
        yield Interruption(cause, at, down)
        at += down
