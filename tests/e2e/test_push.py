"""Push to a real Prometheus and a real VictoriaMetrics: the steps' times, the end, a receiver that dies and returns."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.e2e.real_servers import free_port, wait_for

from lastgood.push import Pusher
from lastgood.push_receiver import Receiver
from lastgood.push_wire import packer
from lastgood.rank_metrics import RankMetrics

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]


class Server:
    """A time series database of our own that takes remote write, on a free port; can be killed and started again."""

    ready = "/-/ready"
    death = signal.SIGKILL
    visible_seconds = 0.0  # after it has taken a sample, until a query sees it

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.address = f"127.0.0.1:{free_port()}"
        self.write_url = f"http://{self.address}/api/v1/write"
        self.start()

    def command(self) -> list[str]:
        config = self.folder / "prometheus.yml"
        config.write_text("global: {}\n")
        return [self.program, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address={self.address}", "--web.enable-remote-write-receiver",
                "--log.level=error"]  # fmt: skip

    def start(self) -> None:
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.text(self.ready) is not None)

    def die(self) -> None:
        self.process.send_signal(self.death)
        self.process.wait(30)

    def text(self, path: str, **parameters: str) -> str:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(f"http://{self.address}{path}{query}", timeout=10) as answer:
            return str(answer.read().decode())

    def shows(self, look: Callable[[], Any], expected: object) -> bool:
        """Tell whether ``look`` sees what is expected, as soon as the server shows what it has taken."""
        deadline = time.monotonic() + self.visible_seconds
        while (seen := look()) != expected and time.monotonic() < deadline:
            time.sleep(0.2)
        assert seen == expected
        return True

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.text("/api/v1/query", query=expression))["data"]["result"]
        return found

    def raw(self, name: str) -> list[list[tuple[int, float]]]:
        """Return (Unix milliseconds, value) of every stored sample of each series of this name, oldest first."""
        return [
            [(round(1000 * at), float(value)) for at, value in series["values"]] for series in self.query(f"{name}[1h]")
        ]


class Victoria(Server):
    """VictoriaMetrics keeps its last seconds in memory: it is asked to end, so that what it took is on its disk."""

    ready = "/health"
    death = signal.SIGTERM
    visible_seconds = 10.0

    def command(self) -> list[str]:
        return [self.program, f"-storageDataPath={self.folder / 'data'}", f"-httpListenAddr={self.address}",
                "-search.latencyOffset=0s", "-retentionPeriod=1", "-loggerLevel=ERROR"]  # fmt: skip

    def query(self, expression: str) -> list[dict[str, Any]]:
        self.text("/internal/force_flush")
        return super().query(expression)

    def raw(self, name: str) -> list[list[tuple[int, float]]]:
        self.text("/internal/force_flush")
        lines = self.text("/api/v1/export", **{"match[]": name}).splitlines()
        series = [json.loads(line) for line in lines]
        return [
            [(at, value) for at, value in zip(one["timestamps"], one["values"], strict=True) if value is not None]
            for one in series
        ]


@pytest.fixture(params=[Server, Victoria], ids=["prometheus", "victoria-metrics"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    program = request.getfixturevalue("prometheus_program" if request.param is Server else "victoria_program")
    running: Server = request.param(program, tmp_path)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture
def prometheus(tmp_path: Path, prometheus_program: str) -> Iterator[Server]:
    running = Server(prometheus_program, tmp_path)
    yield running
    running.process.kill()
    running.process.wait()


class Rank:
    """A rank that pushes every step. ``stamps``: step -> the time at which it ended, Unix milliseconds."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time, **settings: Any) -> None:
        self.registry = CollectorRegistry()
        self.metrics = RankMetrics(
            self.registry, run="r", rank=3, node="node-b", local_rank=1, gpu_uuid="cpu-1", attempt=1, version="0",
            clock=clock,
        )  # fmt: skip
        self.pusher = Pusher(
            Receiver(url), self.metrics, packer(), instance="node-b:3", interval=0, on_error=self.metrics.error,
            clock=clock, **settings,
        )  # fmt: skip
        self.stamps: dict[int, int] = {}

    def train(self, steps: range) -> None:
        for step in steps:
            time.sleep(0.02)
            self.metrics.step(step, 0.02, None)
            self.pusher.step()
            self.stamps[step] = round(1000 * self.metrics.freeze().step_ended_at)

    def errors(self) -> float | None:
        labels = {"run": "r", "rank": "3", "node": "node-b", "part": "delivery"}
        return self.registry.get_sample_value("lastgood_exporter_errors_total", labels)


