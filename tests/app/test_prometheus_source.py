"""A metrics server as a source: what is asked of it, what it may answer, and what the pages say then."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.app.pages import NOW, markup, open_page, shown
from tests.app.test_store import FakeLedger
from tests.conftest import Clock
from tests.e2e.real_servers import free_port, wait_for
from tests.exporter.test_run_metrics import View
from tests.exporter.test_scenarios import demo, gradient, resume

from lastgood.errors import ConfigError
from lastgood.run_metrics import RunMetrics
from lastgood.state import NOT_IN_METRICS, RunState
from lastgood_console import server as console
from lastgood_console.actions import ActionError
from lastgood_console.desk import Desk, Saying, Visitor
from lastgood_console.export.document import dumps, loads, to_document
from lastgood_console.export.formats import FORMATS, render
from lastgood_console.people_journal import PeopleJournal
from lastgood_console.sources.both import RunsFromMetrics, joined, pause_seconds
from lastgood_console.sources.client import Credentials, MetricsError, PrometheusClient, Result, Series
from lastgood_console.sources.ledger_series import by_run
from lastgood_console.sources.runs_from_metrics import run_state
from lastgood_console.sources.trends import METRICS, MOST_POINTS, Span, Trends, expression, points_of, span_of, trend
from lastgood_console.store import Store, current

Answer = Callable[["Asked"], tuple[int, bytes]]
EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}


class Asked:
    """One request as it came."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path, self.headers = path, headers
        self.form = {name: values[0] for name, values in parse_qs(body.decode()).items()}


