"""Trends out of a real Prometheus and a real VictoriaMetrics: every metric, with what real series have and lack.

The series are written as ranks push them: by remote write, with the times of their samples, so that an hour's worth is
there at once, with a NaN, a gap and an end at a known moment.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.real_servers import wait_for
from tests.e2e.test_push import Server, Victoria
from tests.e2e.test_two_sources import recent
from tests.exporter.test_scenarios import gradient

from lastgood import push_wire
from lastgood.state import RunState
from lastgood_console.sources.client import PrometheusClient
from lastgood_console.sources.trend import Trend
from lastgood_console.sources.trends import Trends

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, pytest.mark.timeout(120)]

PUSH_SECONDS = 5
PAST_SECONDS = 1500
SUSPECT = 3
NODES = ("node-a", "node-b", "node-c")
PEERS = [rank for rank in range(6) if rank != SUSPECT]
Value = Callable[[int, int], bytes | None]
"""(rank, seconds before now) -> what a rank says then; None when it says nothing."""

STALLED = {SUSPECT: range(380, 500), 0: range(180, 300)}
"""rank -> when no step of it ends."""
NO_READING = range(670, 700)
"""When the sensors of rank 1 and of the suspect say that they are not a number."""
SILENT = range(600, 1000)
"""When the suspect's temperature is not read: longer than any server bridges."""
GONE = {5: 300, SUSPECT: 100}
"""rank -> since when its temperature has ended, by a stale marker."""


def step_seconds(rank: int) -> float:
    return 2.0 if rank == SUSPECT else 1.0 + rank / 10


def steps_until(rank: int, ago: int) -> int:
    """Return how many steps have ended: one with each push, but while the rank stalls."""
    pushes = range(PAST_SECONDS, ago - 1, -PUSH_SECONDS)
    return sum(at not in STALLED.get(rank, range(0)) for at in pushes)


def power(rank: int, ago: int) -> bytes | None:
    if ago in NO_READING and rank in (SUSPECT, 1):
        return push_wire.number(math.nan)
    return push_wire.number(500.0 + 10 * rank if rank != SUSPECT or ago > 600 else 300.0)


def temperature(rank: int, ago: int) -> bytes | None:
    if rank in GONE and ago <= GONE[rank]:
        return push_wire.STALE if ago == GONE[rank] else None
    if rank == SUSPECT and ago in SILENT:
        return None
    return push_wire.number(60.0 + rank)


METRICS: Mapping[str, tuple[Value, Mapping[str, str]]] = {
    "lastgood_step_duration_seconds_count": (lambda rank, ago: push_wire.number(steps_until(rank, ago)), {}),
    "lastgood_step_duration_seconds_sum": (
        lambda rank, ago: push_wire.number(steps_until(rank, ago) * step_seconds(rank)), {},
    ),
    "lastgood_gpu_power_watts": (power, {}),
    "lastgood_gpu_temperature_celsius": (temperature, {"sensor": "core"}),
}  # fmt: skip


