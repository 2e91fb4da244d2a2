"""A real Prometheus finds the ranks by HTTP and by file: they appear, move with a new attempt, and disappear."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from tests.app.console_server import Console
from tests.e2e.real_servers import Prometheus, get_json, wait_for
from tests.exporter.histories import History

from lastgood.targets import withdraw_targets, write_targets

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

RUN = "moving-run"
JOBS = ("by-http", "by-file")


class Cluster:
    """A console, a Prometheus that discovers by both ways each second, and a run that grows."""

    def __init__(self, folder: Path, program: str, stack: ExitStack) -> None:
        self.runs, self.history = folder / "runs", History(run=RUN, now=time.time())
        self.runs.mkdir()
        self.console = stack.enter_context(Console(self.runs))
        self.prometheus = Prometheus(program, folder, self._jobs(), stack)

    def _jobs(self) -> str:
        return (
            "- job_name: by-http\n"
            "  honor_labels: true\n"
            f"  http_sd_configs: [{{url: '{self.console.address}/api/sd', refresh_interval: 1s}}]\n"
            "  relabel_configs:\n"
            f"  - {{source_labels: [__meta_lastgood_run], regex: {RUN}, action: keep}}\n"
            "- job_name: by-file\n"
            "  honor_labels: true\n"
            f"  file_sd_configs: [{{files: ['{self.runs / RUN}/targets.json'], refresh_interval: 1s}}]\n"
        )

    def begin_attempt(self, port: int) -> bytes:
        """Start the run's next attempt with one rank, at a port."""
        self.history.start()
        self._write()
        return write_targets(self.runs / RUN, [("127.0.0.1", port)]).read_bytes()

    def end(self, written: bytes) -> None:
        """End the run, as rank 0 does."""
        self.history.end(100, "completed")
        self._write()
        withdraw_targets(self.runs / RUN, written)

    def _write(self) -> None:
        event = self.history.events[-1]
        folder = self.runs / RUN / "journal" / f"{event.attempt:06}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "rank-0.jsonl").open("a") as journal:
            journal.write(event.to_line() + "\n")

    def targets(self, job: str) -> dict[str, str]:
        """Return address -> health of a job's targets."""
        found = self.prometheus.get("targets", state="active")["activeTargets"]
        return {t["discoveredLabels"]["__address__"]: t["health"] for t in found if t["labels"]["job"] == job}

    def labels(self) -> set[str]:
        """Return the labels of the rank's series."""
        return {label for series in self.prometheus.query("lastgood_step") for label in series["metric"]}


@pytest.fixture
def rank_ports() -> Iterator[list[int]]:
    """Serve two ranks' metrics, each as an exporter does."""
    servers = []
    for rank in range(2):
        registry = CollectorRegistry()
        gauge = Gauge("lastgood_step", "Step.", ["run", "rank", "node"], registry=registry)
        gauge.labels(RUN, str(rank), "node-a").set(7)
        servers.append(start_http_server(0, "127.0.0.1", registry))
    yield [server.server_port for server, _ in servers]
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def test_targets_appear_move_with_a_new_attempt_and_disappear(
    tmp_path: Path, prometheus_program: str, rank_ports: list[int]
) -> None:
    first, second = (f"127.0.0.1:{port}" for port in rank_ports)
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, prometheus_program, stack)
        assert get_json(f"{cluster.console.address}/api/sd") == []
        assert [cluster.targets(job) for job in JOBS] == [{}, {}]
        cluster.begin_attempt(rank_ports[0])
        for job in JOBS:
            wait_for(lambda job=job: cluster.targets(job) == {first: "up"})
        assert wait_for(cluster.labels) == {"__name__", "instance", "job", "run", "rank", "node"}
        written = cluster.begin_attempt(rank_ports[1])
        for job in JOBS:
            wait_for(lambda job=job: cluster.targets(job) == {second: "up"})
        cluster.end(written)
        for job in JOBS:
            wait_for(lambda job=job: cluster.targets(job) == {})
        assert get_json(f"{cluster.console.address}/api/sd") == []
