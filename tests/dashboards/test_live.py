"""Every panel shows something after a real faulty run, scraped by a real Prometheus.

The demo trains on fake GPUs, so that the sensors' panels have something to show too. What is asked is what Grafana
would ask; how Grafana draws it is not tested here, since there is no Grafana.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
from tests.dashboards.asking import Series, View
from tests.dashboards.lines import most_series
from tests.dashboards.lint import panels
from tests.e2e.real_servers import Prometheus, scraping, start_ledger, wait_for

from lastgood.events import timestamp_of
from lastgood.state import RunState
from lastgood_console.demo.reading import Follower
from lastgood_dashboards import NAMES, dashboard

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, pytest.mark.torchrun, pytest.mark.timeout(600)]

RUN = "faulty-run"
FAULTY_NODE = "node-b"
BOARDS = {name: dashboard(name) for name in NAMES}
PANELS = [(name, panel["id"], panel["title"]) for name in NAMES for panel in panels(BOARDS[name])]


@dataclass(frozen=True)
class Watched:
    """A run that was watched from its start to its end: what a person saw at three moments, and what was journaled.

    ``before``: just before the finding, the accused node still answers. ``during``: the incident is open, as long as
    the restart takes; which ranks answer is left to chance. ``resumed``: the second attempt trains without that node.
    A panel need not show something at all three: the incident has recovered long before the last one.
    """

    before: View
    during: View
    resumed: View
    after: View
    state: RunState

    @property
    def moments(self) -> tuple[View, ...]:
        """Return what was seen at the moments, in their order."""
        return self.before, self.during, self.resumed


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, prometheus_program: str) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    run_dir = folder / "runs" / RUN
    run_dir.parent.mkdir()
    with ExitStack() as stack:
        ledger = start_ledger(run_dir.parent, stack)
        prometheus = Prometheus(prometheus_program, folder, scraping(run_dir, ledger), stack)
        started = time.time()
        demo = [sys.executable, "-m", "lastgood_console.cli", "demo", "--no-console", "--fake-gpu"]
        done = subprocess.run([*demo, "--run-dir", str(run_dir)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(lambda: prometheus.number(f'lastgood_run_active{{run="{RUN}"}} == 0') == 0)
        whole = View(prometheus, started, time.time(), {"run": RUN, "node": FAULTY_NODE})
        state = Follower(run_dir, RUN).poll(1)
        assert state is not None
        before, during, resumed = (_until(whole, expression) for expression in (_ACCUSED, _OPEN, _RESUMED))
        yield Watched(before, during, resumed, whole, state)


_ACCUSED = f'count (lastgood_rank_info{{node="{FAULTY_NODE}"}})'
_OPEN = "count (lastgood_incident_resume_step)"
_RESUMED = 'count (lastgood_rank_info{attempt="2"})'


def _until(view: View, expression: str) -> View:
    """Return the view that ends at the last moment at which ``expression``, a count, was highest.

    On a busy machine a scrape of a rank may time out, so no moment is sure at which all of them answered.
    """
    found = view.over_time(expression)
    assert found, f"Prometheus never saw {expression}"
    most = max(value for _, value in found[0].samples)
    return replace(view, end=[at for at, value in found[0].samples if value == most][-1])


@pytest.mark.parametrize(("name", "number", "title"), PANELS, ids=[f"{name}: {title}" for name, _, title in PANELS])
def test_a_panel_shows_something(watched: Watched, name: str, number: int, title: str) -> None:
    panel = next(panel for panel in panels(BOARDS[name]) if panel["id"] == number)
    answers = [view.panel(BOARDS[name], panel) for view in watched.moments]
    for letter in answers[0]:
        assert any(series.known for answer in answers for series in answer[letter]), letter
    for target in panel["targets"]:
        assert max(len(answer[target["refId"]]) for answer in answers) <= most_series(target["expr"])


@pytest.mark.parametrize("name", NAMES)
def test_the_columns_of_a_table_belong_to_the_same_lines(watched: Watched, name: str) -> None:
    for panel in [panel for panel in panels(BOARDS[name]) if panel["type"] == "table"]:
        for view in watched.moments:
            answers = view.panel(BOARDS[name], panel)
            lines = {_labels(series) for answer in answers.values() for series in answer}
            first = {_labels(series) for series in answers["A"]}
            assert lines == first, panel["title"]


def _labels(series: Series) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(series.labels.items()))


def test_no_name_in_a_legend_is_empty(watched: Watched) -> None:
    for name in NAMES:
        for panel in panels(BOARDS[name]):
            for answer in watched.before.panel(BOARDS[name], panel).values():
                assert all(value for series in answer for value in series.labels.values()), panel["title"]


def test_the_first_number_is_the_step_to_resume_from(watched: Watched) -> None:
    for name in ("run", "checkpoints"):
        (series,) = watched.during.titled(BOARDS[name], "Resume from step")["A"]
        assert series.samples[-1][1] == 50


def test_the_open_incident_names_the_accused_device(watched: Watched) -> None:
    answers = watched.during.titled(BOARDS["fleet"], "Suspects of open incidents")
    resume, start, end, age = (found[0] for found in answers.values())
    incident = watched.state.incidents[0]
    suspect = incident.suspects[0]
    assert (resume.samples[0][1], start.samples[0][1], end.samples[0][1]) == (50, 50, 100)
    assert resume.labels["incident"] == incident.id
    named = tuple(resume.labels[label] for label in ("status", "rank", "node", "gpu_uuid"))
    assert named == ("attributed", str(suspect.rank), suspect.node, suspect.gpu_uuid)
    assert 0 < age.samples[0][1] < watched.during.end - watched.during.start


def test_the_suspect_stands_beside_its_peers_from_before_it_was_named(watched: Watched) -> None:
    suspect = watched.during.titled(BOARDS["run"], "Gradient norm before the averaging")["D"]
    assert [series.labels["rank"] for series in suspect] == ["3"]
    assert suspect[0].samples[0][0] < timestamp_of(watched.state.incidents[0].opened_at)


def _events(view: View, name: str) -> list[tuple[str, int]]:
    """Return the number and the time (ms) of each event that an annotation marks."""
    annotation = next(found for found in BOARDS["run"]["annotations"]["list"] if found["name"] == name)
    found = view.over_time(view.text(BOARDS["run"], annotation["expr"]))
    label = "attempt" if name == "Restarts" else "step"
    return sorted({(series.labels[label], int(value)) for series in found for _, value in series.samples})


def _journaled(events: list[tuple[int, str]]) -> list[tuple[str, int]]:
    return sorted((str(number), int(timestamp_of(at) * 1000)) for number, at in events)


def test_findings_saves_and_restarts_are_marked_when_they_happened(watched: Watched) -> None:
    state, view = watched.state, watched.after
    findings = [(finding.step, finding.at) for finding in state.findings]
    saves = [(checkpoint.step, checkpoint.saved_at) for checkpoint in state.checkpoints]
    attempts = [(attempt.number, attempt.started_at) for attempt in state.attempts]
    assert _close(_events(view, "Findings"), _journaled(findings))
    assert _close(_events(view, "Saves"), _journaled(saves))
    assert _close(_events(view, "Restarts"), _journaled(attempts))


def _close(marked: list[tuple[str, int]], journaled: list[tuple[str, int]]) -> bool:
    """Tell whether the same events are marked, to the millisecond; one that the next scrape missed may be absent."""
    pairs = [(number, at) for number, at in journaled if any(n == number and abs(at - t) <= 1 for n, t in marked)]
    return bool(marked) and len(pairs) == len(marked) and len(journaled) - len(pairs) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_selectors_offer_what_there_is(watched: Watched, name: str) -> None:
    for variable in BOARDS[name]["templating"]["list"]:
        if variable["type"] == "query":
            offered = watched.after.offered(BOARDS[name], variable)
            assert {"run": RUN, "node": FAULTY_NODE}[variable["name"]] in offered
