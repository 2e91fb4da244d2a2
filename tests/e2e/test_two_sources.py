"""One run, two sources: what a metrics server remembers of a run is what its journal says, field by field."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from tests.app.fixtures.run_dirs import written
from tests.e2e.real_servers import Prometheus, free_port, start_ledger, wait_for
from tests.exporter.histories import History
from tests.exporter.test_scenarios import AT_50, REPLAY_OFF, demo, gradient, nan, resume

from lastgood.events import CHECKS, timestamp_of, utc
from lastgood.ledger import Ledger
from lastgood.rank_metrics import RankMetrics
from lastgood.state import NOT_IN_METRICS, Incident, RunState
from lastgood_console.sources.both import RunsFromMetrics
from lastgood_console.sources.client import PrometheusClient
from lastgood_console.sources.trend import Trend
from lastgood_console.sources.trends import Trends

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, pytest.mark.timeout(240)]


# --- the demo's table -------------------------------------------------------------------------------------------------


def reduced(status: str, *accused: int) -> History:
    history = demo().find("conservation", 67, accused, phase="reduce", contained=True)
    scope = "gpu" if accused else "job"
    return history.rule(
        status, ("conservation", 67, "reduce"), accused=accused, scope=scope, resume=AT_50
    ).end(67)  # fmt: skip


def flipped(tensor: str) -> History:
    history = demo().audit(75, check="replica", phase="save", failed=[3])
    history.find("replica", 75, [3], phase="save", tensor=tensor)
    history.rule("attributed", ("replica", 75, "save"), accused=[3], resume=AT_50)
    return history.refuse(75, replica="failed").end(75)


def data() -> History:
    history = demo().find("finite", 67, [0, 1, 2, 3, 4, 5], phase="loss", contained=True)
    history.rule("cleared", ("finite", 67, "loss"), scope="job", action="skip")
    return history.save(75).audit(100).save(100).save(125).audit(150).save(150).end(150, "completed")


def two_nodes() -> History:
    history = demo(75, nodes=("node-a", "node-b")).audit(100, failed=[1, 3]).find("replay", 100, [1, 3])
    return history.rule("undecided", ("replay", 100, "audit"), candidates=[1, 3], resume=AT_50).end(100)


def suspicious() -> History:
    history = demo(not_run=REPLAY_OFF).find("finite", 67, [3], phase="local", contained=True)
    return history.rule("suspicious", ("finite", 67, "local"), action="skip")


ROWS: Mapping[str, Callable[[], History]] = {
    "gradient": lambda: resume(gradient()),
    "gradient-open": gradient,
    "gradient-closed": gradient,
    "nan": lambda: resume(nan()),
    "reduce-all": lambda: resume(reduced("confirmed"), ("node-a", "node-b", "node-c")),
    "reduce-one": lambda: resume(reduced("attributed", 3)),
    "weight": lambda: resume(flipped("blocks.0.mlp.weight")),
    "optimizer": lambda: resume(flipped("blocks.0.mlp.weight/exp_avg")),
    "data": data,
    "two-nodes": two_nodes,
    "suspicious": suspicious,
    "none": lambda: demo(150).end(150, "completed"),
    "running": lambda: demo(75),
}


def history(name: str) -> History:
    """Return the history of a row, as that of a run called like it."""
    found = ROWS[name]()
    events = [replace(e, run=name, source=e.source.replace(found.run, name)) for e in found.events]
    found.run, found.events = name, events
    if name.endswith("closed"):
        found.act("close", incident=found.incident().id, by="mira", text="board replaced")
    return found


# --- what has to be equal ---------------------------------------------------------------------------------------------


def facts(state: RunState) -> dict[str, Any]:
    """Return what both sources know of a run, without its times."""
    attempt, good = state.attempt, state.last_good
    assert attempt is not None
    return {
        "run": state.run,
        "active": state.active,
        "attempt": (attempt.number, attempt.world_size, attempt.from_step, attempt.last_step),
        "checks": [(c.check, c.running, c.interval_steps, c.last_pass_step, c.failures) for c in state.checks],
        "trust": state.trust_counts,
        "last good": (good.attempt, good.step, good.trust),
        "incidents": [of_incident(incident) for incident in state.incidents],
    }


def of_incident(i: Incident) -> dict[str, Any]:
    window, good = i.window, i.resume
    names = ("id", "run", "state", "status", "scope", "nature", "confidence", "check", "attempt", "step", "suspects",
             "recovered_by", "other_nodes")  # fmt: skip
    return {name: getattr(i, name) for name in names} | {
        "checks": [check for check in CHECKS if any(f.check == check for f in i.findings)],
        "window": window and (window.start_attempt, window.start, window.end_attempt, window.end, window.contained),
        "resume": good and (good.attempt, good.step, good.trust),
        "cost": (i.cost.steps, pytest.approx(i.cost.seconds), pytest.approx(i.cost.device_hours), i.cost.rising),
    }


def moments(state: RunState) -> list[float | None]:
    attempt = state.attempt
    assert attempt is not None
    times = [state.first_event_at, state.last_event_at, attempt.started_at]
    times += [at or "" for i in state.incidents for at in (i.opened_at, i.recovered_at, i.closed_at)]
    return [timestamp_of(at) if at else None for at in times]


def assert_equal(told: RunState, known: RunState, scrape_seconds: float) -> None:
    assert facts(told) == facts(known)
    for one, other in zip(moments(told), moments(known), strict=True):
        assert one == (None if other is None else pytest.approx(other, abs=scrape_seconds))
    assert told.origin == "metrics"
    for incident in told.incidents:
        assert incident.reasons_for == incident.reasons_against == (NOT_IN_METRICS,)
        assert incident.resume is None or NOT_IN_METRICS in incident.resume.path


# --- real servers -----------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Runs, the ledger that tells them, and what scrapes it."""

    runs: Path
    ledger: ExitStack
    urls: dict[str, str]
    known: Mapping[str, RunState]

    def told(self, server: str) -> Mapping[str, RunState]:
        """Return what a console with no run directory reads out of a server."""
        asked = RunsFromMetrics(PrometheusClient(self.urls[server]), lambda: ())
        asked.ask()
        assert asked.said().problem == ""
        return asked.said().states


