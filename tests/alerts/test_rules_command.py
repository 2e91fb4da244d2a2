"""`lastgood rules`: the rules with links to one's own console."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lastgood_alerts.files import FILES
from lastgood_alerts.rules import RULES
from lastgood_console.cli import main

CONSOLE = "https://console.example/lastgood"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["rules", *arguments]) == 0
    return capsys.readouterr().out


def test_without_options_it_prints_the_rule_file_that_ships(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == FILES["prometheus/lastgood.rules.yml"]()


@pytest.mark.parametrize(
    ("form", "name"),
    [("kubernetes", "kubernetes/prometheusrule.yaml"), ("grafana", "grafana/alerting/rules.yaml")],
)
def test_each_form_is_the_file_that_ships(capsys: pytest.CaptureFixture[str], form: str, name: str) -> None:
    assert printed(capsys, "--format", form) == FILES[name]()


@pytest.mark.parametrize("form", ["prometheus", "kubernetes", "grafana"])
def test_every_alert_links_to_the_console_that_is_given(capsys: pytest.CaptureFixture[str], form: str) -> None:
    text = printed(capsys, "--format", form, "--console-url", f"{CONSOLE}/")
    assert "localhost" not in text
    assert text.count(f"runbook_url: '{CONSOLE}/runbook?name=") == len(RULES)


def test_grafana_reads_the_data_source_that_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    groups = yaml.safe_load(printed(capsys, "--format", "grafana", "--datasource-uid", "mine"))["groups"]
    data = [query for group in groups for rule in group["rules"] for query in rule["data"]]
    assert {query["datasourceUid"] for query in data} == {"mine", "__expr__"}


def test_it_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--output", str(tmp_path / "rules.yml")) == ""
    assert (tmp_path / "rules.yml").read_text(encoding="utf-8") == FILES["prometheus/lastgood.rules.yml"]()


@pytest.mark.parametrize(
    "url",
    ["console", "ftp://console", "https://", "https://c/{{ .X }}", "https://c/`x`", "", "http://[::1", "http://h:99999",
     "http://x\ny", "http://x\x01", "http://\udcff", "http://c/\u202ex", f"http://{'a' * 300}", "http://a..b",
     "http://h?x=1", "http://h/#", "http://h/$HOME"],
)  # fmt: skip
def test_an_address_no_browser_opens_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--console-url", url]) == 2
    err = capsys.readouterr().err
    assert "not an address that a browser opens" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("url", ["http://mira:pw-1@h", "http://:pw-1@h", "http://pw-1@[::1", "mira:pw-1@h"])
def test_a_password_in_the_address_is_refused_and_not_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--console-url", url]) == 2
    err = capsys.readouterr().err
    assert "holds a name or a password" in err
    assert "pw-1" not in err


def test_a_file_in_no_directory_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--output", str(tmp_path / "none" / "rules.yml")]) == 2
    assert "give a file in a directory that exists" in capsys.readouterr().err
