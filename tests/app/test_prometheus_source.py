"""A metrics server as a source of runs: what is ours among its series, beside the journals, and what pages say then."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.app.metrics_server import Metrics, series_of, slowly, told
from tests.app.pages import NOW, markup, open_page, shown
from tests.app.test_store import FakeLedger
from tests.conftest import Clock
from tests.e2e.real_servers import free_port, wait_for
from tests.exporter.test_scenarios import demo, gradient, resume

from lastgood.state import NOT_IN_METRICS
from lastgood_console.actions import ActionError
from lastgood_console.desk import Desk, Saying, Visitor
from lastgood_console.export.document import dumps, loads, to_document
from lastgood_console.export.formats import FORMATS, render
from lastgood_console.people_journal import PeopleJournal
from lastgood_console.sources.both import RunsFromMetrics, joined, pause_seconds
from lastgood_console.sources.client import PrometheusClient, Series
from lastgood_console.sources.ledger_series import by_run
from lastgood_console.sources.runs_from_metrics import run_state
from lastgood_console.store import Store, current

# --- what is ours among the series ------------------------------------------------------------------------------------


def test_series_of_another_product_are_no_run() -> None:
    others = [
        Series({"__name__": "lastgood_run_active", "run": "x", "job": "other"}, ((NOW, 1.0),)),
        Series({"__name__": "lastgood_incident_info", "run": "x", "incident": "r-1", "check": "moon"}, ((NOW, 1.0),)),
        Series({"__name__": "lastgood_step", "run": "x", "rank": "0", "node": "a"}, ((NOW, 1.0),)),
        Series({"__name__": "lastgood_ledger_last_read_timestamp_seconds", "run": "../x"}, ((NOW, NOW),)),
        Series({"__name__": "lastgood_ledger_last_read_timestamp_seconds", "run": "x"}, ((NOW, float("nan")),)),
        Series({}, ()),
    ]
    assert by_run(others) == {}
    assert by_run([*others, *series_of(gradient().state())]).keys() == {"llama-7b"}


def test_of_two_ledgers_the_one_that_read_last_is_believed_whole() -> None:
    old = series_of(gradient().state(), read_at=NOW - 60, instance="a:8490")
    new = series_of(resume(gradient()).state(), read_at=NOW, instance="b:8490")
    for both in ((*old, *new), (*new, *old)):
        state = run_state(by_run(both)["llama-7b"])
        assert [i.state for i in state.incidents] == ["recovered"]
        assert state.trust_counts == resume(gradient()).state().trust_counts


def test_a_node_that_a_target_label_renamed_is_ours_again() -> None:
    renamed = []
    for series in series_of(gradient().state()):
        labels = dict(series.labels)
        if "node" in labels:
            labels["exported_node"] = labels.pop("node")
        renamed.append(Series(labels | {"node": "scrape-host"}, series.samples))
    (incident,) = run_state(by_run(renamed)["llama-7b"]).incidents
    assert [s.node for s in incident.suspects] == ["node-b"]


@pytest.mark.parametrize("missing", ["incident_finding_step", "incident_timestamp_seconds", "incident_finding_attempt"])
def test_an_incident_that_is_told_by_half_is_named_and_not_guessed(missing: str) -> None:
    left = [s for s in series_of(gradient().state()) if s.labels["__name__"] != f"lastgood_{missing}"]
    state = run_state(by_run(left)["llama-7b"])
    assert state.incidents == ()
    assert [u.reason for u in state.unreadable] == [
        f"incident {gradient().incident().id}: some of its series are missing"
    ]


SCRAPED = series_of(resume(gradient()).state())
WRONG = st.floats() | st.sampled_from([0.0, -1.0, 0.5, 1e10, 1e18, 1e300])


@settings(max_examples=60)
@given(st.dictionaries(st.integers(0, len(SCRAPED) - 1), WRONG, max_size=12))
def test_whatever_the_values_are_a_whole_document_comes_out(wrong: dict[int, float]) -> None:
    found = [replace(s, samples=((NOW, wrong.get(i, s.samples[0][1])),)) for i, s in enumerate(SCRAPED)]
    for told_by in by_run(found).values():
        state = run_state(told_by)
        for incident in state.incidents:
            loads(dumps(to_document(state, incident)))


# --- both sources -----------------------------------------------------------------------------------------------------


def test_the_journal_wins_and_alerts_alone_are_no_journal() -> None:
    own, remembered = gradient().state(), told(resume(gradient()).state())
    assert joined({"llama-7b": own}, {"llama-7b": remembered, "gone": remembered}) == {
        "gone": remembered, "llama-7b": own,
    }  # fmt: skip
    alerts_alone = replace(own, attempts=(), annotations=own.injections)
    assert joined({"llama-7b": alerts_alone}, {"llama-7b": remembered})["llama-7b"].origin == "metrics"


def vector(found: tuple[Series, ...]) -> dict[str, Any]:
    result = [{"metric": s.labels, "value": [s.samples[0][0], str(s.samples[0][1])]} for s in found]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_what_was_known_stays_while_the_server_is_away_and_its_trouble_has_an_age(
    metrics: Metrics, clock: Clock
) -> None:
    metrics.says(vector(series_of(gradient().state())))
    runs = RunsFromMetrics(PrometheusClient(metrics.url), lambda: (), clock)
    runs.ask()
    assert (list(runs.said().states), runs.said().problem) == (["llama-7b"], "")
    metrics.says(b"", 401)
    began = clock.now
    for _ in range(3):
        runs.ask()
        clock.advance(15)
    assert list(runs.said().states) == ["llama-7b"]
    assert (runs.said().since, "refuses us" in runs.said().problem) == (began, True)
    metrics.says(vector(series_of(gradient().state())))
    runs.ask()
    assert (runs.said().problem, runs.said().since) == ("", None)


def test_a_server_that_fails_is_asked_again_soon_and_then_less_and_less_often() -> None:
    assert [pause_seconds(failures, 15.0) for failures in range(7)] == [15, 1, 2, 4, 8, 15, 15]
    assert pause_seconds(10_000, 15.0) == 15
    assert pause_seconds(3, 0.5) == 0.5


def test_a_server_that_comes_up_late_is_waited_for_and_found_soon() -> None:
    port = free_port()
    runs = RunsFromMetrics(PrometheusClient(f"http://127.0.0.1:{port}"), lambda: ())
    runs.start()
    wait_for(lambda: runs.said().problem, 5)
    assert runs.said().problem == f"waiting for http://127.0.0.1:{port}, which does not answer yet"
    assert runs.said().since is None
    time.sleep(2)
    server = Metrics(port=port)
    server.says(vector(series_of(gradient().state())))
    came = time.monotonic()
    wait_for(lambda: runs.said().states, 10)
    assert (list(runs.said().states), runs.said().problem) == (["llama-7b"], "")
    assert time.monotonic() - came < 6  # after 1, 2 and 4 s; the usual time would be 15
    runs.stop()
    server.close()


def test_one_that_does_not_answer_for_a_minute_is_in_trouble_since_the_start(clock: Clock) -> None:
    runs = RunsFromMetrics(PrometheusClient(f"http://127.0.0.1:{free_port()}"), lambda: (), clock)
    runs.start(3600)
    wait_for(lambda: runs.said().problem, 5)
    runs.stop()
    began = clock.now
    clock.advance(59)
    runs.ask()
    assert "waiting for" in runs.said().problem
    clock.advance(2)
    runs.ask()
    assert ("does not answer: Connection refused" in runs.said().problem, runs.said().since) == (True, began)


@pytest.mark.parametrize(("status", "says", "waits"), [(401, "refuses us", False), (503, "waiting for", True)])
def test_what_no_waiting_helps_against_is_said_at_once(metrics: Metrics, status: int, says: str, waits: bool) -> None:
    metrics.says(b"not ready", status)
    runs = RunsFromMetrics(PrometheusClient(metrics.url), lambda: ())
    runs.start(3600)
    wait_for(lambda: runs.said().problem, 5)
    runs.stop()
    assert (says in runs.said().problem, runs.said().since is None) == (True, waits)


def test_a_server_that_is_waited_for_alarms_nobody_on_a_page() -> None:
    app = open_page(gradient().state())
    store = current()
    store._snapshot = replace(store.snapshot(), metrics_problem="waiting for <b>x</b>")
    assert "Metrics: waiting for <b>x</b>." in shown(app.run())
    assert "lg-warn" not in markup(app).partition("Metrics: waiting")[0].rpartition("<div")[2]
    assert "<b>x</b>" not in markup(app)


def test_runs_that_the_journals_tell_are_not_asked_for(metrics: Metrics) -> None:
    metrics.says(vector(series_of(gradient().state())))
    runs = RunsFromMetrics(PrometheusClient(metrics.url), lambda: {"llama-7b"})
    runs.ask()
    assert runs.said().states == {}
    assert not any("__name__" in asked.form["query"] for asked in metrics.asked)


def test_a_run_whose_directory_goes_is_looked_for_at_the_next_look(metrics: Metrics, clock: Clock) -> None:
    here = {"llama-7b"}
    runs = RunsFromMetrics(PrometheusClient(metrics.url), lambda: here, clock)  # no fresh series tells it, ever

    def looks_back() -> int:
        return sum("max_over_time" in asked.form["query"] for asked in metrics.asked)

    runs.ask()
    here.clear()
    for looks in (2, 2):  # once: not at every look from now on
        clock.advance(15)
        runs.ask()
        assert looks_back() == looks


def test_a_slow_server_delays_no_snapshot(metrics: Metrics, clock: Clock) -> None:
    metrics.answer = slowly(2, 200)
    store = Store(FakeLedger(gradient().state()), clock=clock)
    store.metrics = RunsFromMetrics(PrometheusClient(metrics.url), lambda: (), clock, store.publish)
    began = time.monotonic()
    store.start()
    for _ in range(5):
        store.refresh()
    assert time.monotonic() - began < 1.5
    assert list(store.snapshot().states) == ["llama-7b"]
    store.stop()


# --- what the pages and files say -------------------------------------------------------------------------------------


def test_the_incident_page_says_what_is_not_in_metrics_and_offers_no_command_without_a_path() -> None:
    state = told(gradient().state())
    text = shown(open_page(state, page="incident", run=state.run, incident=state.incidents[0].id))
    assert "Metrics alone tell of this run" in text
    assert "Rank 3 (node-b, GPU-node…, slot 1) computed wrong gradients in steps (50, 100]." in text
    assert "after step 50" in text
    assert "Resume from step 50 without node-b" in text
    assert "3 trusted and 1 suspect. Their steps, paths and fingerprints are not in metrics." in text
    for claim in ("monitor.resume", "Nothing saved yet", "no rank stands out", "with an error", "No checkpoint was"):
        assert claim not in text
    assert "Acknowledge incident" not in text


def test_who_ended_an_attempt_and_how_is_not_in_metrics() -> None:
    history = resume(gradient())
    text = shown(open_page(told(history.state()), page="incident", run=history.run))
    assert "Attempt 2 ended (why is not in metrics) at step 150 not in metrics" in text
    assert "attempt 2 ended at 150" in text
    for claim in ("training script", "stopped at", "completed"):
        assert claim not in text


def test_a_run_without_an_incident_has_a_page_too() -> None:
    text = shown(open_page(told(demo(75).state()), page="incident", run="llama-7b"))
    assert "Metrics alone tell of this run" in text


def test_the_overview_tells_the_runs_of_both_and_the_trouble_of_the_server() -> None:
    app = open_page(told(gradient().state()))
    assert "by metrics alone" in shown(app)
    assert "Metrics:" not in shown(app)
    store = current()
    store._snapshot = replace(store.snapshot(), metrics_problem="<b>x</b> refuses us", metrics_problem_since=NOW - 90)
    assert "Metrics, for 1 min: <b>x</b> refuses us." in shown(app.run())
    assert "<b>x</b>" not in markup(app)


@pytest.mark.parametrize("form", FORMATS)
def test_each_export_says_where_it_comes_from(form: str) -> None:
    state = told(gradient().state())
    document = to_document(state, state.incidents[0])
    assert loads(dumps(document)) == document
    text = render(document, form)
    assert NOT_IN_METRICS in text
    for claim in ("monitor.resume", "Nothing saved yet", "Nothing yet", "No checkpoint was saved inside"):
        assert claim not in text


def test_nobody_can_act_on_what_metrics_alone_tell(tmp_path: Path, clock: Clock) -> None:
    state = told(gradient().state())
    store = Store(FakeLedger(state), clock=clock)
    store.refresh()
    desk = Desk(store, PeopleJournal(tmp_path))
    with pytest.raises(ActionError, match="act where its run directory is"):
        desk.act(state.run, state.incidents[0].id, Saying("note", "seen", "mira"), Visitor())
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_the_page_of_checkpoints_counts_them_and_takes_no_word() -> None:
    text = shown(open_page(told(gradient().state()), page="checkpoints", run="llama-7b"))
    assert "Resume llama-7b from step 50." in text
    assert "3 trusted and 1 suspect. Their steps, paths and fingerprints are not in metrics." in text
    assert "Accept a checkpoint" not in text
    assert "Nothing saved yet" not in text