SCRAPES = {"prometheus": 1.0, "prometheus-15s": 15.0, "victoria-metrics": 1.0}


def job(ledger: str, seconds: float) -> str:
    return (
        f"- job_name: ledger\n  honor_labels: true\n  scrape_interval: {seconds:.0f}s\n"
        f"  static_configs: [{{targets: ['{ledger}']}}]\n"
    )


def victoria(program: str, folder: Path, ledger: str, stack: ExitStack) -> str:
    address = f"127.0.0.1:{free_port()}"
    folder.mkdir()
    (folder / "scrape.yml").write_text("scrape_configs:\n" + job(ledger, 1))
    command = [program, f"-storageDataPath={folder / 'data'}", f"-promscrape.config={folder / 'scrape.yml'}"]
    command += [f"-httpListenAddr={address}", "-search.latencyOffset=0s", "-retentionPeriod=1", "-loggerLevel=ERROR"]
    server = stack.enter_context(subprocess.Popen(command))
    stack.callback(server.terminate)
    wait_for(lambda: urllib.request.urlopen(f"http://{address}/health", timeout=2).close() or True)
    return f"http://{address}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str, victoria_program: str) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("sources")
    runs = folder / "runs"
    for name in ROWS:
        written(history(name), runs / name)
    own = Ledger([runs])
    own.refresh()
    with ExitStack() as stack:
        ledger = stack.enter_context(ExitStack())
        address = start_ledger(runs, ledger)
        urls = {}
        for name in ("prometheus", "prometheus-15s"):
            (folder / name).mkdir()
            server = Prometheus(prometheus_program, folder / name, job(address, SCRAPES[name]), stack)
            urls[name] = server.url
        urls["victoria-metrics"] = victoria(victoria_program, folder / "victoria", address, stack)
        world = World(runs, ledger, urls, dict(own.runs()))
        for name in urls:
            wait_for(lambda name=name: len(world.told(name)) == len(ROWS), 60)  # type: ignore[misc]
        yield world


