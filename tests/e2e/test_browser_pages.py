"""Open checkpoints, alerts and the fleet map in a real Chromium, and hold the pages still there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.app.console_server import RUN, Console, run_directory, story
from tests.app.test_tokens import contrast
from tests.app.webhooks import alert, alertmanager
from tests.e2e.test_browser import Scheme, Visit, hex_of
from tests.exporter.histories import History

from lastgood.events import utc

pytestmark = pytest.mark.browser

ACCUSED = 40 * 2 + 1


def fleet() -> History:
    """Return a running run over 300 nodes, one of them accused and left out, and bytes that nobody verified."""
    nodes = [f"node-{n:04}" for n in range(300)]
    made = History(run="fleet").start(nodes=nodes).save(0).audit(1, phase="first").save(50).audit(50).save(75)
    made.audit(100, failed=[ACCUSED]).find("replay", 100, [ACCUSED])
    made.rule("attributed", ("replay", 100, "audit"), accused=[ACCUSED], nature="persistent")
    made.end(100).wait(20)
    left = [node for node in nodes if node != "node-0040"]
    return made.start(50, (1, 50, made.path(50)), nodes=left, verified=False).audit(51, phase="first").save(75)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    run_directory(place)
    run_directory(place, fleet())
    return place


@pytest.fixture(scope="module")
def console(runs: Path) -> Iterator[Console]:
    with Console(runs) as started:
        send(started)
        yield started


def send(console: Console) -> None:
    """Let Alertmanager tell of a stale ledger and of many silent ranks."""
    began = utc(httpx_time(console) - 60)
    silent = [
        alert("RankSilent", starts=began, fingerprint=f"r{n}", run="fleet", severity="warning", node=f"node-{n:04}")
        for n in range(90)
    ]
    stale = alert("LedgerStale", starts=began, fingerprint="stale")
    assert console.request("POST", "/api/alerts", json=alertmanager(stale, *silent)).status_code == 200


def httpx_time(console: Console) -> float:
    """Return the console's own time."""
    from email.utils import parsedate_to_datetime

    return parsedate_to_datetime(httpx.get(console.address + "/healthz").headers["date"]).timestamp()


PAGES = {
    "/checkpoints?run=fleet": "Resume fleet from step 50.",
    "/alerts": "One critical alert stands.",
    "/nodes": "2 nodes lied once each in 90 days.",
    "/": "A critical alert stands outside these runs: LedgerStale.",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens_without_an_error_and_fits(
    browser: Browser, console: Console, path: str, width: int, scheme: Scheme
) -> None:
    with Visit(browser, console, path, width, scheme) as visit:
        visit.finished()
        expect(visit.page.locator(".lg-page")).to_contain_text(PAGES[path])
        expect(visit.page.locator("[data-testid=stException]")).to_have_count(0)
        assert visit.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
        assert [p for p in visit.problems if "/_stcore/" not in p] == []
        assert visit.hosts == {f"127.0.0.1:{console.port}"}


def address(page: Page) -> str:
    """Return what the address asks for, as the browser has it now."""
    return str(page.evaluate("location.search"))


def until_address(page: Page, wanted: str) -> None:
    page.wait_for_function("wanted => location.search === wanted", arg=wanted, timeout=30_000)


def test_a_node_of_the_map_is_picked_and_stays_picked(browser: Browser, console: Console) -> None:
    with Visit(browser, console, "/nodes") as visit:
        page = visit.page
        chart = page.locator("[data-testid=stVegaLiteChart] :is(svg, canvas)").first
        chart.wait_for(timeout=60_000)
        visit.finished()
        chart.click(position={"x": 700, "y": 50})  # between two rows: the nearer one is meant
        page.wait_for_function("location.search.startsWith('?node=node-')", timeout=30_000)
        picked = address(page)
        node = picked.removeprefix("?node=")
        expect(page.get_by_role("heading", name=f"{node} · history")).to_be_visible(timeout=30_000)
        page.get_by_role("radio", name="Last seen").click()
        until_address(page, f"{picked}&measure=seen")
        page.wait_for_timeout(5_000)  # two ticks of the live refresh
        assert address(page) == f"{picked}&measure=seen"
        expect(page.get_by_role("heading", name=f"{node} · history")).to_be_visible()
        page.get_by_role("button", name="Show all nodes").click()
        until_address(page, "?measure=seen")


def test_a_filter_is_part_of_the_address(browser: Browser, console: Console) -> None:
    with Visit(browser, console, "/alerts") as visit:
        expect(visit.page.get_by_role("link", name="all 90")).to_be_visible()
        visit.page.get_by_role("radio", name="critical").click()
        until_address(visit.page, "?severity=critical")
        expect(visit.page.get_by_role("link", name="all 90")).to_have_count(0)
        expect(visit.page.get_by_role("link", name="LedgerStale")).to_be_visible()


def test_pages_are_held_still_by_the_keyboard(browser: Browser, runs: Path, console: Console) -> None:
    with Visit(browser, console, f"/checkpoints?run={RUN}") as visit:
        page = visit.page
        switch = page.get_by_role("button", name="Pause refresh")
        switch.focus()
        page.keyboard.press("Enter")
        expect(page.locator(".lg-head")).to_contain_text("paused since", timeout=30_000)
        run_directory(runs, story("newer"))
        page.wait_for_timeout(5_000)
        page.get_by_role("link", name="Overview").click()
        expect(page.locator(".lg-head")).to_contain_text("paused since", timeout=30_000)
        expect(page.get_by_role("heading", name="newer")).to_have_count(0)
        page.get_by_role("button", name="Continue refresh").click()
        expect(page.get_by_role("heading", name="newer")).to_be_visible(timeout=30_000)
        expect(page.locator(".lg-head")).not_to_contain_text("paused")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_checkpoint_is_accepted_on_its_page(browser: Browser, tmp_path: Path, scheme: Scheme) -> None:
    run_directory(tmp_path, fleet())
    with Console(tmp_path) as own, Visit(browser, own, "/checkpoints", scheme=scheme) as visit:
        page = visit.page
        page.get_by_role("button", name="Accept a checkpoint…").click()
        button = page.get_by_role("button", name="Accept checkpoint")
        ink = button.evaluate("n => getComputedStyle(n.querySelector('p')).color")
        ground = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
        assert button.evaluate("n => getComputedStyle(n).backgroundColor") == "rgba(0, 0, 0, 0)"
        assert contrast(hex_of(ink), hex_of(ground)) >= 4.5
        page.get_by_label("Your name").fill("mira")
        page.get_by_label("Why it can be trusted").fill("compared by hand")
        button.click()
        expect(page.get_by_text("Accepted what attempt 2 was resumed from")).to_be_visible(timeout=30_000)
        (journal,) = (tmp_path / "fleet" / "journal" / "console").iterdir()
        assert '"action": "accept"' in journal.read_text() or '"action":"accept"' in journal.read_text()
