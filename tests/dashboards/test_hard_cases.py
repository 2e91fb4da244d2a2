"""Panels say the right thing where series come twice, overlap, are not numbers, or look alike.

Two ledgers export the same runs; attempt 1 still answers while attempt 2 trains; a rank's process was replaced behind
the same address by one on another GPU; a norm is not a number; two runs differ by a dot.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.dashboards.asking import Series, View
from tests.dashboards.lint import panels
from tests.e2e.real_servers import Prometheus, wait_for

from lastgood_dashboards import NAMES, dashboard

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

BOARDS = {name: dashboard(name) for name in NAMES}
SUSPECT = 'incident="r-1",check="replay",status="attributed",scope="gpu"'

LEDGER = """
lastgood_run_active{run="a.b"} 1
lastgood_run_active{run="axb"} 1
lastgood_run_attempt{run="a.b"} 2
lastgood_run_world_size{run="a.b"} 3
lastgood_run_step{run="a.b"} 120
lastgood_run_step{run="axb"} 9
lastgood_last_good_step{run="a.b"} -1
lastgood_last_good_step{run="axb"} 7
lastgood_check_due_step{run="a.b",check="replay"} 100
lastgood_check_due_step{run="a.b",check="replica"} 150
lastgood_check_due_step{run="axb",check="replay"} 100
lastgood_incidents{run="a.b",status="open"} 1
lastgood_incidents{run="axb",status="open"} 5
lastgood_incident_resume_step{run="a.b",%(suspect)s,rank="0",node="node-b",gpu_uuid="GPU-new"} -1
lastgood_incident_resume_step{run="a.b",%(suspect)s,rank="1",node="node-b",gpu_uuid="GPU-1"} -1
lastgood_incident_window_start_step{run="a.b",incident="r-1"} 50
lastgood_incident_window_end_step{run="a.b",incident="r-1"} 100
lastgood_incident_start_timestamp_seconds{run="a.b",incident="r-1"} 1
lastgood_checkpoints{run="a.b",trust="suspect"} 2
lastgood_checkpoints{run="a.b",trust="missing"} 1
lastgood_checkpoints{run="a.b",trust="unreadable"} 1
lastgood_checkpoint_failed_saves{run="a.b"} 3
lastgood_checkpoint_failures_total{run="a.b"} 4
lastgood_checkpoint_last_trusted_step{run="a.b"} -1
lastgood_checkpoint_saves_total{run="a.b"} 0
lastgood_restarts_recent{run="a.b",window="24h"} 1
lastgood_restarts_total{run="a.b",reason="lost"} 1
lastgood_node_accusations{node="node-b",gpu_uuid="GPU-1",window="7d"} 2
lastgood_node_accusations{node="node-b",gpu_uuid="GPU-1",window="90d"} 3
lastgood_node_accusations{node="node-gone",gpu_uuid="GPU-9",window="90d"} 1
""" % {"suspect": SUSPECT}  # noqa: UP031 - braces are everywhere


def rank(number: int, node: str, gpu: str, attempt: int, norm: str) -> str:
    """Return what one rank serves."""
    who = f'run="a.b",rank="{number}",node="{node}"'
    return f"""