def entries(run: str, now: int) -> Iterator[bytes]:
    for name, (value, labels) in METRICS.items():
        for rank in range(6):
            place = {"run": run, "rank": str(rank), "node": NODES[rank // 2], "job": "lastgood", **labels}
            said = ((value(rank, ago), 1000 * (now - ago)) for ago in range(PAST_SECONDS, -1, -PUSH_SECONDS))
            samples = b"".join(push_wire.sample(one, at) for one, at in said if one is not None)
            yield push_wire.entry(push_wire.series(name, place), samples)


@dataclass(frozen=True)
class Shown:
    """What a console shows of the suspect, by metric; ``now``: the newest moment that was written."""

    trends: Mapping[str, Trend]
    now: int

    def at(self, metric: str, ago: int) -> tuple[float | None, ...]:
        """Return suspect, median, p10 and p90 at the last point that is at least so many seconds old."""
        trend = self.trends[metric]
        index = max(i for i, at in enumerate(trend.times) if at <= self.now - ago)
        return trend.suspect[index], trend.median[index], trend.p10[index], trend.p90[index]


@pytest.fixture(scope="module", params=[Server, Victoria], ids=["prometheus", "victoria-metrics"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    program = request.getfixturevalue("prometheus_program" if request.param is Server else "victoria_program")
    folder: Path = tmp_path_factory.mktemp("trends")
    server: Server = request.param(program, folder)
    run, now = gradient().state(), int(time.time())
    try:
        body = push_wire.packer()(b"".join(entries(run.run, now)))
        asked = urllib.request.Request(server.write_url, body, dict(push_wire.HEADERS))
        urllib.request.urlopen(asked, timeout=30).close()
        wait_for(lambda: all(written(server, name) == 6 for name in METRICS), 30)
        found = wait_for(lambda: trends_of(server, run, now), 30)
        yield Shown({trend.metric: trend for trend in found}, now)
    finally:
        server.process.kill()
        server.process.wait()


def written(server: Server, name: str) -> int:
    """Return of how many ranks all that was written can be read: a server that caches must not be asked before."""
    value = METRICS[name][0]
    said = [value(rank, ago) for rank in range(6) for ago in range(PAST_SECONDS, -1, -PUSH_SECONDS)]
    readable = [one for one in said if one not in (None, push_wire.STALE, push_wire.number(math.nan))]
    found = [[at for at, number in series if not math.isnan(number)] for series in server.raw(name)]
    return len(found) if sum(map(len, found)) == len(readable) else 0


def trends_of(server: Server, run: RunState, now: int) -> tuple[Trend, ...]:
    """Return the trends around an incident that was opened ten minutes ago, once all three are there."""
    state = recent(run, PAST_SECONDS, 600)
    trends = Trends(PrometheusClient(f"http://{server.address}"), lambda: float(now))
    found = trends.of(state, state.incidents[0])
    return found if len(found) == 3 else ()


def about(*values: float) -> object:
    return pytest.approx(values, rel=1e-6)


def of_peers(value: Callable[[int], float], *without: int) -> tuple[float, float, float]:
    """Return median, p10 and p90 of what the peers say, as Prometheus interpolates them."""
    said = sorted(value(rank) for rank in PEERS if rank not in without)
    deciles = statistics.quantiles(said, n=10, method="inclusive")
    return statistics.median(said), deciles[0], deciles[-1]


def no_number(value: float | None) -> bool:
    return value is None or math.isnan(value)


def test_every_metric_that_is_there_is_shown_in_its_unit_and_no_other(shown: Shown) -> None:
    assert {name: trend.unit for name, trend in shown.trends.items()} == {
        "step_seconds": "s", "temperature": "°C", "power": "W",
    }  # fmt: skip
    for trend in shown.trends.values():
        assert trend.rank == SUSPECT
        assert abs(trend.times[-1] - shown.now) < trend.step_seconds
        assert trend.times[0] < shown.now - 1100
        assert len(trend.times) == len(trend.suspect) == len(trend.p90) <= 240


def test_the_step_time_is_that_of_each_rank(shown: Shown) -> None:
    for ago in (50, 700, 1000):
        assert shown.at("step_seconds", ago) == about(2.0, *of_peers(step_seconds))


def test_a_suspect_whose_steps_do_not_end_has_no_step_time_and_its_peers_have_theirs(shown: Shown) -> None:
    suspect, *peers = shown.at("step_seconds", STALLED[SUSPECT].start + 20)
    assert no_number(suspect)
    assert tuple(peers) == about(*of_peers(step_seconds))


def test_a_peer_whose_steps_do_not_end_has_no_place_among_the_peers(shown: Shown) -> None:
    """What it has is 0 / 0: one such rank of thousands must not make a row of them no number."""
    assert shown.at("step_seconds", STALLED[0].start + 20) == about(2.0, *of_peers(step_seconds, 0))


def test_the_power_falls_when_it_fell(shown: Shown) -> None:
    def watts(rank: int) -> float:
        return 500.0 + 10 * rank

    assert shown.at("power", 1000) == about(530.0, *of_peers(watts))
    assert shown.at("power", 500) == about(300.0, *of_peers(watts))


def test_a_reading_that_is_no_number_is_none_of_the_peers(shown: Shown) -> None:
    """Prometheus keeps it, VictoriaMetrics has a gap there."""
    suspect, *peers = shown.at("power", NO_READING.start + 10)
    assert no_number(suspect)
    assert tuple(peers) == about(*of_peers(lambda rank: 500.0 + 10 * rank, 1))


def test_a_gap_is_a_gap_and_not_a_value(shown: Shown) -> None:
    suspect, *peers = shown.at("temperature", SILENT.start + 10)
    assert suspect is None
    assert tuple(peers) == about(*of_peers(lambda rank: 60.0 + rank))
    first = SILENT.start - PUSH_SECONDS
    step = int(shown.trends["temperature"].step_seconds)
    assert shown.at("temperature", first - step)[0] == 63.0  # the first point that is surely after the first reading


def test_a_series_that_has_ended_is_gone_at_once(shown: Shown) -> None:
    step = int(shown.trends["temperature"].step_seconds)
    assert shown.at("temperature", GONE[5] + step) == about(63.0, *of_peers(lambda rank: 60.0 + rank))
    assert shown.at("temperature", GONE[5] - step) == about(63.0, *of_peers(lambda rank: 60.0 + rank, 5))
    suspect, *peers = shown.at("temperature", GONE[SUSPECT] - step)
    assert suspect is None
    assert tuple(peers) == about(*of_peers(lambda rank: 60.0 + rank, 5))


@pytest.mark.parametrize("server", ["prometheus", "victoria-metrics"])
@pytest.mark.usefixtures("prometheus_program", "victoria_program")
def test_the_benchmark_measures_every_metric_also_where_a_fifth_of_the_ranks_stands_for_all(server: str) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "trends.py"
    command = [sys.executable, str(script), "--ranks", "4100", "--rounds", "1", "--server", server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert {one["metric"] for one in report["trends"]} == {"grad_norm_local", "step_seconds", "temperature", "power"}
    assert all(one["points"] > 200 and one["seconds"] > 0 for one in report["trends"])
