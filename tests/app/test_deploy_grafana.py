"""``lastgood grafana deploy`` against the fake Grafana of ``grafana_server``."""

from __future__ import annotations

import json
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.fixtures import run_dirs
from tests.app.grafana_server import TOKEN, FakeGrafana, fake_grafana

from lastgood_alerts import grafana_api
from lastgood_console import cli
from lastgood_console.deploy.unreachable import why

pytestmark = pytest.mark.slow

Json = dict[str, Any]
Capture = pytest.CaptureFixture[str]
SECRET = "console-secret-42"
RULES = "/v1/provisioning"
PUT_GROUP = f"{RULES}/folder/lastgood/rule-groups/{grafana_api.rule_groups()[0]['title']}"


@pytest.fixture
def fake() -> Iterator[FakeGrafana]:
    with fake_grafana() as server:
        yield server
    assert not server.complaints


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    monkeypatch.setenv("LASTGOOD_TOKEN", SECRET)


def deploy(fake: FakeGrafana, *options: str) -> int:
    fake.requests.clear()
    return cli.main(["grafana", "deploy", "--url", fake.url, *options])


def said(capsys: Capture) -> str:
    """Return what both streams said; no secret and no traceback is ever part of it."""
    out, err = capsys.readouterr()
    assert TOKEN not in out + err
    assert SECRET not in out + err
    assert "Traceback" not in err
    return out + err


def test_an_empty_grafana_gets_folder_dashboards_rules_contact_point_and_route(
    fake: FakeGrafana, capsys: Capture
) -> None:
    assert deploy(fake) == 0
    assert set(fake.folders) == {"lastgood"}
    assert set(fake.dashboards) == {"lastgood-fleet", "lastgood-run", "lastgood-node", "lastgood-checkpoints"}
    assert len(fake.rules) == sum(len(group["rules"]) for group in grafana_api.rule_groups())
    assert fake.contact_points["lastgood-console"]["settings"]["authorization_credentials"] == SECRET
    assert fake.policy["receiver"] == "grafana-default-email"
    assert fake.policy["routes"][0]["object_matchers"] == [["component", "=", "lastgood"]]
    assert "created dashboard lastgood-run" in said(capsys)


def test_a_second_time_changes_nothing(fake: FakeGrafana, capsys: Capture) -> None:
    assert deploy(fake) == 0
    capsys.readouterr()
    assert deploy(fake) == 0
    assert fake.writes == []
    assert "Nothing to do: all" in said(capsys)


def test_a_dry_run_only_reads_and_says_what_would_be_done(fake: FakeGrafana, capsys: Capture) -> None:
    assert deploy(fake, "--dry-run") == 0
    assert fake.writes == []
    text = said(capsys)
    assert "+ folder lastgood\n" in text
    assert "    + rule ReplayMismatch\n" in text
    assert "Nothing was sent (--dry-run)." in text


def test_a_dry_run_shows_how_a_rule_differs(fake: FakeGrafana, capsys: Capture) -> None:
    deploy(fake)
    fake.rules["lastgood-replay-mismatch"]["labels"]["severity"] = "info"
    capsys.readouterr()
    assert deploy(fake, "--dry-run") == 0
    assert '    rule ReplayMismatch: labels.severity: "info" -> "critical"\n' in said(capsys)
    assert fake.rules["lastgood-replay-mismatch"]["labels"]["severity"] == "info"


def test_what_somebody_changed_is_set_right_and_nothing_else_is_sent(fake: FakeGrafana) -> None:
    deploy(fake)
    fake.rules["lastgood-replay-mismatch"]["labels"]["severity"] = "info"
    fake.dashboards["lastgood-run"]["dashboard"]["title"] = "Mine"
    assert deploy(fake) == 0
    assert fake.rules["lastgood-replay-mismatch"]["labels"]["severity"] == "critical"
    assert fake.dashboards["lastgood-run"]["dashboard"]["title"] != "Mine"
    assert sorted(fake.writes) == [("POST", "/dashboards/db"), ("PUT", PUT_GROUP)]


