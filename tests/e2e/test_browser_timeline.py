"""Zoom, move and read the timeline in a real Chromium, at the density of a long run and at small widths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.app.console_server import Console, run_directory, story
from tests.e2e.test_browser import Visit
from tests.exporter.test_fleet_benchmark import write

from lastgood_console.components.time_frame import stamp, unix

pytestmark = pytest.mark.browser

ADDRESS = "/incident?run=long-run"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs, story("long-run", recovered=True))
    with Console(runs) as started:
        yield started


def picture(page: Page) -> Any:
    """Return the timeline on the page."""
    return page.locator("[data-testid=stVegaLiteChart]").first


def clocks(page: Page) -> list[str]:
    """Return the times that the picture's axis names."""
    told = picture(page).locator("svg .role-axis-label text").all_text_contents()
    return [text for text in told if re.fullmatch(r"\d\d:\d\d(:\d\d)?", text)]


def zoom_in(page: Page, turns: int = 3) -> None:
    """Turn the wheel over the picture with Ctrl held."""
    box = picture(page).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.keyboard.down("Control")
    for _ in range(turns):
        page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    page.wait_for_url("**from=*", timeout=30_000)


def zoomed(page: Page) -> tuple[str, str]:
    """Return the ends of the zoom that the address names."""
    found = re.search(r"from=([^&]+)&to=([^&]+)", page.url)
    assert found, page.url
    return found[1], found[2]


def test_a_zoom_is_in_the_address_survives_news_and_is_undone_by_a_double_click(
    browser: Browser, tmp_path: Path
) -> None:
    whole = story("long-run", recovered=True)
    now, later = [e for e in whole.events if e.attempt == 1], [e for e in whole.events if e.attempt == 2]
    whole.events = now
    run_directory(tmp_path, whole)
    with Console(tmp_path) as console, Visit(browser, console, ADDRESS) as visit:
        visit.charts()
        page, before = visit.page, clocks(visit.page)
        picture(page).scroll_into_view_if_needed()
        zoom_in(page)
        visit.finished()
        near, ends = clocks(page), zoomed(page)
        assert near != before
        picture(page).locator("svg, canvas").first.evaluate("e => e.dataset.kept = 'yes'")
        whole.events = later
        run_directory(tmp_path, whole)
        expect(page.get_by_text("recovered by attempt 2 after")).to_be_attached(timeout=30_000)
        page.wait_for_timeout(2_500)
        assert (clocks(page), zoomed(page)) == (near, ends)
        page.get_by_role("button", name="Reset zoom").wait_for()
        box = picture(page).bounding_box()
        assert box is not None
        page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 60)
        page.wait_for_url(lambda url: "from=" not in url, timeout=30_000)
        expect(page.get_by_role("button", name="Reset zoom")).to_have_count(0)
        assert visit.problems == []


def test_the_wheel_alone_goes_down_the_page(browser: Browser, console: Console) -> None:
    with Visit(browser, console, ADDRESS) as visit:
        visit.charts()
        page = visit.page
        picture(page).scroll_into_view_if_needed()
        before = page.locator("[data-testid=stMain]").evaluate("e => e.scrollTop")
        box = picture(page).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
        page.mouse.wheel(0, 120)
        page.wait_for_timeout(1_000)
        assert page.locator("[data-testid=stMain]").evaluate("e => e.scrollTop") > before
        assert "from=" not in page.url


def test_the_keyboard_zooms_and_the_peers_follow(browser: Browser, console: Console) -> None:
    with Visit(browser, console, ADDRESS) as visit:
        visit.charts()
        page = visit.page
        page.get_by_role("button", name="Zoom in").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**from=*", timeout=30_000)
        expect(page.get_by_text("The zoom shows none of its steps")).to_have_count(0)
        for _ in range(4):
            ends = zoomed(page)
            page.get_by_role("button", name="Later").press("Enter")
            page.wait_for_function("ends => !location.href.includes(ends)", arg=f"from={ends[0]}&", timeout=30_000)
        expect(page.get_by_text("The zoom shows none of its steps, 1 to 100.")).to_be_visible()
        page.get_by_role("button", name="Reset zoom").press("Enter")
        expect(page.get_by_text("The zoom shows none of its steps")).to_have_count(0, timeout=30_000)
        visit.charts()


def test_an_address_shows_its_time_and_another_scope_drops_the_zoom(browser: Browser, console: Console) -> None:
    start = story("long-run").events[0].time
    low, high = stamp(unix(start) + 20), stamp(unix(start) + 40)
    with Visit(browser, console, f"{ADDRESS}&scope=run&from={low}&to={high}") as visit:
        visit.charts()
        page = visit.page
        assert set(clocks(page)) >= {low[11:19]} or low[11:16] in clocks(page)[0]
        expect(page.get_by_text(f"{low[11:19]} to {high[11:19]} UTC")).to_be_visible()
        page.get_by_role("radiogroup", name="Shown time").get_by_text("Attempt", exact=True).click()
        page.wait_for_url(lambda url: "scope=attempt" in url and "from=" not in url, timeout=30_000)
        expect(page.get_by_role("button", name="Reset zoom")).to_have_count(0)


def test_the_browsers_back_undoes_one_choice_of_time_after_the_other(browser: Browser, console: Console) -> None:
    with Visit(browser, console, ADDRESS) as visit:
        visit.charts()
        page, seen = visit.page, [(visit.page.url, clocks(visit.page))]
        length = page.evaluate("history.length")
        for choose in ("Zoom in", "Zoom in", "Whole run"):
            page.get_by_text(choose, exact=True).click()
            page.wait_for_url(lambda url: url != seen[-1][0], timeout=30_000)
            visit.finished()
            page.wait_for_timeout(1_000)
            seen.append((page.url, clocks(page)))
        assert page.evaluate("history.length") == length + 3
        for url, shown in seen[-2::-1]:
            page.go_back()
            page.wait_for_url(url, timeout=30_000)
            visit.finished()
            page.wait_for_timeout(1_000)
            assert clocks(page) == shown, url


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Return a console on 54 days of a run: restarts, saves, findings, alerts and notes at their real density."""
    folder = tmp_path_factory.mktemp("fleet")
    write(folder, ranks=64)
    with Console(folder) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["incident", "attempt", "run"])
@pytest.mark.parametrize("width", [800, 1440])
def test_at_real_density_no_label_meets_another_or_leaves_the_picture(
    browser: Browser, dense: Console, width: int, scope: str
) -> None:
    with Visit(browser, dense, f"/incident?scope={scope}", width) as visit:
        drawn = picture(visit.page).locator("svg")
        drawn.wait_for(timeout=60_000)
        visit.finished()
        frame = picture(visit.page).bounding_box()
        assert frame is not None
        boxes = drawn.evaluate(
            """svg => [...svg.querySelectorAll('.mark-text text:not([stroke-width])')]
            .filter(t => t.textContent.trim().length > 1)  // those with a stroke are the rims of others
            .map(t => { const b = t.getBoundingClientRect();
                        return [t.textContent, b.left, b.top, b.right, b.bottom] })"""
        )
        assert len(boxes) > 5
        outside = [b for b in boxes if b[1] < frame["x"] or b[3] > frame["x"] + frame["width"] + 1]
        assert outside == []
        assert [(a[0], b[0]) for a, b in combinations(boxes, 2) if _meet(a, b)] == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


def _meet(a: list[Any], b: list[Any]) -> bool:
    return bool(a[1] < b[3] - 1 and b[1] < a[3] - 1 and a[2] < b[4] - 4 and b[2] < a[4] - 4)
