"""Say how far checkpoints can be trusted: what two dashboards share."""

from __future__ import annotations

from lastgood_dashboards.queries import NO_RUN, ledger, total
from lastgood_dashboards.spec import BAD, GOOD, LATE, NONE_AT_MINUS_ONE, PEER, PLAIN, Panel, Query


def resume_step(id: int, run: str) -> Panel:
    """Return the number that a person looks for first."""
    return Panel(
        id=id, kind="stat", title="Resume from step", width=5, height=4, empty=NO_RUN, texts=NONE_AT_MINUS_ONE,
        says="Step of the last good checkpoint: the newest that is trusted, else the newest unverified one that no "
             "open window covers.",
        queries=(Query(expr=ledger("last_good_step", run), legend="last good"),),
    )  # fmt: skip


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
