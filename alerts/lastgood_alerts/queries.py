"""Build the pieces of PromQL that several rules share.

What they must hold under:

- two ledgers on one run export the same series, and a target may be scraped twice: aggregate with ``max by``;
- without ``honor_labels`` a target label ``node`` renames ours to ``exported_node``: :func:`nodes` takes ours back;
- two attempts can overlap: what is about the newest attempt asks :data:`NEWEST_RANKS`;
- a sample may be NaN: ``>= 0`` drops it, where a value cannot be negative;
- a counter of a rank starts anew with its process, and its first sample may already be 1: :func:`added`.

PromQL of Prometheus 2.42 and VictoriaMetrics 1.79; nothing newer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lastgood_alerts.rule import SEVERAL
from lastgood_alerts.thresholds import NAMED_NODES

ACTIVE: Final = "(max by (run) (lastgood_run_active) == 1)"
"""Runs whose newest attempt has started and has not said that it ended."""
ALIVE: Final = "lastgood:run_alive"
"""Active runs that are not silent: a recent event, or ranks that are scraped."""
SCRAPED: Final = "group by (run) (lastgood_rank_info)"
"""Runs of which at least one rank is scraped."""
SINCE_EVENT: Final = "time() - max by (run) (lastgood_run_last_event_timestamp_seconds)"
"""Seconds since the newest event of each run."""
NEWEST: Final = 'count_values by (run) ("attempt", max by (run) (lastgood_run_attempt))'
"""The newest attempt of each run, as a label."""
NEWEST_RANKS: Final = f"(lastgood_rank_info and on (run, attempt) {NEWEST})"
"""The ranks of the newest attempt."""


def nodes(query: str) -> str:
    """Return ``query`` with our own node label, also where a target label has renamed it."""
    return f'label_replace({query}, "node", "$1", "exported_node", "(.+)")'


def ranks(query: str, pick: str = "max") -> str:
    """Return one series per rank, with the labels run, node and rank alone."""
    return f"{pick} by (run, node, rank) ({nodes(query)})"


def added(counter: str, window: str) -> str:
    """Return what ``counter`` has gained within ``window``, from instant values.

    After a reset, and where the series is younger than the window, its value is what was added: the first sample may
    already be 1, which ``increase`` does not see. Not seen: what a process counted after its last scrape. A counter at
    0 has no result: nearly all are, and comparing 65,000 of them takes seconds.
    """
    return f"(({counter} > 0) - ({counter} offset {window} > 0) >= 0 or {counter} > 0)"


def bounded(per_node: str, operator: str, threshold: float, pick: str = "max") -> str:
    """Return ``per_node`` by run and node, or one series with node="several" for a run with too many bad nodes."""
    many = f"(count by (run) ({per_node} {operator} {threshold:g}) > {NAMED_NODES})"
    several = _named_several(f"{pick} by (run) ({per_node}) and on (run) {many}")
    return f"({per_node} unless on (run) {many}) or {several}"


def worst_of_run(per_rank: str) -> str:
    """Return the rank of each run with the highest value, with its GPU and ``worst_node``. For a text only."""
    return _with_gpu(f"topk by (run) (1, {per_rank})", on_nodes=f"topk by (run) (1, {per_rank})")


def worst(per_rank: str, operator: str, threshold: float, on_nodes: str) -> str:
    """Return the worst rank of each node beyond the threshold, with its GPU and ``worst_node``.

    ``per_rank`` has the labels run, node and rank; ``on_nodes`` gives the nodes with such a rank. For a text only: the
    rank may change from one look to the next.
    """
    pick = _pick(operator)
    return _with_gpu(f"{pick} by (run, node) (1, {per_rank} {operator} {threshold:g})", on_nodes)


def named(worst_ranks: str, operator: str) -> str:
    """Return the ranks of :func:`worst` (as recorded), and the worst of each run as node="several"."""
    return f"{worst_ranks} or {_named_several(f'{_pick(operator)} by (run) (1, {worst_ranks})')}"


def _pick(operator: str) -> str:
    return "bottomk" if operator.startswith("<") else "topk"


def _with_gpu(per_rank: str, on_nodes: str) -> str:
    """Return ``per_rank`` with the label gpu_uuid, and its node as worst_node too.

    ``on_nodes``: the nodes that it can be about. The ranks of others are not looked up: 16,384 take a second.
    """
    info = ranks_with_gpu("lastgood_rank_info", f" and on (run, node) ({on_nodes})")
    joined = f"({per_rank}) * on (run, node, rank) group_left (gpu_uuid) topk by (run, node, rank) (1, {info})"
    return f'label_replace({joined}, "worst_node", "$1", "node", "(.*)")'


def ranks_with_gpu(info: str, among: str = "") -> str:
    """Return the ranks in ``info`` (a selection of ``lastgood_rank_info``) by run, node, rank and gpu_uuid."""
    return f"group by (run, node, rank, gpu_uuid) ({nodes(info)}{among})"


def _named_several(query: str) -> str:
    return f'label_replace({query}, "node", "{SEVERAL}", "run", ".*")'


def dcgm(values: str) -> str:
    """Return a metric of dcgm-exporter for the ranks whose GPU it is, by run, node and rank.

    Joined by GPU UUID alone: its host label is called Hostname or hostname, and several of its series can be about one
    GPU. A rank on a slice of a GPU (MIG) has a UUID of its own and is not joined.
    """
    by_gpu = f'max by (gpu_uuid) (label_replace({values}, "gpu_uuid", "$1", "UUID", "(.+)"))'
    return ranks(f"lastgood_rank_info * on (gpu_uuid) group_left () {by_gpu}")


def written_out(query: str, recordings: Mapping[str, str]) -> str:
    """Return ``query`` with each recorded name replaced by what it records, for where nothing records it."""
    for name in sorted(recordings, key=len, reverse=True):
        found = re.compile(rf"{re.escape(name)}(?![\w:])")
        if found.search(query):
            query = found.sub(lambda _, name=name: f"({recordings[name]})", query)  # type: ignore[misc]
            query = written_out(query, recordings)
    return query