class Metrics:
    """A real HTTP server that answers as a test says, and remembers what it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self.answer: Answer = lambda asked: (200, json.dumps(EMPTY).encode())
        self.headers: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(Asked(self.path, dict(self.headers.items()), body))
                status, content = outer.answer(outer.asked[-1])
                self.send_response(status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def handle(self) -> None:
                with suppress(OSError):  # a client that was told to wait no longer is gone
                    super().handle()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def says(self, content: Any, status: int = 200) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.answer = lambda asked: (status, body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def slowly(seconds: float, status: int) -> Answer:
    def answer(asked: Asked) -> tuple[int, bytes]:
        time.sleep(seconds)
        return status, b"{}"

    return answer


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    server = Metrics()
    yield server
    server.close()


def series_of(*states: RunState, read_at: float = NOW, **more: str) -> tuple[Series, ...]:
    """Return what a metrics server holds of these states after a scrape of their ledger."""
    registry = CollectorRegistry()
    registry.register(RunMetrics(View({s.run: s for s in states}, last_read_at=read_at), lambda: NOW))
    found = (sample for family in registry.collect() for sample in family.samples)
    target = {"job": "ledger", "instance": "ledger:8490"} | more
    return tuple(Series({"__name__": s.name} | target | s.labels, ((NOW, s.value),)) for s in found)


def told(state: RunState) -> RunState:
    """Return a state as metrics alone tell it."""
    return run_state(by_run(series_of(state))[state.run])


# --- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "header", "value"),
    [
        (
            {"LASTGOOD_PROMETHEUS_USER": "mira", "LASTGOOD_PROMETHEUS_PASSWORD": "s3"},
            "Authorization",
            "Basic bWlyYTpzMw==",
        ),
        ({"LASTGOOD_PROMETHEUS_TOKEN": "t0ken"}, "Authorization", "Bearer t0ken"),
        ({"LASTGOOD_PROMETHEUS_TENANT": "team-a"}, "X-Scope-OrgID", "team-a"),
    ],
)
def test_credentials_are_shown_to_the_server_and_to_nobody_else(
    metrics: Metrics, environ: dict[str, str], header: str, value: str
) -> None:
    credentials = Credentials.from_environment(environ)
    client = PrometheusClient(f"{metrics.url}/prometheus/", credentials)
    assert client.query("up", at=1.5).series == ()
    (asked,) = metrics.asked
    assert (asked.path, asked.headers[header]) == ("/prometheus/api/v1/query", value)
    assert asked.form == {"query": "up", "time": "1.500"}
    secret = value.split()[-1]
    assert secret not in repr(credentials) + repr(client) + client.shown


def test_a_redirect_gets_no_credential_and_is_not_followed(metrics: Metrics) -> None:
    elsewhere = Metrics()
    metrics.says(b"", 307)
    metrics.headers = {"Location": f"{elsewhere.url}/api/v1/query"}
    client = PrometheusClient(metrics.url, Credentials(headers={"Authorization": "Bearer t0ken"}))
    with pytest.raises(MetricsError, match="sends us elsewhere .status 307.") as raised:
        client.query("up")
    elsewhere.close()
    assert elsewhere.asked == []
    assert "t0ken" not in str(raised.value)


@pytest.mark.parametrize(
    ("environ", "rule"),
    [
        ({"LASTGOOD_PROMETHEUS_TOKEN": "a", "LASTGOOD_PROMETHEUS_USER": "b"}, "both set"),
        ({"LASTGOOD_PROMETHEUS_TOKEN": "s3cret\nX-Evil: 1"}, "no HTTP header"),
        ({"LASTGOOD_PROMETHEUS_USER": "a:b", "LASTGOOD_PROMETHEUS_PASSWORD": "s3cret"}, "colon"),
    ],
)
def test_wrong_credentials_are_refused_without_showing_them(environ: dict[str, str], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as raised:
        Credentials.from_environment(environ)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["prometheus:9090", "ftp://x", "http://mira:s3cret@prometheus:9090", "http://x/?a=s3cret"]
)
def test_a_wrong_address_ends_the_console_with_one_sentence(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console.main([str(tmp_path), "--port", "0", "--prometheus", url]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lastgood console: --prometheus ")
    assert "s3cret" not in said


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_a_server_is_believed_by_its_authority_alone(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server = Metrics(context)
    try:
        with pytest.raises(MetricsError, match="LASTGOOD_PROMETHEUS_CA"):
            PrometheusClient(server.url).query("up")
        known = Credentials.from_environment({"LASTGOOD_PROMETHEUS_CA": str(certificate / "cert.pem")})
        assert PrometheusClient(server.url, known).query("up").series == ()
        missing = Credentials.from_environment({"LASTGOOD_PROMETHEUS_CA": str(certificate / "none.pem")})
        with pytest.raises(MetricsError, match="No such file"):
            PrometheusClient(server.url, missing).query("up")
    finally:
        server.close()


# --- what it may answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "content", "says"),
    [
        (401, b"no", "refuses us .status 401.: set LASTGOOD_PROMETHEUS_TOKEN"),
        (403, b"no", "refuses us .status 403."),
        (404, b"<html>", "has no Prometheus API .status 404.: give the base address"),
        (422, {"status": "error", "error": "too many samples"}, "status 422: too many samples"),
        (503, b"", "answers with status 503"),
        (200, b"<html>hello</html>", "not as Prometheus does"),
        (200, b'{"status":"success","data":{"resultType":"vec', "answered only in part"),
        (200, {"status": "success"}, "half an answer"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}, "half an answer"),
        (200, {"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}, "half an answer"),
        (200, b"[" * 100_000, "not as Prometheus does"),
    ],
)  # fmt: skip
def test_each_wrong_answer_is_one_sentence(metrics: Metrics, status: int, content: Any, says: str) -> None:
    metrics.says(content, status)
    with pytest.raises(MetricsError, match=says) as raised:
        PrometheusClient(metrics.url).query("up")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_server_that_is_not_there_is_said(metrics: Metrics) -> None:
    metrics.close()
    with pytest.raises(MetricsError, match="does not answer: Connection refused"):
        PrometheusClient(metrics.url).query("up")


def test_a_slow_server_is_waited_for_no_longer_than_said(metrics: Metrics) -> None:
    metrics.answer = slowly(3, 200)
    began = time.monotonic()
    with pytest.raises(MetricsError, match="no whole answer within 0.3 s"):
        PrometheusClient(metrics.url).query("up", seconds=0.3)
    assert time.monotonic() - began < 2


def test_values_that_are_no_numbers_are_values(metrics: Metrics) -> None:
    found = [{"metric": {"a": "b"}, "values": [[1, "NaN"], [2.5, "+Inf"], [3, "-1e3"]]}]
    metrics.says({"status": "success", "data": {"resultType": "matrix", "result": found}})
    (series,) = PrometheusClient(metrics.url).query_range("x", 1, 3, 1).series
    assert [str(value) for _, value in series.samples] == ["nan", "inf", "-1000.0"]
    assert series.labels == {"a": "b"}


@pytest.mark.parametrize(
    ("more", "says"), [({"warnings": ["store b is down"]}, "store b"), ({"isPartial": True}, "partial")]
)
def test_an_answer_that_lacks_something_says_so(metrics: Metrics, more: dict[str, Any], says: str) -> None:
    metrics.says(EMPTY | more)
    assert says in PrometheusClient(metrics.url).query("up").warning
    runs = RunsFromMetrics(PrometheusClient(metrics.url), lambda: ())
    runs.ask()
    assert says in runs.said().problem


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


# --- trends -----------------------------------------------------------------------------------------------------------


def test_a_span_has_few_points_and_ends_with_the_newest_moment() -> None:
    state = gradient().state()
    (incident,) = state.incidents
    for now in (NOW, NOW + 3600, NOW + 90 * 86400):
        span = span_of(state, incident, now)
        assert 1 < len(span.times) <= MOST_POINTS
        assert span.times[-1] == now


@pytest.mark.parametrize("late", [0.0, 1.0, 3.0, 4.0, 6.0])
def test_an_answer_at_other_moments_than_asked_for_is_shown_at_its_own(late: float) -> None:
    """VictoriaMetrics moves the moments to multiples of the step."""
    span = Span(1000.0, 7.0, 5)
    at = [span.low + late - 7.0 + 7.0 * i for i in range(7)]
    answer = Result((Series({"line": "suspect"}, tuple((t, 5.0) for t in at)),
                     Series({"line": "p10"}, tuple((t, 4.0) for t in at[3:]))))  # fmt: skip
    found = trend(METRICS[0], 3, span, answer, NOW)
    assert found is not None
    assert found.suspect == (5.0,) * 5
    assert set(found.times) <= set(at)
    assert abs(found.times[-1] - span.times[-1]) <= span.step / 2
    assert [value is None for value in found.p10] == [t < at[3] for t in found.times]


def test_a_large_run_is_looked_at_at_fewer_moments_and_by_a_fifth_of_its_ranks() -> None:
    assert [points_of(ranks) for ranks in (0, 6, 2048, 4096, 16_384, 100_000)] == [240, 240, 240, 120, 150, 60]
    state, (incident,) = gradient().state(), gradient().state().incidents
    span = span_of(state, incident, NOW)
    few, many = (expression(METRICS[0], state.run, incident.suspects[0], span, ranks) for ranks in (4096, 16_384))
    assert few == expression(METRICS[0], state.run, incident.suspects[0], span)
    (matcher,) = set(re.findall(r'rank=~"([^"]+)"', many))
    chosen = [rank for rank in range(16_384) if re.fullmatch(matcher, str(rank))]
    assert len(chosen) == pytest.approx(16_384 / 5, abs=2)
    for slots in (2, 3, 4, 6, 8, 16):
        of_slot = [sum(rank % slots == slot for rank in chosen) for slot in range(slots)]
        assert max(of_slot) - min(of_slot) <= 2
    large = replace(state, attempts=tuple(replace(a, world_size=16_384) for a in state.attempts))
    assert len(span_of(large, incident, NOW).times) <= 150


def test_a_server_that_takes_long_is_asked_less_often(metrics: Metrics, clock: Clock) -> None:
    def answer(asked: Asked) -> tuple[int, bytes]:
        time.sleep(0.5)
        return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()

    metrics.answer = answer
    trends, state = Trends(PrometheusClient(metrics.url), clock), gradient().state()
    for passes, times in ((0.0, 1), (16.0, 1), (1000.0, 2)):  # one look takes 2 s, so the next may come after 20
        clock.advance(passes)
        trends.of(state, state.incidents[0])
        wait_for(lambda: not trends._asking, 10)
        assert len(metrics.asked) == times * len(METRICS)


def test_a_hostile_node_name_stays_inside_its_quotes() -> None:
    (incident,) = gradient().state().incidents
    evil = replace(incident.suspects[0], node='x"} or vector(1) #\n')
    query = expression(METRICS[0], "llama-7b", evil, span_of(gradient().state(), incident, NOW))
    assert r'node="x\"} or vector(1) #\n"' in query
    assert "\n" not in query


def test_a_page_waits_once_and_not_long_and_a_dead_server_is_left_alone(metrics: Metrics, clock: Clock) -> None:
    metrics.answer = slowly(3, 500)
    trends, state = Trends(PrometheusClient(metrics.url), clock), gradient().state()
    waits = []
    for _ in range(4):
        began = time.monotonic()
        assert trends.of(state, state.incidents[0]) == ()
        waits.append(time.monotonic() - began)
    assert 1.4 < waits[0] < 2.5
    assert max(waits[1:]) < 0.2
    assert len(metrics.asked) == 1


def test_trends_are_asked_for_again_only_when_they_are_old(metrics: Metrics, clock: Clock) -> None:
    metrics.says({"status": "success", "data": {"resultType": "matrix", "result": []}})
    trends, state = Trends(PrometheusClient(metrics.url), clock), gradient().state()
    trends.of(state, state.incidents[0])
    first = len(metrics.asked)
    trends.of(state, state.incidents[0])
    assert len(metrics.asked) == first == len(METRICS)
    clock.advance(20)
    trends.of(state, state.incidents[0])
    deadline = time.monotonic() + 5
    while len(metrics.asked) < 2 * first and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(metrics.asked) == 2 * first


def test_the_page_of_checkpoints_counts_them_and_takes_no_word() -> None:
    text = shown(open_page(told(gradient().state()), page="checkpoints", run="llama-7b"))
    assert "Resume llama-7b from step 50." in text
    assert "3 trusted and 1 suspect. Their steps, paths and fingerprints are not in metrics." in text
    assert "Accept a checkpoint" not in text
    assert "Nothing saved yet" not in text
