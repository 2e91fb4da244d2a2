"""The drill's command line, its lines for the terminal and its picture; no training."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lastgood.drill.plan import CONTROL
from lastgood.drill.score import Outcome
from lastgood.drill.summary import document
from lastgood.errors import ConfigError
from lastgood_console.drill.job import groups_for
from lastgood_console.drill.options import Options, parse
from lastgood_console.drill.picture import render
from lastgood_console.drill.screen import followed, say_results

ABOUT = {"lastgood": "0.1.0", "seed": 0, "ranks": 3, "size": "default", "only": "", "controls": 0, "seconds": 99}
HOSTILE = "</td><script>alert(1)</script>\u202e"


def outcome(**facts: Any) -> Outcome:
    usual = {
        "trial": "0001-gradient-scale", "row": "gradient", "kind": "scale", "when": "permanent", "result": "detected",
        "checks": ("replay",), "latency": 3, "blame": "right", "names": True, "window": True, "last_good": True,
        "steps": 24,
    }  # fmt: skip
    return Outcome(**{**usual, **facts})


OUTCOMES = (
    outcome(),
    outcome(result="outside", checks=(), latency=None, blame="", when="transient"),
    outcome(row="weight", kind="sign", result="missed", complaints=("replica did not find it at step 8 to 8",)),
    outcome(row="checkpoint", kind="byte", checks=("load",), latency=None),
    outcome(row="optimizer exp_avg", kind="nan", result="no effect", checks=(), latency=None, blame=""),
    outcome(row=CONTROL, kind="clean", result="clean", trial="clean-1", checks=(), latency=None, blame=""),
)


def test_the_defaults_are_a_short_drill_on_three_nodes() -> None:
    options = parse([])
    assert options == Options()
    assert (options.size.every_when, options.size.controls) == (False, 0)
    assert parse(["--full", "--controls", "2000"]).size.controls == 2000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "--seed -1: a seed is 0 or more"),
        (["--controls", "-5"], "--controls -5: a number of steps is 0 or more"),
        (["--ranks", "1"], "--ranks: invalid choice: 1"),
        (["--json", "/no/such/folder/a.json"], "its folder does not exist"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(arguments)


def test_a_run_directory_must_be_its_own(tmp_path: Path) -> None:
    assert parse(["--run-dir", str(tmp_path / "new")]).run_dir == tmp_path / "new"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="it is not empty; give a directory of its own"):
        parse(["--run-dir", str(tmp_path)])


def test_a_part_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="--only brakes: no trial has that in its name"):
        parse(["--only", "brakes"]).plan()
    assert len(parse(["--only", "clean-1"]).plan()) == 1


def test_a_fault_that_no_script_is_run_under_is_refused_before_anything_trains(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    words = "--only brakes: no fault that a script is run under has that in its name; there are 01-gradient-scale-perm"
    with pytest.raises(ConfigError, match=words):
        parse(["--script", str(script), "--only", "brakes"])
    assert parse(["--script", str(script), "--only", "09-weight"]).only == "09-weight"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--script", __file__, "--time-limit", "0"], "--time-limit 0.0: a limit is a number of seconds above 0"),
        (["--script", __file__, "--time-limit", "inf"], "--time-limit inf: a limit is a number of seconds above 0"),
        (["--time-limit", "60"], "--time-limit is for the runs of --script: name one"),
    ],
)
def test_a_time_limit_is_a_time_and_for_a_script(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(arguments)
    assert parse(["--script", __file__, "--time-limit", "90"]).time_limit == 90


def told(outcomes: tuple[Outcome, ...] = OUTCOMES) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=False, color_system=None, width=160)
    say_results(list(followed(iter(outcomes), [], Options(), console)), ABOUT, console)
    return out.getvalue()


def test_the_terminal_says_rows_kinds_targets_and_what_missed_one() -> None:
    text = told()
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert rows["gradient"][1:7] == ["2", "1", "1", "replay", "3", "3"]
    assert rows["all"][1:4] == ["5", "3", "2"]
    assert "✗ inside reach: detected: 2 of 3" in text
    assert "✓ no healthy device accused: 6 of 6" in text
    assert "Controls: 1 jobs without a fault, 24 steps, 0 findings." in text
    assert "✗ 0001-gradient-scale: replica did not find it at step 8 to 8" in text


def test_no_line_is_wider_than_the_terminal_it_is_written_for() -> None:
    assert max(len(line) for line in told().splitlines()) <= 160


def squares(page: str) -> dict[str, list[str]]:
    body = re.search(r'class="map">.*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert body
    rows = re.findall(r"<tr><td>(.*?)</td>(.*?)</tr>", body.group(1), re.DOTALL)
    return {name: re.findall(r'<td(?: class="(\w+)")?', cells) for name, cells in rows}


def test_the_picture_marks_found_lost_far_and_no_effect() -> None:
    page = render(document(OUTCOMES, ABOUT))
    marks = squares(page)
    assert "found" in marks["gradient"]
    assert "lost" in marks["weight"]
    assert "none" in marks["optimizer exp_avg"]
    assert "✓1 <small>○1</small>" in page
    assert "2 of 8 targets missed" in page
    assert "Every target reached" in render(document(OUTCOMES[:2], ABOUT))


def test_the_picture_needs_nothing_else_and_runs_nothing() -> None:
    page = render(document(OUTCOMES, ABOUT))
    assert "default-src 'none'" in page
    assert not re.search(r"<script|src=|href=|@import|url\(", page)


def test_every_value_is_escaped() -> None:
    odd = tuple(dataclasses.replace(o, trial=HOSTILE, kind=HOSTILE, complaints=(HOSTILE,)) for o in OUTCOMES[:2])
    page = render(document(odd, {name: HOSTILE for name in ABOUT}))
    assert "<script>" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize(
    ("trials", "ranks", "cores", "groups"),
    [(3, 3, 64, 1), (16, 3, 2, 2), (123, 3, 2, 2), (123, 8, 2, 2), (123, 3, 16, 5), (20, 3, 64, 2), (1030, 3, 192, 8)],
)
def test_groups_fill_the_cores_and_have_enough_to_do(trials: int, ranks: int, cores: int, groups: int) -> None:
    assert groups_for(trials, ranks, cores) == groups
