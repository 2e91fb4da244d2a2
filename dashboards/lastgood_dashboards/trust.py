"""Count checkpoints by trust: the five lines that two dashboards share."""

from __future__ import annotations

from lastgood_dashboards.queries import total
from lastgood_dashboards.spec import BAD, GOOD, LATE, PEER, PLAIN, Query


def by_trust(runs: str) -> tuple[Query, ...]:
    """Return a line for each trust; what cannot be read at all is one of them, which makes five."""
    return (
        _count(runs, "trusted", "trusted", GOOD),
        _count(runs, "unverified", "unverified", PEER),
        _count(runs, "suspect", "suspect", LATE),
        _count(runs, "tainted", "tainted", BAD),
        _count(runs, "missing|unreadable", "missing or unreadable", PLAIN),
    )


def _count(runs: str, trust: str, legend: str, colour: str) -> Query:
    return Query(expr=total("checkpoints", runs, f'trust=~"{trust}"', by="run, trust"), legend=legend, colour=colour)
