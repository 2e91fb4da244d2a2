"""Hold live pages: a tick without news draws the head alone, and news draws the whole page, through a real console."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.console_server import Console, run_directory, story
from tests.app.streamlit_tab import Tab

from lastgood_console.live import DRAWN_SECONDS, Drawn

pytestmark = pytest.mark.slow

PAGES = ["", "nodes", "checkpoints"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run_directory(tmp_path / "runs", story(recovered=True))
    return tmp_path / "runs"


@pytest.fixture
def console(runs: Path) -> Iterator[Console]:
    with Console(runs) as started:
        yield started


def opened(tab: Tab, page: str) -> tuple[int, str]:
    """Open a page; return how many elements it drew and the part that ticks."""
    tab.ask(page=page)
    (part,) = tab.parts()
    return tab.drawn(), part


@pytest.mark.parametrize("page", PAGES)
def test_a_tick_without_news_draws_the_head_alone(console: Console, page: str) -> None:
    with Tab(console, {}) as tab:
        whole, part = opened(tab, page)
        time.sleep(2.5)  # the ledger is read again, twice
        said = tab.ask(part=part)
        assert b"data " in said
        assert b" old" in said
        assert tab.drawn() <= 2 < 10 < whole


@pytest.mark.parametrize("page", PAGES)
def test_a_tick_with_news_draws_the_whole_page(console: Console, runs: Path, page: str) -> None:
    with Tab(console, {}) as tab:
        whole, part = opened(tab, page)
        run_directory(runs, story("second-run"))
        end = time.monotonic() + 5
        while b"second-run" not in tab.ask(part=part) and time.monotonic() < end:
            time.sleep(0.2)
        assert b"second-run" in tab.heard
        assert tab.drawn() >= whole


def test_a_page_is_old_with_news_another_theme_or_ages_of_ten_seconds() -> None:
    drawn = Drawn(7, 1000.0, "light")
    assert not drawn.is_old(7, 1009.9, "light")
    assert drawn.is_old(8, 1000.0, "light")
    assert drawn.is_old(7, 1000.0, "dark")
    assert drawn.is_old(7, 1000.0 + DRAWN_SECONDS, "light")
