"""The committed JSON is what the code makes, survives Grafana's own types, and is read without the SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

import lastgood_dashboards
from lastgood_dashboards import NAMES, UIDS, dashboard
from lastgood_dashboards.frame import BOARDS, generated, text_of
from lastgood_dashboards.spec import GRID_WIDTH, Panel, Query, Row, places

GENERATED = Path(lastgood_dashboards.__file__).parent / "generated"


@pytest.fixture(scope="module", autouse=True)
def sdk_plugins() -> None:
    register_default_plugins()


def committed(name: str) -> str:
    return (GENERATED / f"{name}.json").read_text(encoding="utf-8")


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return the paths at which two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [d for key in keys for d in differences(one.get(key), other.get(key), f"{path}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [d for index, (a, b) in pairs for d in differences(a, b, f"{path}/{index}")]
    return [] if one == other else [path]


def through_the_types(text: str) -> str:
    return text_of(Dashboard.from_json(json.loads(text)))


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_file_is_what_the_code_makes(name: str) -> None:
    assert committed(name) == generated()[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_survives_grafanas_own_types(name: str) -> None:
    text = committed(name)
    assert differences(json.loads(text), json.loads(through_the_types(text))) == []


@pytest.mark.parametrize("where", ["", "fieldConfig", "fieldConfig/defaults", "options"])
def test_a_misspelt_key_does_not_survive_them(where: str) -> None:
    broken = json.loads(committed("run"))
    part = broken["panels"][1]
    for key in filter(None, where.split("/")):
        part = part[key]
    part["unitt"] = "s"
    path = "/".join(["/panels/1", *filter(None, [where]), "unitt"])
    assert differences(broken, json.loads(through_the_types(json.dumps(broken)))) == [path]


def test_the_dashboards_are_read_without_the_sdk() -> None:
    code = (
        "import sys; sys.modules['grafana_foundation_sdk'] = None\n"
        "from lastgood_dashboards import NAMES, dashboard\n"
        "print(*(dashboard(name)['uid'] for name in NAMES))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(UIDS.values())


def test_console_and_data_source_can_be_given() -> None:
    board = dashboard("run", console_url="https://console.example/", datasource_uid="mimir")
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["console"]["query"] == "https://console.example"
    assert variables["console"]["current"]["value"] == "https://console.example"
    assert variables["datasource"]["current"]["value"] == "mimir"


def test_an_unknown_dashboard_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"no dashboard is called 'nodes': there are fleet, run, node, checkpoints"):
        dashboard("nodes")


def test_the_files_are_written_into_the_folder_given(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lastgood_dashboards", str(tmp_path / "out")]
    subprocess.run(command, check=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"{name}.json" for name in NAMES)
    asked_wrongly = subprocess.run(command[:-1], capture_output=True, text=True, check=False)
    assert (asked_wrongly.returncode, "usage:" in asked_wrongly.stderr) == (2, True)


def test_every_board_is_known_by_its_name_and_uid() -> None:
    assert {board.name: board.uid for board in BOARDS} == UIDS


def _panel(id: int, width: int, height: int = 8) -> Panel:
    asked = (Query(expr="lastgood_step", legend="step"),)
    return Panel(id=id, kind="lines", title="t", says="s", queries=asked, empty="none", width=width, height=height)


def test_panels_fill_a_line_and_then_the_next() -> None:
    row = Row(id=100, title="r", panels=(_panel(1, 16, 4), _panel(2, 8, 6), _panel(3, 12)))
    place = places((row, Row(id=200, title="s", panels=())))
    assert [(place[i].x, place[i].y) for i in (100, 1, 2, 3, 200)] == [(0, 0), (0, 1), (16, 1), (0, 7), (0, 15)]
    assert place[100].width == GRID_WIDTH
