"""The files made from the table: up to date, read by the programs they are for, equal among each other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from lastgood_alerts import grafana_api, grafana_files, kubernetes, prometheus
from lastgood_alerts.files import FILES, write_files
from lastgood_alerts.rules import GROUPS, RULES
from lastgood_alerts.server_configs import alertmanager_config, prometheus_config
from lastgood_alerts.yaml_text import yaml_text

GENERATED = Path(prometheus.__file__).parent / "generated"


def run(program: str, *arguments: str | Path) -> str:
    found = shutil.which(program)
    assert found, f"{program} is missing: make programs"
    done = subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


@pytest.mark.parametrize("name", FILES)
def test_a_committed_file_is_what_the_table_says_now(name: str) -> None:
    assert (GENERATED / name).read_text(encoding="utf-8") == FILES[name](), "run `make generate`"


def test_nothing_else_is_committed() -> None:
    assert sorted(path.relative_to(GENERATED).as_posix() for path in GENERATED.rglob("*.*")) == sorted(FILES)


def test_writing_deletes_what_is_not_made_any_more_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "old.yml").write_text(f"# {prometheus.GENERATED}\ngroups: []\n")
    (tmp_path / "theirs.yml").write_text("groups: []\n")
    write_files(tmp_path)
    assert not (tmp_path / "old.yml").exists()
    assert (tmp_path / "theirs.yml").exists()
    assert all((tmp_path / name).is_file() for name in FILES)


@pytest.mark.slow
def test_promtool_reads_every_rule(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(prometheus.rules_yaml(console_url="https://console.example"))
    count = sum(len(group.rules) + len(group.recordings) for group in GROUPS)
    assert f"{count} rules found" in run("promtool", "check", "rules", rules)


def test_an_interval_replaces_that_of_every_group() -> None:
    groups = yaml.safe_load(prometheus.rules_yaml(interval_seconds=1))["groups"]
    assert {group["interval"] for group in groups} == {"1s"}


def test_kubernetes_has_the_rules_of_prometheus() -> None:
    manifest = yaml.safe_load(kubernetes.prometheus_rule_yaml())
    assert (manifest["apiVersion"], manifest["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert manifest["spec"] == yaml.safe_load(prometheus.rules_yaml())


def test_grafana_gets_the_same_rules_by_file_and_by_api() -> None:
    files = yaml.safe_load(grafana_files.rules_file(console_url="http://c", datasource_uid="mine"))["groups"]
    payloads = grafana_api.rule_groups(console_url="http://c", datasource_uid="mine", folder_uid="f")
    assert [group["name"] for group in files] == [group["title"] for group in payloads]
    for group, payload in zip(files, payloads, strict=True):
        assert group["interval"] == f"{payload['interval']}s"
        for rule, sent in zip(group["rules"], payload["rules"], strict=True):
            assert without(rule, "keepFiringFor") == without(sent, "keep_firing_for", "orgID", "folderUID", "ruleGroup")
            assert rule.get("keepFiringFor") == sent.get("keep_firing_for")
            assert (sent["folderUID"], sent["ruleGroup"]) == ("f", payload["title"])


def test_grafana_and_prometheus_have_the_same_alerts() -> None:
    groups = yaml.safe_load(grafana_files.rules_file())["groups"]
    assert [rule["title"] for group in groups for rule in group["rules"]] == [rule.name for rule in RULES]


def test_the_contact_point_holds_no_secret_and_names_its_variables() -> None:
    text = grafana_files.contact_points_file(webhook_url="http://console:8490/api/alerts")
    settings = yaml.safe_load(text)["contactPoints"][0]["receivers"][0]["settings"]
    assert settings["authorization_credentials"] == "${LASTGOOD_TOKEN}"
    assert settings["hmacConfig"]["secret"] == "${LASTGOOD_WEBHOOK_SECRET}"


def test_a_contact_point_without_token_and_secret_sends_neither() -> None:
    settings = grafana_api.contact_points(webhook_url="http://c/api/alerts")[0]["settings"]
    assert settings == {"url": "http://c/api/alerts", "httpMethod": "POST", "maxAlerts": 0}


def test_critical_alerts_do_not_wait_for_their_group() -> None:
    policy = grafana_api.policy()
    assert policy["routes"][0]["object_matchers"] == [["severity", "=", "critical"]]
    assert policy["routes"][0]["group_wait"] == "0s"
    route = yaml.safe_load(alertmanager_config())["route"]
    assert route["routes"][0]["matchers"] == ['severity="critical"']
    assert route["routes"][0]["group_wait"] == "0s"
    assert route["group_by"] == ["alertname", "run", "incident"]


PROMETHEUS = {
    "alone": {},
    "with a token": {"token_file": "token"},
    "with target files": {"target_files": ("/runs/x/*.json",), "http_sd": False},
    "with both": {"target_files": ("/runs/x/targets.json",)},
    "without ranks or alertmanagers": {"http_sd": False, "alertmanagers": ()},
    "fast": {"scrape_interval_seconds": 1, "evaluation_interval_seconds": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", PROMETHEUS.values(), ids=PROMETHEUS)
def test_promtool_reads_the_configuration(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "lastgood.rules.yml").write_text(prometheus.rules_yaml())
    (tmp_path / "token").write_text("secret")
    config = tmp_path / "prometheus.yml"
    config.write_text(prometheus_config(**options))
    run("promtool", "check", "config", config)


@pytest.mark.slow
@pytest.mark.parametrize("token_file", [None, "token"])
def test_amtool_reads_the_configuration(token_file: str | None, tmp_path: Path) -> None:
    config = tmp_path / "alertmanager.yml"
    config.write_text(alertmanager_config(console_url="https://console.example/", token_file=token_file))
    assert "SUCCESS" in run("amtool", "check-config", config)


def test_prometheus_keeps_our_labels_and_asks_the_console_for_ranks() -> None:
    config = yaml.safe_load(prometheus_config(console_url="https://c:1", token_file="/t"))
    ledger, ranks = config["scrape_configs"]
    assert ledger["honor_labels"] is ranks["honor_labels"] is True
    assert (ledger["scheme"], ledger["static_configs"]) == ("https", [{"targets": ["c:1"]}])
    discovery = ranks["http_sd_configs"][0]
    assert (discovery["url"], discovery["refresh_interval"]) == ("https://c:1/api/sd", "10s")
    assert discovery["authorization"] == ledger["authorization"] == {"type": "Bearer", "credentials_file": "/t"}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@example({"ends a line\n": "too\n"})
@example({"small and large": [5e-324, -1e16, 1.5e300]})
@given(st.dictionaries(st.text(), plain, min_size=1, max_size=4))
def test_yaml_is_read_back_as_it_was_written(data: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_text(data, "a comment\nof two lines")) == data
