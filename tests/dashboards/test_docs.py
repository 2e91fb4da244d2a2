"""docs/dashboards.md says what there is: every dashboard, row and panel, and nothing beside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lastgood_dashboards.frame import BOARDS
from lastgood_dashboards.spec import Board

PAGE = (Path(__file__).parents[2] / "docs" / "dashboards.md").read_text(encoding="utf-8")
PERIODS = {"now-1h": "the last hour", "now-6h": "the last 6 hours", "now-24h": "the last 24 hours"}


def section(board: Board) -> str:
    return PAGE.partition(f"\n## {board.title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_row_and_panel_is_on_the_page_in_its_order(board: Board) -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section(board), re.MULTILINE)[1:]
    assert [title for title, _ in rows if title != "---"] == [row.title for row in board.rows]
    for row, (_, said) in zip(board.rows, [found for found in rows if found[0] != "---"], strict=True):
        named = said.split(" · ")
        assert len(named) == len(row.panels)
        assert all(text.startswith(panel.title) for text, panel in zip(named, row.panels, strict=True))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_uid_and_time_range_are_on_the_page(board: Board) -> None:
    assert f"`{board.uid}`, {PERIODS[board.since]}." in section(board)