@pytest.mark.parametrize("server", SCRAPES)
@pytest.mark.parametrize("row", ROWS)
def test_a_run_is_the_same_through_either_source(world: World, row: str, server: str) -> None:
    assert_equal(world.told(server)[row], world.known[row], SCRAPES[server])


@pytest.mark.parametrize("server", SCRAPES)
def test_a_run_whose_directory_and_ledger_are_gone_is_still_the_same(world: World, server: str) -> None:
    world.ledger.close()
    shutil.rmtree(world.runs, ignore_errors=True)
    live = "count(lastgood_ledger_last_read_timestamp_seconds)"
    wait_for(lambda: not PrometheusClient(world.urls[server]).query(live).series, 60)
    told = world.told(server)
    assert told.keys() == world.known.keys()
    for row, known in world.known.items():
        assert_equal(told[row], known, SCRAPES[server])


def test_a_restart_is_told_as_it_stands_now_and_not_as_it_stood(tmp_path: Path, prometheus_program: str) -> None:
    runs = tmp_path / "runs"
    written(gradient(), runs / "llama-7b")
    with ExitStack() as stack:
        server = Prometheus(prometheus_program, tmp_path, job(start_ledger(runs, stack), 1), stack)
        asked = RunsFromMetrics(PrometheusClient(server.url), lambda: ())

        def states() -> list[str]:
            asked.ask()
            return [i.state for state in asked.said().states.values() for i in state.incidents]

        wait_for(lambda: states() == ["open"], 30)
        shutil.rmtree(runs / "llama-7b")
        written(resume(gradient()), runs / "llama-7b")
        own = Ledger([runs])
        own.refresh()
        wait_for(lambda: states() == ["recovered"], 30)
        assert_equal(asked.said().states["llama-7b"], own.runs()["llama-7b"], 1.0)


def test_trends_show_the_suspect_beside_its_peers(tmp_path: Path, prometheus_program: str) -> None:
    run = gradient().state()
    ports, nodes = [], ("node-a", "node-b", "node-c")
    with ExitStack() as stack:
        for rank in range(6):
            registry = CollectorRegistry()
            metrics = RankMetrics(registry, run=run.run, rank=rank, node=nodes[rank // 2], local_rank=rank % 2,
                                  gpu_uuid=f"GPU-{rank}", attempt=1, version="0.1.0")  # fmt: skip
            metrics.grad_norm(4.0 if rank == 3 else math.nan if rank == 5 else 1.0 + rank / 10, None)
            port = free_port()
            server, thread = start_http_server(port, "127.0.0.1", registry)
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            ports.append(f"127.0.0.1:{port}")
        jobs = f"- job_name: ranks\n  honor_labels: true\n  static_configs: [{{targets: {ports}}}]\n"
        prometheus = Prometheus(prometheus_program, tmp_path, jobs, stack)
        wait_for(lambda: prometheus.number("count(lastgood_grad_norm{stage='local'})") == 6)
        client = PrometheusClient(prometheus.url)

        expected = pytest.approx([4.0, 1.15, 1.03, 1.34])  # without rank 5, which has a NaN

        def trends() -> list[Trend]:
            """Return the trends, once all ranks have been scraped."""
            state = recent(run)
            found = Trends(client).of(state, state.incidents[0])
            return [t for t in found if [t.suspect[-1], t.median[-1], t.p10[-1], t.p90[-1]] == expected]

        (shown,) = wait_for(trends, 30)
    assert (shown.metric, shown.rank, shown.unit) == ("grad_norm_local", 3, "")
    assert len(shown.times) == len(shown.suspect) == len(shown.p90) <= 240
    assert shown.suspect[0] is None


def recent(state: RunState, started: float = 300, opened: float = 1) -> RunState:
    """Return the run as if it had started, and its incident had been opened, so many seconds ago."""
    now = time.time()
    attempts = tuple(replace(a, started_at=utc(now - started), ended_at=None) for a in state.attempts)
    about = replace(state.incidents[0], opened_at=utc(now - opened))
    return replace(state, attempts=attempts, incidents=(about,), rounds=(), checkpoints=(), findings=())