lastgood_rank_info{{{who},local_rank="0",gpu_uuid="{gpu}",pci_bus_id="unknown",attempt="{attempt}",version="1"}} 1
lastgood_step_timestamp_seconds{{{who}}} 1
lastgood_step_deadline_timestamp_seconds{{{who}}} +Inf
lastgood_grad_norm{{{who},stage="local"}} {norm}
lastgood_grad_norm{{{who},stage="reduced"}} {norm}
lastgood_gpu_power_watts{{{who}}} 300
lastgood_gpu_ecc_uncorrected_total{{{who}}} 1
lastgood_exporter_errors_total{{{who},part="journal"}} 1
"""


REPLACED = rank(0, "node-b", "GPU-old", 1, "1.5") + rank(0, "node-b", "GPU-new", 2, "1.5").splitlines()[1] + "\n"
RANKS = {
    "attempt 1, rank 0": rank(0, "node-a", "GPU-0", 1, "1"),
    "replaced behind its address": REPLACED,
    "not a number": rank(1, "node-b", "GPU-1", 2, "NaN"),
    "healthy": rank(2, "node-c", "GPU-2", 2, "1"),
}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[View]:
    folder = tmp_path_factory.mktemp("hard")
    with ExitStack() as stack:
        targets = [_serve(text, stack) for text in (LEDGER, LEDGER, *RANKS.values())]
        jobs = f"- {{job_name: all, honor_labels: true, static_configs: [{{targets: {targets}}}]}}\n"
        prometheus = Prometheus(prometheus_program, folder, jobs, stack)
        wait_for(lambda: prometheus.number("count (up == 1)") == len(targets))
        started = time.time()
        wait_for(lambda: prometheus.number("min (sum_over_time(up[3s]))") == 3 and time.time() > started + 3)
        yield View(prometheus, started, time.time(), {"run": "a.b", "node": "node-b"})


def _serve(text: str, stack: ExitStack) -> str:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            pass

    server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Page))
    stack.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_address[1]}"


def answers(view: View, name: str, title: str) -> dict[str, list[Series]]:
    return view.titled(BOARDS[name], title)


def number(view: View, name: str, title: str, letter: str = "A") -> float:
    (series,) = answers(view, name, title)[letter]
    return series.samples[-1][1]


def by_label(series: list[Series], label: str) -> Mapping[str, float]:
    found = {one.labels[label]: one.samples[-1][1] for one in series}
    assert len(found) == len(series)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_query_fails_and_none_draws_what_is_not_a_number(view: View, name: str) -> None:
    for panel in panels(BOARDS[name]):
        for letter, found in view.panel(BOARDS[name], panel).items():
            values = [value for series in found for _, value in series.samples]
            assert all(math.isfinite(value) for value in values), (panel["title"], letter)


def test_two_ledgers_count_once(view: View) -> None:
    assert number(view, "fleet", "Open incidents") == 6
    assert number(view, "fleet", "Checkpoints not to use") == 2
    assert number(view, "fleet", "Restarts in 24 h") == 1
    assert number(view, "fleet", "Checks overdue") == 1
    assert by_label(answers(view, "fleet", "Runs with an overdue check")["A"], "check") == {"replay": 1, "replica": 0}
    assert number(view, "fleet", "Checkpoints by trust", "E") == 2
    assert number(view, "node", "Accusations in 90 days") == 3


def test_a_dot_in_a_name_matches_only_a_dot(view: View) -> None:
    assert number(view, "run", "Open incidents") == 1
    assert number(view, "checkpoints", "Newest trusted checkpoint") == -1
    assert number(view, "run", "Resume from step") == -1


def test_without_a_trusted_checkpoint_no_step_is_counted_as_at_risk(view: View) -> None:
    assert answers(view, "checkpoints", "Steps at risk")["A"] == []
    assert answers(view, "checkpoints", "Time of a save")["B"] == []
    assert number(view, "checkpoints", "Saves failed in a row") == 3


def test_each_suspect_of_an_incident_has_a_line_with_its_window(view: View) -> None:
    found = answers(view, "run", "Suspects of open incidents")
    assert [by_label(found[letter], "rank") for letter in "ABC"] == [
        {"0": -1, "1": -1}, {"0": 50, "1": 50}, {"0": 100, "1": 100},
    ]  # fmt: skip


def test_overlapping_attempts_are_told_apart_and_counted_once(view: View) -> None:
    assert number(view, "run", "Ranks that Prometheus sees", "B") == 3
    assert number(view, "run", "Gradient norm before the averaging", "B") == 1
    furthest = answers(view, "run", "The 20 ranks furthest from the median")["A"]
    assert {(one.labels["rank"], one.labels["node"]): one.samples[-1][1] for one in furthest} == {
        ("0", "node-a"): 0, ("0", "node-b"): 0.5, ("2", "node-c"): 0,
    }  # fmt: skip
    gpus = {one.labels["node"]: one.labels["gpu_uuid"] for one in furthest}
    assert gpus["node-a"] == "GPU-0"
    assert gpus["node-b"] in ("GPU-old", "GPU-new")


def test_a_replaced_process_is_one_line_and_fails_no_other(view: View) -> None:
    power = answers(view, "node", "Power")["A"]
    assert sorted(one.labels["rank"] for one in power) == ["0", "1"]
    assert {one.labels["gpu_uuid"] for one in power} <= {"GPU-old", "GPU-new", "GPU-1"}
    suspects = answers(view, "run", "Gradient norm before the averaging")["D"]
    assert [(one.labels["rank"], one.labels["node"]) for one in suspects] == [("0", "node-b")]


def test_ranks_are_counted_by_their_ratio_to_the_median(view: View) -> None:
    rows = by_label(answers(view, "run", "Ranks by norm over the median")["A"], "ratio")
    assert rows == {"1": 2, "1.5": 1}


def test_a_node_without_ranks_can_be_chosen_when_it_was_accused(view: View) -> None:
    variable = next(found for found in BOARDS["node"]["templating"]["list"] if found["name"] == "node")
    assert set(view.offered(BOARDS["node"], variable)) == {"node-a", "node-b", "node-c", "node-gone"}


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[View]:
    """Return a view where no scrape honours our labels, and every target has a label ``node`` of its own.

    As Kubernetes does: that of a rank is its own node, that of the ledger is where the console runs.
    """
    folder = tmp_path_factory.mktemp("renamed")
    hosts = {"ledger-host": LEDGER, "node-b": rank(1, "node-b", "GPU-1", 2, "2"), "node-c": RANKS["healthy"]}
    with ExitStack() as stack:
        targets = [f"{{targets: [{_serve(text, stack)}], labels: {{node: {host}}}}}" for host, text in hosts.items()]
        prometheus = Prometheus(
            prometheus_program, folder, f"- {{job_name: all, static_configs: [{', '.join(targets)}]}}\n", stack
        )
        wait_for(lambda: prometheus.number("count (up == 1)") == len(targets))
        started = time.time()
        wait_for(lambda: prometheus.number("min (sum_over_time(up[3s]))") == 3 and time.time() > started + 3)
        assert prometheus.number('count (lastgood_node_accusations{node="ledger-host",exported_node="node-b"})')
        yield View(prometheus, started, time.time(), {"run": "a.b", "node": "node-b"})


def test_a_target_label_accuses_no_host_of_a_ledger(renamed: View) -> None:
    for letter in "ABCD":
        suspects = answers(renamed, "run", "Suspects of open incidents")[letter]
        assert {one.labels["node"] for one in suspects} == {"node-b"}
    assert number(renamed, "node", "Accusations in 7 days") == 2
    assert number(renamed, "node", "Accusations in 90 days") == 3
    accused = next(
        panel for panel in panels(BOARDS["fleet"]) if "accus" in panel["title"].lower() and panel["type"] == "table"
    )
    found = renamed.panel(BOARDS["fleet"], accused)["A"]
    assert {one.labels["node"] for one in found} == {"node-b", "node-gone"}


def test_a_suspect_is_found_among_ranks_whose_label_was_renamed(renamed: View) -> None:
    suspects = answers(renamed, "run", "Gradient norm before the averaging")["D"]
    assert [(one.labels["rank"], one.labels["node"]) for one in suspects] == [("1", "node-b")]
