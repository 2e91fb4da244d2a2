"""A real Prometheus scrapes ranks and the ledger, and no finding is lost when the rank that made it dies."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.real_servers import free_port, wait_for

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


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


class Prometheus:
    """A Prometheus server of our own, on a free port of this machine."""

    def __init__(self, program: str, config: Path, stack: ExitStack) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={config.parent / 'tsdb'}",
                   f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=error"]  # fmt: skip
        server = stack.enter_context(subprocess.Popen(command))
        stack.callback(server.terminate)
        wait_for(lambda: urllib.request.urlopen(f"{self.url}/-/ready", timeout=2).close() or True)

    def query(self, expression: str) -> list[dict[str, Any]]:
        text = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = get_json(f"{self.url}/api/v1/query?{text}")["data"]["result"]
        return found

    def number(self, expression: str) -> float | None:
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None


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


def start_ledger(run_dir: Path, stack: ExitStack) -> str:
    port = str(free_port())
    command = [sys.executable, "-m", "lastgood.serve", str(run_dir), "--port", port]
    ledger = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    stack.callback(ledger.terminate)
    wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2).close() or True)
    return f"127.0.0.1:{port}"


def config(folder: Path, run_dir: Path, ledger: str) -> Path:
    """Write a configuration as the documentation shows it, but for the scrape interval of one second."""
    path = folder / "prometheus.yml"
    path.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        "- job_name: ranks\n"
        "  honor_labels: true\n"
        f"  file_sd_configs: [{{files: ['{run_dir / 'targets.json'}'], refresh_interval: 1s}}]\n"
        "- job_name: ledger\n"
        "  honor_labels: true\n"
        f"  static_configs: [{{targets: ['{ledger}']}}]\n"
    )
    return path


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
        prometheus = Prometheus(prometheus_program, config(folder, run_dir, ledger), stack)
        wait_for(lambda: prometheus.number('count(up{job="ranks"} == 1)') == RANKS)
        wait_for(lambda: prometheus.number('up{job="ledger"}') == 1)
        yield {"prometheus": prometheus, "ranks": ranks, "run_dir": run_dir}


def test_every_rank_is_scraped_through_targets_json_under_its_own_names(cluster: dict[str, Any]) -> None:
    series = wait_for(lambda: cluster["prometheus"].query("lastgood_rank_info"))
    assert {(s["metric"]["rank"], s["metric"]["node"], s["metric"]["gpu_uuid"]) for s in series} == {
        (str(place.rank), place.node, place.gpu_uuid) for place in PLACES
    }
    assert not [label for s in series for label in s["metric"] if label.startswith("exported_")]


def test_prometheus_holds_exactly_the_rank_series_of_the_catalogue(cluster: dict[str, Any]) -> None:
    prometheus = cluster["prometheus"]
    assert prometheus.number('count({__name__=~"lastgood_.+", job="ranks"})') == 36 * RANKS
    names = {s["metric"]["__name__"] for s in prometheus.query('{__name__=~"lastgood_.+", job="ranks"}')}
    assert names == {name for metric in exported("rank") for name in metric.series_names}


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
    assert prometheus.number(findings) == RANKS
