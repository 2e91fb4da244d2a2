"""Build the pieces of PromQL that several rules share.

What they must hold under:

- two ledgers on one run export the same series, and a target may be scraped twice: aggregate with ``max by``;
- without ``honor_labels`` a target label ``node`` renames ours to ``exported_node``: :func:`nodes` takes ours back;
- two attempts can overlap: what is about ranks leaves out those of older attempts (:func:`newest`);
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
ATTEMPT_RANKS: Final = "lastgood:attempt_ranks"
"""Ranks that are scraped, by run and attempt."""
SCRAPED: Final = f"group by (run) ({ATTEMPT_RANKS})"
"""Runs of which at least one rank is scraped."""
SINCE_EVENT: Final = "time() - max by (run) (lastgood_run_last_event_timestamp_seconds)"
"""Seconds since the newest event of each run."""
NAMED_GPUS: Final = "lastgood:named_gpus"
"""The GPUs of the ranks that a text may name."""
NEWEST: Final = 'count_values by (run) ("attempt", max by (run) (lastgood_run_attempt))'
"""The newest attempt of each run, as a label."""
OLDER_RANKS: Final = "lastgood:ranks_of_older_attempts"
"""Ranks that are still there of an attempt that is not the newest; none, but while two attempts overlap."""
_SELECTOR: Final = re.compile(r"\b(?:lastgood|DCGM_FI)_\w+(?:\{[^}]*\})?(?:\[\w+\])?")


def nodes(query: str) -> str:
    """Return ``query`` with our own node label, also where a target label has renamed it."""
    return f'label_replace({query}, "node", "$1", "exported_node", "(.+)")'


def ranks(query: str, pick: str = "max") -> str:
    """Return one series per rank, with the labels run, node and rank alone."""
    return f"{pick} by (run, node, rank) ({nodes(query)})"


def newest(query: str) -> str:
    """Return ``query`` without the ranks of older attempts. A run that no ledger knows keeps all its ranks."""
    return f"({query} unless on (job, instance, run, rank) {OLDER_RANKS})"


def outside(per_rank: str, low: str, high: str) -> str:
    """Return what is below ``low`` or above ``high`` of its run.

    Comparing ranks is several times cheaper than arithmetic with them: only what is kept gets labels of its own.
    """
    return f"({per_rank} > on (run) group_left () {high} or {per_rank} < on (run) group_left () {low})"


def bridged(counter: str) -> str:
    """Return ``counter`` as it last was within ten minutes.

    A scrape that fails ends a series at once. Where an hour later nothing stands for that moment, all that was ever
    counted would look new.
    """
    return f"last_over_time({counter}[10m])"


def added(counter: str, window: str) -> str:
    """Return what ``counter`` has gained within ``window``, from instant values.

    After a reset, and where the series is younger than the window, its value is what was added: the first sample may
    already be 1, which ``increase`` does not see. A scrape that failed just then is bridged. Not seen: what a process
    counted after its last scrape. A counter at 0 has no result.
    """
    before = f"last_over_time({counter}[10m] offset {window})"
    return f"(({counter} > 0) - ({before} > 0) >= 0 or {counter} > 0)"


def added_to(positive: str, window: str) -> str:
    """Return what :func:`added` returns, of a counter of which what is above 0 is recorded as ``positive``
    (:func:`bridged`).

    Nearly all counters are at 0, and reading 65,000 of them three times takes seconds. What was counted before the
    recording began is new to it.
    """
    return f"({positive} - {positive} offset {window} >= 0 or {positive})"


def bounded(bad_nodes: str, pick: str = "max") -> str:
    """Return ``bad_nodes`` by run and node, or one series with node="several" for a run with too many of them."""
    many = f"(count by (run) ({bad_nodes}) > {NAMED_NODES})"
    several = _named_several(f"{pick} by (run) ({bad_nodes}) and on (run) {many}")
    return f"({bad_nodes} unless on (run) {many}) or {several}"


def worst(per_rank: str, operator: str) -> str:
    """Return the worst rank of each node. For a text only: the rank may change from one look to the next."""
    return f"{_pick(operator)} by (run, node) (1, {per_rank})"


def named(worst_ranks: str, operator: str) -> str:
    """Return the ranks of :func:`worst` (as recorded) by name, and the worst of each run as node="several"."""
    of_run = with_gpu(f"{_pick(operator)} by (run) (1, {worst_ranks})")
    return f"{with_gpu(worst_ranks)} or {_named_several(of_run)}"


def _pick(operator: str) -> str:
    return "bottomk" if operator.startswith("<") else "topk"


def with_gpu(per_rank: str) -> str:
    """Return ``per_rank``, of ranks that :data:`NAMED_GPUS` has, with the label gpu_uuid and its node as worst_node."""
    joined = f"({per_rank}) * on (run, node, rank) group_left (gpu_uuid) {NAMED_GPUS}"
    return f'label_replace({joined}, "worst_node", "$1", "node", "(.*)")'


def gpus(info: str) -> str:
    """Return one GPU for each rank in ``info`` (a selection of ``lastgood_rank_info``), by run, node and rank."""
    return f"topk by (run, node, rank) (1, group by (run, node, rank, gpu_uuid) ({nodes(info)}))"


def _named_several(query: str) -> str:
    return f'label_replace({query}, "node", "{SEVERAL}", "run", ".*")'


def dcgm(info: str, by_uuid: str) -> str:
    """Return what ``by_uuid`` says of the GPUs of the ranks in ``info``, by run, node and rank.

    Joined by GPU UUID alone: dcgm-exporter's host label is called Hostname or hostname, and several of its series can
    be about one GPU. A rank on a slice of a GPU (MIG) has a UUID of its own and is not joined.
    """
    renamed = f'label_replace({by_uuid}, "gpu_uuid", "$1", "UUID", "(.+)")'
    return ranks(f"{info} * on (gpu_uuid) group_left () max by (gpu_uuid) ({renamed})")


def dcgm_of_few(info: str, values: str) -> str:
    """Return the same at less cost where ``info`` has few ranks and ``values`` all GPUs: renamed on that side."""
    renamed = f'label_replace({info}, "UUID", "$1", "gpu_uuid", "(.+)")'
    return ranks(f"{renamed} * on (UUID) group_left () max by (UUID) ({values})")


def written_out(query: str, recordings: Mapping[str, str]) -> str:
    """Return ``query`` with each recorded name replaced by what it records, for where nothing records it."""
    for name in sorted(recordings, key=len, reverse=True):
        found = re.compile(rf"{re.escape(name)}(?![\w:])( offset \w+)?")
        if found.search(query):
            whole = written_out(recordings[name], recordings)
            query = found.sub(lambda match, whole=whole: f"({_shifted(whole, match[1] or '')})", query)  # type: ignore[misc]
    return query


def _shifted(query: str, offset: str) -> str:
    """Return ``query`` with ``offset`` at each of its selectors: PromQL takes none behind a parenthesis."""
    return _SELECTOR.sub(lambda match: match[0] + offset, query)