def test_every_sample_has_its_steps_time_and_at_the_end_every_series_is_gone_at_once(server: Server) -> None:
    rank = Rank(server.write_url)
    rank.train(range(1, 21))
    wait_for(lambda: rank.pusher.sent == 20 * len(rank.metrics.freeze()))
    labels = {"job": "lastgood", "instance": "node-b:3", "run": "r", "rank": "3", "node": "node-b"}
    [now] = wait_for(lambda: server.query("lastgood_step"))
    assert now["metric"] == {"__name__": "lastgood_step"} | labels
    steps = [[(at, float(step)) for step, at in rank.stamps.items()]]
    assert server.shows(lambda: server.raw("lastgood_step"), steps)
    [stamped] = server.raw("lastgood_step_timestamp_seconds")
    assert [at for at, _ in stamped] == [round(1000 * value) for _, value in stamped]
    rank.pusher.close()
    assert server.shows(lambda: server.query('{job="lastgood"}'), [])
    assert server.raw("lastgood_step") == steps
    assert rank.pusher.lost == 0


def test_a_receiver_that_dies_and_comes_back_has_every_step(server: Server) -> None:
    rank = Rank(server.write_url)
    rank.train(range(1, 11))
    wait_for(lambda: rank.pusher.sent == 10 * len(rank.metrics.freeze()))
    server.die()
    rank.train(range(11, 61))
    server.start()
    rank.train(range(61, 71))
    wait_for(lambda: rank.pusher.sent == 70 * len(rank.metrics.freeze()))
    assert server.shows(lambda: server.raw("lastgood_step"), [[(at, float(step)) for step, at in rank.stamps.items()]])
    assert (rank.pusher.lost, rank.errors()) == (0, 0)
    rank.pusher.close()


def test_what_the_buffer_could_not_hold_is_missing_and_counted(server: Server) -> None:
    rank = Rank(server.write_url, buffer=20)
    rank.train(range(1, 11))
    wait_for(lambda: rank.pusher.sent == 10 * len(rank.metrics.freeze()))
    server.die()
    rank.train(range(11, 61))
    server.start()
    wait_for(lambda: rank.pusher.sent + rank.pusher.lost == 60 * len(rank.metrics.freeze()))
    kept = [*range(1, 12), *range(41, 61)]  # step 11 was in hand, 41 to 60 in the buffer
    assert server.shows(lambda: [value for _, value in server.raw("lastgood_step")[0]], kept)
    assert (rank.errors(), rank.pusher.lost) == (29, 29 * len(rank.metrics.freeze()))
    rank.pusher.close()


def test_samples_that_are_older_than_what_prometheus_has_are_given_up_at_once(
    prometheus: Server, caplog: pytest.LogCaptureFixture
) -> None:
    newer = Rank(prometheus.write_url)
    newer.train(range(1, 3))
    wait_for(lambda: newer.pusher.sent == 2 * len(newer.metrics.freeze()))
    older = Rank(prometheus.write_url, clock=lambda: time.time() - 60)
    older.train(range(1, 4))
    wait_for(lambda: older.pusher.lost == 3 * len(older.metrics.freeze()))
    assert older.errors() == 3
    assert [record.getMessage().count("it answered 400 ") for record in caplog.records] == [1]
    newer.train(range(3, 5))
    wait_for(lambda: newer.pusher.sent == 4 * len(newer.metrics.freeze()))
    assert [value for _, value in prometheus.raw("lastgood_step")[0]] == [1, 2, 3, 4]
    for rank in (older, newer):
        rank.pusher.close()


@pytest.mark.torchrun
def test_the_demo_pushes_what_its_ranks_saw_and_ends_their_series(prometheus: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lastgood_console.cli", "demo", "--no-console", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([*command, "--push", prometheus.write_url], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"Pushed ([\d,]+) samples to (\S+); none was lost\.", done.stdout)
    assert said
    assert said[2] == prometheus.write_url
    stored = sum(map(len, prometheus.raw('{job="lastgood"}')))
    assert int(said[1].replace(",", "")) == stored
    assert prometheus.query('{job="lastgood"}') == []
    failed = prometheus.query('last_over_time(lastgood_check_failures_total{check="replay"}[10m]) > 0')
    assert [series["metric"]["instance"] for series in failed] == ["node-b:3"]
    for series in prometheus.raw("lastgood_step_timestamp_seconds"):
        ages = [at - round(1000 * value) for at, value in series]
        assert all(age == 0 or age > 29_000 for age in ages), ages  # older: said again while a first step took long
