"""Runbooks hold against the rules, the command line and the catalogue: at night nobody can check them by hand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.alerts import promql_reading
from tests.app.fixtures import run_dirs

from lastgood.catalogue import BY_NAME
from lastgood_alerts.rules import RULES

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "alerts" / "runbooks").glob("*"))
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)


def queries(page: Path) -> list[str]:
    return [block.strip() for block in blocks(page, "promql")]


def inline(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", prose)


def commands(page: Path) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines()]


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_every_rule_has_its_runbook_and_every_runbook_its_rule() -> None:
    assert sorted(page.name for page in PAGES) == sorted(f"{rule.name}.md" for rule in RULES)


@each_page
def test_a_runbook_has_its_title_and_its_four_sections_in_order(page: Path) -> None:
    text = text_of(page)
    assert re.findall(r"^# (.+)$", text, re.MULTILINE) == [page.stem]
    assert re.findall(r"^#{2,} (.+)$", text, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(len(part.split()) >= 10 for part in parts)


@each_page
def test_a_runbook_says_what_not_to_do_and_when_it_can_be_a_false_alarm(page: Path) -> None:
    mitigation = text_of(page).partition("## Mitigation")[2]
    assert re.search(r"^Do not ", mitigation, re.MULTILINE)
    assert re.search(r"^False alarm: ", mitigation, re.MULTILINE)


@each_page
def test_a_runbook_shows_queries_that_parse_and_name_only_what_is_exported(page: Path) -> None:
    assert queries(page)
    assert [problem for query in queries(page) for problem in promql_reading.problems(query)] == []


@each_page
def test_a_runbook_names_only_metrics_of_the_catalogue(page: Path) -> None:
    named = re.findall(r"\blastgood_(?!console\b|alerts\b)[a-z_]+\b", text_of(page))
    assert set(named) <= {*promql_reading.METRIC_OF, *BY_NAME}


@each_page
def test_a_runbook_names_only_other_runbooks_that_exist(page: Path) -> None:
    names = {other.stem for other in PAGES}
    named = set(re.findall(r"runbooks? ([A-Z]\w+)(?: and ([A-Z]\w+))?", text_of(page)))
    assert {name for pair in named for name in pair if name} <= names


@each_page
def test_a_runbook_names_only_pages_of_the_console(page: Path) -> None:
    routed = set(re.findall(r'url_path="(\w+)"', text_of(ROOT / "app" / "lastgood_console" / "app.py")))
    assert {words[1:] for words in inline(page) if re.fullmatch(r"/[a-z]+", words)} <= routed


@each_page
def test_a_runbook_links_only_to_documents_that_exist(page: Path) -> None:
    named = {words for words in inline(page) if words.startswith("docs/")}
    assert [name for name in named if not (ROOT / name).is_file()] == []


@each_page
def test_a_runbook_shows_only_commands_of_lastgood_in_its_blocks(page: Path) -> None:
    assert commands(page)
    assert [line for line in commands(page) if not line.startswith("lastgood ")] == []


def test_the_languages_of_the_blocks_are_only_those_that_are_checked_here() -> None:
    languages = {word for page in PAGES for word in re.findall(r"^```(.+)$", text_of(page), re.MULTILINE)}
    assert languages == {"sh", "promql"}


ALL_COMMANDS = sorted(
    {line for page in PAGES for line in commands(page)}
    | {words for page in PAGES for words in inline(page) if words.startswith("lastgood ")}
)

STAYS_OR_NEEDS_A_CHECKPOINT = re.compile(r"lastgood (console|serve|checkpoint verify|checkpoint accept)\b")
RUNS_HERE = [line for line in ALL_COMMANDS if not STAYS_OR_NEEDS_A_CHECKPOINT.match(line)]


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one line as a person would type it, in ``folder``."""
    words = [sys.executable, "-m", "lastgood_console.cli", *shlex.split(line)[1:]]
    environment = {**os.environ, "LASTGOOD_RUNS": str(folder)}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one run whose incident is open."""
    folder = tmp_path_factory.mktemp("runs")
    run_dirs.written(run_dirs.still_open("llama-7b"), folder / "llama-7b")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("line", RUNS_HERE)
def test_a_command_of_a_runbook_does_what_it_is_there_for(line: str, runs: Path) -> None:
    listed = run("lastgood incidents llama-7b", runs).stdout
    incident = re.search(r"incident +(r-\w+)", listed)
    assert incident, listed
    done = run(re.sub(r"\bRUN\b", "llama-7b", line).replace("INCIDENT", incident[1]), runs)
    assert done.returncode in ((0, 1) if "incidents" in line else (0,)), done.stderr
    wrote = re.search(r"--output (\S+)", line)
    shown = (runs / wrote[1]).read_text(encoding="utf-8") if wrote else done.stdout + done.stderr
    assert ("NAME" if "--by NAME" in line else "a1-step-000050") in shown


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted({*ALL_COMMANDS} - {*RUNS_HERE}))
def test_a_command_that_stays_or_needs_a_checkpoint_takes_the_words_it_is_given(line: str, runs: Path) -> None:
    done = run(f"{line} --help", runs)
    assert done.returncode == 0, done.stderr
    usage = done.stdout.partition("\n\n")[0]
    assert all(word in usage for word in line.split() if word.isupper())
    assert set(re.findall(r"--[a-z-]+", line)) <= set(re.findall(r"--[a-z-]+", done.stdout))


def test_a_query_with_a_wrong_name_label_or_value_is_found() -> None:
    assert promql_reading.problems("lastgood_stepp") == ["lastgood_stepp is no series of the catalogue"]
    assert promql_reading.problems('max(rate(lastgood_step{tensor="x"}[1m]))') == ["lastgood_step has no label tensor"]
    wrong = promql_reading.problems('lastgood_checkpoints{trust=~"suspect|dirty"}')
    assert wrong == ["lastgood_checkpoints: trust is never suspect|dirty"]
    assert promql_reading.problems("sum by (run (x)")[0].startswith("does not parse")
