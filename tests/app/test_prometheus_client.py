"""What is asked of a metrics server and who is told a secret, and what each wrong answer is."""

from __future__ import annotations

import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.app.metrics_server import EMPTY, Metrics, slowly

from lastgood.errors import ConfigError
from lastgood_console import server as console
from lastgood_console.sources.both import RunsFromMetrics
from lastgood_console.sources.client import Credentials, MetricsError, PrometheusClient

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
