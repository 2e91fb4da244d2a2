"""The pages say what the code does: every metric, setting, command and option, and nothing beside."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from lastgood.catalogue import BY_NAME
from lastgood.config import Config
from lastgood.events import CHECKS, Status
from lastgood.state import Trust
from lastgood_console.cli import COMMANDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
ACTIONS = {"checkpoint": ("list", "verify", "accept"), "grafana": ("deploy",)}
DOCUMENTED = [f"{name} {action}".strip() for name in COMMANDS for action in ACTIONS.get(name, ("",))]
OWN_VARIABLES = {"LASTGOOD_RUNS", "LASTGOOD_FIELD", "LASTGOOD_WEBHOOK_SECRET", "LASTGOOD_PROMETHEUS"}
OWN_VARIABLES |= {f"LASTGOOD_PROMETHEUS_{name}" for name in ("USER", "PASSWORD", "TOKEN", "TENANT", "CA")}
"""Environment variables that are no setting of ``watch``."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(command: str) -> str:
    """Return what docs/commands.md says about one command."""
    parts = re.split(r"^## lastgood ", text_of("docs/commands.md"), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part for part in parts}[command]


@cache
def help_of(command: str) -> str:
    words = [sys.executable, "-m", "lastgood_console.cli", *command.split(), "--help"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - {"--help"}


def code_in(page: Path) -> list[str]:
    """Return what a page shows as code: its fenced blocks and its words in backticks."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL) + re.findall(r"(?<!`)`([^`\n]+)`", text)


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "scripts" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["metrics.md", "settings.md", "alerts.md", "openapi.json"])
def test_a_generated_page_is_what_the_code_says_now(page: str) -> None:
    assert text_of(f"docs/{page}") == generator().PAGES[page](), "run `make generate`"


def test_every_metric_has_its_row_and_every_row_its_metric() -> None:
    assert re.findall(r"^\| `(lastgood_\w+)`", text_of("docs/metrics.md"), re.MULTILINE) == list(BY_NAME)


def test_every_setting_has_its_row_and_every_row_its_setting() -> None:
    fields = [field.name for field in dataclasses.fields(Config)]
    assert re.findall(r"^\| `(\w+)`", text_of("docs/settings.md"), re.MULTILINE) == fields


def test_every_command_has_its_section_and_every_section_its_command() -> None:
    sections = re.findall(r"^## lastgood (.+)$", text_of("docs/commands.md"), re.MULTILINE)
    assert sorted(sections) == sorted(DOCUMENTED)


@pytest.mark.parametrize("command", DOCUMENTED)
def test_every_option_of_a_command_is_documented_and_the_reverse(command: str) -> None:
    described = options_in("\n".join(re.findall(r"^\| `(.+?)`", section(command), re.MULTILINE)))
    assert described == options_in(help_of(command))


def test_every_fault_of_the_demo_is_documented() -> None:
    faults = re.findall(r"^  ([a-z-]+)  +", help_of("demo").partition("faults:")[2], re.MULTILINE)
    assert len(faults) == 8
    assert all(f"`{fault}`" in section("demo") for fault in faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_metrics_that_exist(page: Path) -> None:
    known = {name for metric in BY_NAME.values() for name in (metric.name, *metric.series_names)}
    named = set(
        re.findall(r"\blastgood_(?!(?:console|alerts|dashboards)\b)[a-z][a-z_]+\b", page.read_text(encoding="utf-8"))
    )
    assert named <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_environment_variables_that_exist(page: Path) -> None:
    known = {f"LASTGOOD_{field.name.upper()}" for field in dataclasses.fields(Config)} | OWN_VARIABLES
    assert set(re.findall(r"\bLASTGOOD_[A-Z_]+\b", page.read_text(encoding="utf-8"))) <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_only_commands_and_options_that_exist(page: Path) -> None:
    for name, rest in re.findall(r"^lastgood ([a-z]+)((?: [^#\n]*)?)", "\n".join(code_in(page)), re.MULTILINE):
        assert name in COMMANDS, f"{page.name} shows lastgood {name}"
        actions = [action for action in ACTIONS.get(name, ("",)) if action in rest]
        assert options_in(rest) <= options_in(help_of(f"{name} {actions[0]}".strip()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_links_only_to_files_that_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_make_targets_that_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z][a-z-]*)", "\n".join(code_in(page)), re.MULTILINE)) <= targets


def test_the_two_commands_of_the_readme_are_there() -> None:
    assert {"make demo", "make test"} <= set(re.findall(r"^make \w+", text_of("README.md"), re.MULTILINE))


def test_the_folders_of_the_readme_are_there() -> None:
    folders = re.findall(r"^\| `([a-z_/]+)` \|", text_of("README.md").partition("## Where things are")[2], re.MULTILINE)
    assert len(folders) >= 5
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_of_a_table_has_the_same_number_of_cells(page: Path) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert len({row.replace("\\|", "").count("|") for row in table.splitlines()}) == 1, table


EXAMPLE = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters())
loader = [torch.randn(8, 4) for _ in range(3)]
loss_fn = lambda model, batch: model(batch).square().mean()
path = {run_dir!r} + "/step-2.pt"
save = lambda path: torch.save({{"model": model.state_dict()}}, path)
"""


@pytest.mark.slow
def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    example = next(block for block in code_in(ROOT / "README.md") if block.startswith("import lastgood"))
    example = example.replace("/shared/runs/llama-7b", str(tmp_path / "run")).replace("1000", "2")
    code = EXAMPLE.format(run_dir=str(tmp_path)) + example
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "lastgood_console.cli", "checkpoint", "list", str(tmp_path / "run")],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "step-2.pt" in listed


@pytest.mark.parametrize("word", [*CHECKS, *get_args(Status), *get_args(Trust)])
def test_every_check_status_and_trust_is_explained(word: str) -> None:
    assert f"`{word}`" in text_of("docs/checks.md")
