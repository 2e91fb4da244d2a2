"""The page of what lastgood can never do names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "no-harm.md"


def test_every_line_of_the_page_names_a_test_that_is_there() -> None:
    there = {
        name for path in TESTS.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(test_\w+)`", row) for row in rows]
    assert all(named), "a line without a test"
    assert {name for names in named for name in names} <= there


def test_every_test_of_harm_stands_on_the_page() -> None:
    text = PAGE.read_text()
    files = ("test_no_harm.py", "test_no_harm_ranks.py")
    ours = [name for file in files for name in re.findall(r"^def (test_\w+)", (TESTS / file).read_text(), re.M)]
    assert [name for name in ours if f"`{name}`" not in text] == []