def test_a_rule_that_left_lastgood_leaves_grafana_and_is_named_and_counted(fake: FakeGrafana, capsys: Capture) -> None:
    deploy(fake)
    first, old = (
        next(iter(fake.groups.values())),
        {**next(iter(fake.rules.values())), "uid": "lastgood-old", "title": "Old"},
    )
    first["rules"].append(old)
    gone = {**old, "uid": "lastgood-gone", "ruleGroup": "gone"}
    fake.groups["lastgood", "gone"] = {"title": "gone", "folderUid": "lastgood", "interval": 60, "rules": [gone]}
    said(capsys)
    deploy(fake, "--dry-run")
    shown = said(capsys)
    assert "    - rule Old\n" in shown
    assert "0 to create, 1 to change, 2 to remove" in shown
    assert deploy(fake) == 0
    done = said(capsys)
    assert f"removed rule Old of rule group {first['title']}\n" in done
    assert "0 created, 1 changed, 2 removed" in done
    assert not {"lastgood-old", "lastgood-gone"} & set(fake.rules)
    assert ("DELETE", f"{RULES}/alert-rules/lastgood-gone") in fake.writes


def test_rules_of_others_stay_even_in_our_folder(fake: FakeGrafana) -> None:
    deploy(fake)
    theirs = {**next(iter(fake.rules.values())), "uid": "theirs", "ruleGroup": "team", "provenance": ""}
    fake.groups["lastgood", "team"] = {"title": "team", "folderUid": "lastgood", "interval": 60, "rules": [theirs]}
    assert deploy(fake) == 0
    assert "theirs" in fake.rules
    assert fake.writes == []


def test_somebody_s_policy_keeps_everything_and_stays_editable(fake: FakeGrafana) -> None:
    theirs = {"receiver": "grafana-default-email", "object_matchers": [["team", "=", "x"]]}
    fake.policy |= {"routes": [theirs], "repeat_interval": "4h"}
    assert deploy(fake) == 0
    assert fake.policy["routes"][1:] == [theirs]
    assert fake.policy["repeat_interval"] == "4h"
    assert fake.policy["routes"][0]["continue"] is True
    assert "provenance" not in fake.policy


def test_a_policy_that_came_through_the_api_is_changed_as_such(fake: FakeGrafana) -> None:
    fake.policy |= {"provenance": "api"}
    assert deploy(fake) == 0
    assert fake.policy["provenance"] == "api"


def test_the_policy_can_be_left_alone(fake: FakeGrafana) -> None:
    before = dict(fake.policy)
    assert deploy(fake, "--policy", "keep") == 0
    assert fake.policy == before


def test_a_policy_that_changes_meanwhile_is_not_overwritten(fake: FakeGrafana, capsys: Capture) -> None:
    def meanwhile(method: str, path: str) -> None:
        if (method, path) == ("POST", f"{RULES}/contact-points"):
            fake.policy["group_wait"] = "7m"

    fake.before = meanwhile
    assert deploy(fake) == 2
    assert "routes" not in fake.policy
    assert "was changed by somebody else meanwhile" in said(capsys)


def test_what_a_file_provisions_as_it_should_be_is_left_alone(fake: FakeGrafana) -> None:
    deploy(fake)
    for board in fake.dashboards.values():
        board["meta"]["provisioned"] = True
    for thing in (*fake.rules.values(), *fake.contact_points.values(), fake.policy):
        thing["provenance"] = "file"
    assert deploy(fake) == 0
    assert fake.writes == []


def test_what_a_file_provisions_stops_everything_before_anything_is_sent(fake: FakeGrafana, capsys: Capture) -> None:
    deploy(fake)
    fake.dashboards["lastgood-run"]["meta"]["provisioned"] = True
    fake.dashboards["lastgood-run"]["dashboard"]["title"] = "Older"
    fake.rules["lastgood-replay-mismatch"] |= {"provenance": "file", "for": "9m"}
    fake.policy = {**fake.policy, "routes": [], "provenance": "file"}
    capsys.readouterr()
    assert deploy(fake) == 2
    assert fake.writes == []
    text = said(capsys)
    for what in ("dashboard lastgood-run", "rule ReplayMismatch", "the notification policy"):
        assert f"  {what} comes from a file" in text


