"""The endpoint serves while it can, and never stands in the way of the training."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from lastgood.endpoint import Endpoint
from lastgood.rank_metrics import RankMetrics


@pytest.fixture
def metrics(registry: CollectorRegistry) -> RankMetrics:
    return RankMetrics(registry, run="r", rank=0, node="n", local_rank=0, gpu_uuid="cpu-0", attempt=1, version="0")


@pytest.fixture
def endpoint(registry: CollectorRegistry, metrics: RankMetrics) -> Iterator[Endpoint]:
    served = Endpoint(registry, base_port=0)
    yield served
    served.close()


def get(port: int | None, path: str = "/metrics", accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_a_scrape_sees_what_was_last_written(endpoint: Endpoint, metrics: RankMetrics) -> None:
    metrics.step(42, 0.1, None)
    assert 'lastgood_step{node="n",rank="0",run="r"} 42.0' in get(endpoint.port)[0]


def test_it_speaks_openmetrics_when_asked(endpoint: Endpoint) -> None:
    body, content_type = get(endpoint.port, accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")


def test_other_paths_say_where_the_metrics_are(endpoint: Endpoint) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        get(endpoint.port, "/")
    with caught.value as answer:
        assert answer.read() == b"metrics are at /metrics\n"


def test_a_taken_port_gives_the_next_one(registry: CollectorRegistry, endpoint: Endpoint) -> None:
    assert endpoint.port
    second = Endpoint(registry, base_port=endpoint.port)
    try:
        assert endpoint.port < (second.port or 0) < endpoint.port + 20
        assert "lastgood_step" in get(second.port)[0]
    finally:
        second.close()


def test_a_port_taken_on_all_interfaces_is_taken(registry: CollectorRegistry) -> None:
    first = Endpoint(registry, address="", base_port=0)
    assert first.port
    second = Endpoint(registry, address="", base_port=first.port)
    try:
        assert second.port != first.port
        assert get(first.port)[0] == ""
    finally:
        first.close()
        second.close()


def test_without_a_free_port_there_is_one_warning_one_count_and_no_port(
    registry: CollectorRegistry, endpoint: Endpoint, metrics: RankMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="lastgood"):
        failed = Endpoint(registry, base_port=endpoint.port, tries=1, on_error=metrics.error)
    assert failed.port is None
    assert len(caplog.records) == 1
    assert f"no free port from {endpoint.port} to {endpoint.port}" in caplog.text
    labels = {"run": "r", "rank": "0", "node": "n", "part": "delivery"}
    assert registry.get_sample_value("lastgood_exporter_errors_total", labels) == 1
    failed.close()


@pytest.mark.parametrize(
    ("address", "port"),
    [("203.0.113.9", 0), ("no such host", 0), ("127.0.0.1", 70_000), ("\udcff", 0), ("a" * 300, 0), ("a\0b", 0)],
)
def test_an_address_that_cannot_be_had_never_raises(
    registry: CollectorRegistry, address: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert Endpoint(registry, address=address, base_port=port).port is None
    assert "Training goes on" in caplog.text


def test_settings_come_from_the_environment(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    monkeypatch.setenv("LASTGOOD_METRICS_PORT", str(free))
    served = Endpoint(registry)
    served.close()
    assert (served.address, served.port) == ("127.0.0.1", free)


def test_a_port_setting_that_is_no_number_never_raises(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LASTGOOD_METRICS_PORT", "http")
    assert Endpoint(registry).port is None
    assert "'http'" in caplog.text


def test_close_takes_a_fraction_of_a_second_and_frees_the_port(registry: CollectorRegistry) -> None:
    served = Endpoint(registry, base_port=0)
    with socket.create_connection(("127.0.0.1", served.port or 0)):  # a client that never asks
        before = time.monotonic()
        served.close()
        assert time.monotonic() - before < 0.5
    served.close()
    again = Endpoint(registry, base_port=served.port, tries=1)
    assert again.port == served.port
    again.close()


def test_a_scrape_that_takes_long_stops_neither_training_nor_other_scrapes(endpoint: Endpoint) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.port or 0)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert "lastgood_step" in get(endpoint.port)[0]


def test_a_collector_that_fails_is_counted_and_serving_goes_on(registry: CollectorRegistry) -> None:
    errors: list[str] = []
    counted = threading.Event()

    class Broken:
        def collect(self) -> Iterator[object]:
            raise RuntimeError("no device")

    registry.register(Broken())  # type: ignore[arg-type]
    served = Endpoint(registry, base_port=0, on_error=lambda part: (errors.append(part), counted.set()))
    with pytest.raises((urllib.error.URLError, OSError)):
        get(served.port)
    assert counted.wait(2)
    served.close()
    assert errors == ["delivery"]


def test_a_forked_worker_that_outlives_its_rank_does_not_keep_the_port() -> None:
    script = (
        "import os, time\nfrom prometheus_client import CollectorRegistry\nfrom lastgood.endpoint import Endpoint\n"
        "e = Endpoint(CollectorRegistry(), base_port=0)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    time.sleep(20)\n    os._exit(0)\n"
        "print(e.port, pid, flush=True)\nos._exit(1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout
        port, worker = map(int, rank.stdout.readline().split())
        rank.wait(10)
        try:
            time.sleep(0.2)
            with socket.create_server(("127.0.0.1", port)):
                pass
        finally:
            subprocess.run(["kill", str(worker)], check=True)
