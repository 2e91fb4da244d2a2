"""Write the PromQL that several panels share.

The rules that every query keeps:

- Two ledgers on one run export the same series: ``max by (...)`` over labels of ours takes ``job`` and ``instance``
  away before anything is added up.
- Without ``honor_labels`` a target label ``node`` renames ours to ``exported_node``. In a ledger's series, where that
  would accuse the host of the ledger, ours is taken back. Not in those of ranks: at 16,384 it is as dear as a chart.
- A rank's series is joined with ``rank_info`` on ``(job, instance, run, rank)``, never on the rank alone: two attempts
  overlap while a job restarts. ``topk by (...) (1, ...)`` makes the right side unique, since one duplicate would fail
  the whole query.
- A norm that is not a number is left out by ``x >= 0``, which is never true of NaN. (``x == x`` says the same, but
  matches every series with itself: at 16,384 ranks that is most of the time of a chart.)
- 16,384 ranks are never drawn as lines. A chart shows quantiles, or the few series that stand out *at the end of the
  time range*: ``topk(5, x)`` alone takes other series at every step and draws any number of lines,
  ``topk(5, x @ end())`` takes five.
"""

from __future__ import annotations

from typing import Final

from lastgood.catalogue import PREFIX
from lastgood_dashboards.spec import PEER, PLAIN, Query, Variable

RANK_KEY: Final = "job, instance, run, rank"
RECENT: Final = "1h"
"""How long before the end of the time range a rank may have fallen silent and still be chosen: a run that stopped
is when people look."""
POINTS: Final = 120
"""Moments of a chart that looks at every rank; zooming in makes them finer."""
NO_RUN: Final = "No ledger reports this run"
"""What a panel about one run says when ``ledger`` returns nothing."""


def where(*matchers: str) -> str:
    """Return matchers in braces."""
    return "{" + ",".join(matcher for matcher in matchers if matcher) + "}"


def ledger(name: str, *matchers: str, by: str = "run") -> str:
    """Return a ledger's series by the labels ``by``, once however many ledgers export it."""
    return f"max by ({by}) ({_own_node(f'{PREFIX}{name}{where(*matchers)}', by)})"


def _own_node(series: str, by: str) -> str:
    """Return a ledger's series with our own node label, where it is among the labels ``by``."""
    own = f'label_replace({series}, "node", "$1", "exported_node", "(.+)")'
    return own if "node" in by.split(", ") else series


def total(name: str, *matchers: str, by: str = "run", per: str = "") -> str:
    """Return the sum of a ledger's series over all labels of ``by`` but ``per``."""
    grouping = f" by ({per})" if per else ""
    return f"sum{grouping} ({ledger(name, *matchers, by=by)})"


def latest(name: str, *matchers: str, by: str, over: str = "$__range") -> str:
    """Return the last value within ``over`` before the end of the time range: the same at every step of a chart."""
    return f"max by ({by}) ({_own_node(f'last_over_time({PREFIX}{name}{where(*matchers)}[{over}] @ end())', by)})"


def known(series: str) -> str:
    """Return the samples of something that is never negative, where they are a number."""
    return f"({series} >= 0)"


def chosen(series: str, selection: str) -> str:
    """Return only those of ``series`` whose rank on its node is in ``selection``."""
    return f"{series} and on (run, node, rank) {selection}"


def with_gpu(series: str, selection: str, *matchers: str) -> str:
    """Return ``series`` of ranks with the label ``gpu_uuid`` of the GPU that each runs on.

    ``selection``: the ranks that can occur in it; empty: all that ``matchers`` choose.
    """
    info = f"{PREFIX}rank_info{where(*matchers)}"
    info = chosen(info, selection) if selection else info
    return f"{series} * on ({RANK_KEY}) group_left (gpu_uuid) topk by ({RANK_KEY}) (1, {info})"


def quantile(share: float, series: str) -> str:
    """Return a quantile over the ranks of each run."""
    return f"quantile by (run) ({share}, {series})"


def accusations(window: str, node: str = "") -> str:
    """Return how many incidents named each device within ``window``: 7d or 90d. ``node``: of this node alone."""
    found = ledger("node_accusations", f'window="{window}"', by="node, gpu_uuid")
    return f'({found} and on (node) label_replace(vector(1), "node", "{node}", "", ""))' if node else found


def late(runs: str) -> str:
    """Return 1 or 0 for each check of each run: whether it should have passed again before the run's last step."""
    due = ledger("check_due_step", runs, by="run, check")
    return f"{ledger('run_step', runs)} > bool on (run) group_right () {due}"


def overdue(runs: str) -> str:
    """Return 1 or 0 for each check of each active run: whether it should have passed again by now."""
    return f"({late(runs)}) and on (run) {ledger('run_active', runs)} == 1"


def run_variable(*, many: bool) -> Variable:
    """Return the selector of the runs."""
    query = "label_values(lastgood_run_active, run)"
    return Variable(name="run", label="Run", says="Runs that a ledger knows", query=query, many=many)


def step_times(*matchers: str) -> tuple[Query, Query]:
    """Return the lines of the time from the end of one step to the end of the next, over many ranks."""
    added, counted = (
        f"rate({PREFIX}step_duration_seconds_{part}{where(*matchers)}[$__rate_interval])" for part in ("sum", "count")
    )
    return (
        Query(expr=f"max ({added} / ({counted} > 0))", legend="slowest rank", colour=PEER),
        Query(expr=f"sum ({added}) / (sum ({counted}) > 0)", legend="mean", colour=PLAIN),
    )