@pytest.mark.parametrize(
    ("part", "written"),
    [("dashboards", {"/folders", "/dashboards/db"}), ("annotations", {"/annotations"}),
     ("alerts", {"/folders", f"{RULES}/contact-points", f"{RULES}/policies", PUT_GROUP.rpartition("/")[0]})],
)  # fmt: skip
def test_only_a_part_is_deployed_and_read_when_asked(
    fake: FakeGrafana, tmp_path: Path, part: str, written: set[str]
) -> None:
    run_dir = run_dirs.written(run_dirs.gradient(), tmp_path / "llama-7b")
    assert deploy(fake, "--only", part, "--annotations", str(run_dir)) == 0
    assert {path.rpartition("/")[0] if "/rule-groups/" in path else path for _, path in fake.writes} == written
    read = {path for method, path in fake.requests if method == "GET"}
    assert (f"{RULES}/alert-rules" in read) == (part == "alerts")


def test_console_and_data_source_stand_in_dashboards_rules_and_contact_point(fake: FakeGrafana) -> None:
    fake.data_sources["mimir"] = {"uid": "mimir", "type": "prometheus"}
    options = ("--console-url", "https://c.example/", "--datasource-uid", "mimir", "--webhook-url", "http://in:8490")
    assert deploy(fake, *options) == 0
    everything = json.dumps([fake.dashboards, [*fake.groups.values()]])
    assert "lastgood-prometheus" not in everything
    assert "localhost:8490" not in everything
    assert "https://c.example/incident" in everything
    assert fake.contact_points["lastgood-console"]["settings"]["url"] == "http://in:8490/api/alerts"


def test_a_data_source_that_is_not_there_is_said_before_anything_is_sent(fake: FakeGrafana, capsys: Capture) -> None:
    assert deploy(fake, "--datasource-uid", "nowhere") == 2
    assert fake.writes == []
    assert "no data source with the uid nowhere" in said(capsys)


def test_a_token_that_may_not_read_data_sources_deploys_with_a_warning(fake: FakeGrafana, capsys: Capture) -> None:
    fake.break_with("GET", "/datasources/uid/lastgood-prometheus", 403)
    assert deploy(fake) == 0
    assert "warning: the token may not read data sources" in said(capsys)


def test_a_new_token_of_the_console_is_sent_when_asked_and_the_old_one_kept_when_not_given(
    fake: FakeGrafana, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fake)
    monkeypatch.setenv("LASTGOOD_TOKEN", "another")
    assert deploy(fake, "--renew-token") == 0
    assert fake.contact_points["lastgood-console"]["settings"]["authorization_credentials"] == "another"
    monkeypatch.delenv("LASTGOOD_TOKEN")
    assert deploy(fake, "--webhook-url", "http://moved:1") == 0
    kept = fake.contact_points["lastgood-console"]["settings"]
    assert (kept["url"], kept["authorization_credentials"]) == ("http://moved:1/api/alerts", "another")
    assert deploy(fake, "--webhook-url", "http://moved:1") == 0
    assert fake.writes == []


def test_findings_and_saves_are_annotated_once(fake: FakeGrafana, tmp_path: Path, capsys: Capture) -> None:
    run_dir = run_dirs.written(run_dirs.gradient(), tmp_path / "llama-7b")
    assert deploy(fake, "--annotations", str(run_dir)) == 0
    kinds = [mark["tags"][2] for mark in fake.annotations]
    assert kinds.count("finding") == 1
    assert kinds.count("save") >= 3
    assert f"created {len(kinds)} annotations" in said(capsys)
    assert deploy(fake, "--annotations", str(run_dir)) == 0
    assert fake.writes == []
    fake.annotations[0]["text"] = "edited"
    assert deploy(fake, "--annotations", str(run_dir)) == 0
    assert fake.writes == [("PUT", "/annotations/1")]


def test_a_grafana_under_a_path_prefix_is_deployed_to() -> None:
    with fake_grafana("/monitoring/grafana") as fake:
        assert deploy(fake) == 0
        assert fake.rules
        assert deploy(fake, "--timeout", "9") == 0
        assert fake.writes == []


def test_an_address_that_points_elsewhere_is_said(fake: FakeGrafana, capsys: Capture) -> None:
    fake.redirects["/health"] = "https://grafana.example/api/health"
    assert deploy(fake) == 2
    assert "points elsewhere: give the address it leads to" in said(capsys)


