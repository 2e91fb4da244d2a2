"""A real Prometheus scrapes ranks and the ledger, and no finding is lost when the rank that made it dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.real_servers import Prometheus, scraping, start_ledger, wait_for

from lastgood.catalogue import exported
from lastgood.events import DeviceData
from lastgood.journal import JournalWriter, claim_attempt
from lastgood.state import Place
from lastgood.targets import write_targets
from lastgood.topology_files import write_topology

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

RANKS = 10
RUN = "ten-ranks"
PLACES = [Place(rank, f"node-{'abcde'[rank // 2]}", f"cpu-{rank % 2}", rank % 2) for rank in range(RANKS)]

RANK_SCRIPT = Path(__file__).parent / "dying_rank.py"


def start_run(run_dir: Path) -> int:
    """Journal what rank 0 writes when an attempt starts."""
    attempt = claim_attempt(run_dir)
    topology = write_topology(run_dir, attempt, PLACES)
    started = {
        "world_size": RANKS, "topology": topology, "config": {},
        "cadence": {"finite": 1, "conservation": 1, "replica": 50, "replay": 200, "at_rest": 100}, "not_run": {},
        "environment": {"cpu": list(range(RANKS))}, "versions": {}, "seed": 1, "parent": None, "parent_known": True,
        "parent_verified": True, "from_step": 0,
    }  # fmt: skip
    with_rank_0 = JournalWriter(run_dir, RUN, attempt, "start", rank=0, node="node-a")
    with_rank_0.write("run.started", started, step=0)
    with_rank_0.close()
    return attempt


def start_ranks(run_dir: Path, attempt: int, stack: ExitStack) -> list[subprocess.Popen[str]]:
    ranks = []
    for place in PLACES:
        device = json.dumps(DeviceData(rank=place.rank, node=place.node, gpu_uuid=place.gpu_uuid, slot=place.slot))
        command = [sys.executable, str(RANK_SCRIPT), str(run_dir), RUN, str(attempt), device]
        rank = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(rank.kill)
        ranks.append(rank)
    return ranks


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[dict[str, Any]]:
    """Ten live ranks, the ledger, and a Prometheus that has scraped them all."""
    folder = tmp_path_factory.mktemp("cluster")
    run_dir = folder / RUN
    with ExitStack() as stack:
        attempt = start_run(run_dir)
        ranks = start_ranks(run_dir, attempt, stack)
        ports = [int(rank.stdout.readline()) for rank in ranks if rank.stdout]
        write_targets(run_dir, [("127.0.0.1", port) for port in ports])
        ledger = start_ledger(run_dir, stack)
        prometheus = Prometheus(prometheus_program, folder, scraping(run_dir, ledger), stack)
        wait_for(lambda: prometheus.number('count(up{job="ranks"} == 1)') == RANKS)
        wait_for(lambda: prometheus.number('up{job="ledger"}') == 1)
        yield {"prometheus": prometheus, "ranks": ranks, "run_dir": run_dir}


def of_all_ranks(prometheus: Prometheus, selector: str) -> list[dict[str, Any]]:
    """Return these series when all ranks have answered: on a busy machine a scrape of one may time out."""

    def complete() -> list[dict[str, Any]]:
        found = prometheus.query(selector)
        return found if len({series["metric"]["rank"] for series in found}) == RANKS else []

    series: list[dict[str, Any]] = wait_for(complete)
    return series


def test_every_rank_is_scraped_through_targets_json_under_its_own_names(cluster: dict[str, Any]) -> None:
    series = of_all_ranks(cluster["prometheus"], "lastgood_rank_info")
    assert {(s["metric"]["rank"], s["metric"]["node"], s["metric"]["gpu_uuid"]) for s in series} == {
        (str(place.rank), place.node, place.gpu_uuid) for place in PLACES
    }
    assert not [label for s in series for label in s["metric"] if label.startswith("exported_")]


def test_prometheus_holds_exactly_the_rank_series_of_the_catalogue(cluster: dict[str, Any]) -> None:
    series = of_all_ranks(cluster["prometheus"], '{__name__=~"lastgood_.+", job="ranks"}')
    assert len(series) == 36 * RANKS
    assert {s["metric"]["__name__"] for s in series} == {
        name for metric in exported("rank") for name in metric.series_names
    }


def test_every_finding_of_ten_ranks_that_die_at_once_is_there(cluster: dict[str, Any]) -> None:
    prometheus = cluster["prometheus"]
    for rank in cluster["ranks"]:
        rank.stdin.write("find\n")
        rank.stdin.flush()
    assert {rank.wait(20) for rank in cluster["ranks"]} == {1}
    findings = f'max without (job, instance) (lastgood_findings_total{{run="{RUN}", check="at_rest"}})'
    wait_for(lambda: prometheus.number(findings) == RANKS)
    accused = f'max by (rank, node, gpu_uuid) (lastgood_incident_resume_step{{run="{RUN}"}})'
    named = {(s["metric"]["rank"], s["metric"]["node"]) for s in wait_for(lambda: prometheus.query(accused))}
    assert named
    assert named <= {(str(place.rank), place.node) for place in PLACES} | {("unknown", "unknown")}
    wait_for(lambda: prometheus.number('count(up{job="ranks"} == 0)') == RANKS)
    assert wait_for(lambda: prometheus.number(findings)) == RANKS