def test_an_address_without_its_prefix_is_said(capsys: Capture) -> None:
    with fake_grafana("/grafana") as fake:
        fake.url = fake.url.removesuffix("/grafana")
        assert deploy(fake) == 2
    assert "the address may lack a path prefix" in said(capsys)


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (400, "its version may be too old or too new"),
        (401, "the token is wrong or has expired"),
        (403, "give its service account the role Admin"),
        (404, "Grafana may be too old, or it is gone meanwhile"),
        (409, "something else owns it"),
        (412, "somebody changed it meanwhile"),
        (429, "run this again in a minute"),
        (500, "Grafana itself failed: its log says why"),
        (503, "Grafana itself failed: its log says why"),
    ],
)
def test_a_failure_half_way_says_what_was_done_and_what_was_not(
    fake: FakeGrafana, capsys: Capture, status: int, hint: str
) -> None:
    fake.break_with("PUT", PUT_GROUP, status, f"because {TOKEN} and {SECRET}")
    assert deploy(fake) == 2
    text = said(capsys)
    assert f"cannot replace the rule group: Grafana answered {status}: because [token] and [token]; " in text
    assert hint in text
    done, left = text.partition("\nDone: ")[2].split("\nNot done: ")
    assert done.startswith("folder lastgood, dashboard lastgood-checkpoints")
    assert done.endswith("contact point lastgood-console, notification policy route.")
    assert left.startswith("rule group lastgood-")


def test_a_deployment_goes_on_where_it_stopped(fake: FakeGrafana) -> None:
    fake.break_with("PUT", PUT_GROUP, 500)
    assert deploy(fake) == 2
    fake.fail.clear()
    assert deploy(fake) == 0
    assert {path.partition("/rule-groups")[0] for _, path in fake.writes} == {f"{RULES}/folder/lastgood"}


def test_a_dashboard_that_somebody_saves_meanwhile_is_not_overwritten(fake: FakeGrafana, capsys: Capture) -> None:
    deploy(fake)
    board = fake.dashboards["lastgood-run"]["dashboard"]
    board["title"] = "Mine"

    def meanwhile(method: str, path: str) -> None:
        if (method, path) == ("POST", "/dashboards/db"):
            board["version"] += 1

    fake.before = meanwhile
    assert deploy(fake) == 2
    assert board["title"] == "Mine"
    assert "answered 412" in said(capsys)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_failure_while_reading_sends_nothing(fake: FakeGrafana, capsys: Capture, status: int) -> None:
    fake.break_with("GET", f"{RULES}/alert-rules", status)
    assert deploy(fake) == 2
    assert fake.writes == []
    assert f"cannot read the alert rules: Grafana answered {status}" in said(capsys)


def test_a_wrong_token_is_said_without_it(fake: FakeGrafana, capsys: Capture) -> None:
    fake.token = "another"
    assert deploy(fake) == 2
    assert "Grafana answered 401: Invalid API key; the token is wrong or has expired" in said(capsys)


def test_an_answer_that_does_not_come_is_said_with_its_doubt(fake: FakeGrafana, capsys: Capture) -> None:
    fake.hang.add(("PUT", f"{RULES}/policies"))
    assert deploy(fake, "--timeout", "1.5") == 2
    text = said(capsys)
    assert "no answer from" in text
    assert "within 1.5 s; whether it was done is not known" in text
    assert "Not done: notification policy route, rule group" in text


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"<html>sign in</html>", "text/html"), (b"<html>sign in</html>", "application/json"), (b"[]", "application/json"),
     (b'{"status": "ok"}', "application/json")],
)  # fmt: skip
def test_what_is_no_grafana_is_said(fake: FakeGrafana, capsys: Capture, body: bytes, content_type: str) -> None:
    fake.fail["GET", "/health"] = (200, body, content_type)
    assert deploy(fake) == 2
    assert "as a Grafana" in said(capsys)


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b'"text"', b"[1]", b'{"rules": []}', b""])
def test_an_answer_that_is_none_of_grafana_s_is_said(fake: FakeGrafana, capsys: Capture, body: bytes) -> None:
    fake.fail["GET", f"{RULES}/alert-rules"] = (200, body, "application/json")
    assert deploy(fake) == 2
    assert "did not answer as a Grafana does" in said(capsys)


def test_a_grafana_that_cannot_be_reached_is_said(capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert cli.main(["grafana", "deploy", "--url", url]) == 2
    reason = "the connection was refused: nothing listens there, or a firewall stands before it"
    assert said(capsys) == f"lastgood grafana: cannot read its health: {url} cannot be reached: {reason}\n"


def test_a_name_that_is_not_found_is_said(capsys: Capture) -> None:
    assert cli.main(["grafana", "deploy", "--url", "http://grafana.invalid"]) == 2
    assert "http://grafana.invalid cannot be reached: the name was not found" in said(capsys)


def test_a_server_that_speaks_no_tls_is_said(fake: FakeGrafana, capsys: Capture) -> None:
    assert cli.main(["grafana", "deploy", "--url", fake.url.replace("http:", "https:")]) == 2
    assert "cannot be reached: TLS failed (wrong version number): does it speak https on this port?" in said(capsys)


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (TimeoutError(), "the connection timed out"),
        (ConnectionResetError(104, "reset"), "the connection was cut"),
        (OSError(113, "No route to host"), "no route to host"),
        (ValueError("x"), "the connection broke (ValueError)"),
    ],
)
def test_what_a_library_wrapped_is_said_without_the_wrapping(inner: Exception, reason: str) -> None:
    wrapped = RuntimeError("HTTPConnectionPool(host='x')", OSError("<urllib3.connection object at 0x7f>", inner))
    assert why(wrapped) == reason


def test_a_certificate_that_is_not_trusted_is_said_with_its_reason() -> None:
    refused = ssl.SSLCertVerificationError(1, "x")
    refused.verify_message = "self-signed certificate"
    assert why(refused) == "TLS: its certificate is not trusted (self-signed certificate)"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--url", "grafana.example"], "--url 'grafana.example': not an address"),
        (["--url", "http://a:pw-1@host"], "--url holds a name or a password"),
        (["--url", "http://host", "--console-url", "ftp://x"], "--console-url 'ftp://x': not an address"),
        (["--url", "http://host:99999"], "--url 'http://host:99999': not an address"),
        (["--url", "http://host", "--timeout", "0"], "argument --timeout: 0: give a number of seconds above 0"),
        (["--url", "http://host", "--token", "a", "--token-file", "b"], "give --token or --token-file, not both"),
        (["--url", "http://host", "--token-file", "/nowhere"], "cannot read the token from /nowhere"),
        (["--url", "http://host", "--token", "two words"], "the token is empty or holds characters that no token has"),
        (["--url", "http://host", "--only", "annotations"], "say of which runs with --annotations RUNS"),
        (["--url", "http://host", "--annotations", "/nowhere"], "/nowhere does not exist"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(options: list[str], hint: str, capsys: Capture) -> None:
    assert cli.main(["grafana", "deploy", *options]) == 2
    text = said(capsys)
    assert hint in text
    assert "pw-1" not in text


def test_without_the_extra_it_says_how_to_install_it_safely(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in [name for name in sys.modules if name.startswith("lastgood_console.deploy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafana_client.api", None)
    assert cli.main(["grafana", "deploy", "--url", "http://host"]) == 2
    assert "URLLIB3_NO_OVERRIDE=1 pip install --no-binary urllib3-future 'lastgood[grafana]'" in said(capsys)


def test_no_token_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN")
    assert cli.main(["grafana", "deploy", "--url", "http://host"]) == 2
    assert "no token: make a service account in Grafana" in said(capsys)


def test_tokens_are_read_from_files(fake: FakeGrafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN")
    (tmp_path / "grafana").write_text(f"{TOKEN}\n")
    (tmp_path / "console").write_text("from-a-file\n")
    files = ("--token-file", str(tmp_path / "grafana"), "--console-token-file", str(tmp_path / "console"))
    assert deploy(fake, *files) == 0
    assert fake.contact_points["lastgood-console"]["settings"]["authorization_credentials"] == "from-a-file"


def test_the_rules_read_recordings_only_where_asked(fake: FakeGrafana) -> None:
    assert deploy(fake) == 0
    assert "lastgood:run_alive" not in json.dumps([*fake.groups.values()])
    assert deploy(fake, "--recorded") == 0
    assert "lastgood:run_alive" in json.dumps([*fake.groups.values()])
