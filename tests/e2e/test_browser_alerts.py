"""Open what an alert's links lead to in a real Chromium: the incident with its alerts, the node, the runbook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.app.console_server import RUN, Console, run_directory, story
from tests.app.webhooks import alert, alertmanager, body

pytestmark = pytest.mark.browser

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console on two runs in which one device lied, with the alert of the first and a Watchdog."""
    runs: Path = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    run_directory(runs, story("other-run", recovered=True))
    with Console(runs) as started:
        incident = incident_of(started)
        mine = {"run": RUN, "incident": incident, "check": "replay", "rank": "3", "node": "node-b"}
        payload = alertmanager(alert(starts="2026-11-29T02:01:20Z", **mine), alert("Watchdog", fingerprint="w"))
        answer = started.request("POST", "/api/alerts", content=body(payload), headers=JSON)
        assert answer.json() == {"accepted": 1, "duplicates": 0, "heartbeats": 1, "rejected": []}
        yield started


def incident_of(console: Console) -> str:
    found = console.get("/api/runs").json()["runs"]
    return str(next(run["incidents"][0]["id"] for run in found if run["run"] == RUN))


class Sight:
    """A page of the console, what went wrong on it, and whom it asked."""

    def __init__(self, browser: Browser, console: Console, path: str, width: int = 1440) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900})
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.goto(console.address + path)
        self.page.wait_for_selector(".lg-head, .lg-headline", timeout=60_000)

    def __enter__(self) -> Sight:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()


@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("path", ["/nodes", "/nodes?node=node-b", "/runbook", "/runbook?name=ReplayMismatch", "/"])
def test_a_page_opens_without_an_error_and_without_scrolling_sideways(
    browser: Browser, console: Console, path: str, width: int
) -> None:
    with Sight(browser, console, path, width) as sight:
        expect(sight.page.locator("[data-testid=stException]")).to_have_count(0)
        assert sight.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
        assert sight.problems == []
        assert sight.hosts == {f"127.0.0.1:{console.port}"}


def test_the_alert_stands_in_the_incident_with_the_time_it_fired_and_its_step(
    browser: Browser, console: Console
) -> None:
    with Sight(browser, console, f"/incident?run={RUN}&incident={incident_of(console)}") as sight:
        told = sight.page.locator(".lg-table tr", has_text="ReplayMismatch fired about step 100, critical")
        expect(told).to_have_count(1, timeout=30_000)
        expect(told.locator("td").first).to_have_text("02:01:20")
        expect(told.locator("td").last).to_have_text("Alertmanager")


def test_the_repeat_offender_is_seen_at_once_and_leads_to_its_incidents(browser: Browser, console: Console) -> None:
    with Sight(browser, console, "/nodes") as sight:
        expect(sight.page.locator(".lg-page")).to_have_text("node-b has lied 2 times in 90 days. Keep it drained.")
        expect(sight.page.locator(".lg-dev-repeat")).to_have_count(1)
        sight.page.get_by_role("link", name=f"{RUN} › {incident_of(console)}").click()
        expect(sight.page.locator(".lg-headline")).to_contain_text("computed wrong gradients", timeout=30_000)
        assert f"incident={incident_of(console)}" in sight.page.url


def test_a_search_narrows_the_devices_and_can_be_cleared(browser: Browser, console: Console) -> None:
    with Sight(browser, console, "/nodes?node=node-9") as sight:
        expect(sight.page.get_by_text("No node and no GPU matches 'node-9'.")).to_be_visible(timeout=30_000)
        sight.page.get_by_role("button", name="Clear the search").click()
        expect(sight.page.get_by_role("region", name="Devices").locator("tbody tr")).to_have_count(8, timeout=30_000)
        box = sight.page.get_by_role("textbox")
        expect(box).to_have_value("")
        box.fill("node-c")
        box.press("Enter")
        expect(sight.page.get_by_role("region", name="Devices").locator("tbody tr")).to_have_count(2, timeout=30_000)
        assert "node=node-c" in sight.page.url


def test_a_runbook_leads_to_the_others_and_its_commands_are_whole(browser: Browser, console: Console) -> None:
    with Sight(browser, console, "/runbook?name=ReplayMismatch") as sight:
        code = sight.page.locator(".st-key-lg-prose pre")
        expect(code.first).to_be_visible(timeout=30_000)
        whole = "e => e.scrollWidth <= e.clientWidth + 1"
        blocks = f"[...document.querySelectorAll('.st-key-lg-prose pre')].every({whole})"
        sight.page.wait_for_function(f"() => {blocks}", timeout=30_000)  # once fonts and columns are in place
        sight.page.get_by_role("button", name="All runbooks").click()
        expect(sight.page.locator(".lg-page")).to_have_text("Runbooks.", timeout=30_000)
        sight.page.get_by_role("button", name="Watchdog", exact=True).click()
        expect(sight.page.locator(".lg-page")).to_have_text("Watchdog", timeout=30_000)


def test_the_overview_says_that_alerts_find_their_way(browser: Browser, console: Console) -> None:
    with Sight(browser, console, "/") as sight:
        expect(sight.page.get_by_text("alert path alive, last heartbeat")).to_be_visible(timeout=30_000)


def test_on_a_narrow_screen_the_way_into_every_run_stands_at_one_place(browser: Browser, console: Console) -> None:
    with Sight(browser, console, "/", 800) as sight:
        links = sight.page.locator("[class*=st-key-lg-run-]").get_by_role("link", name="Open incident")
        expect(links).to_have_count(2, timeout=30_000)
        in_line = "n => new Set(n.map(e => e.getBoundingClientRect().left)).size === 1"
        assert links.evaluate_all(in_line)


def test_a_name_in_a_table_of_alerts_leads_to_the_runbook_and_the_node(browser: Browser, console: Console) -> None:
    with Sight(browser, console, "/nodes?node=node-b") as sight:
        row = sight.page.locator(".lg-table tr", has_text="ReplayMismatch")
        expect(row).to_have_count(1, timeout=30_000)
        row.get_by_role("link", name="ReplayMismatch").click()
        expect(sight.page.locator(".lg-page")).to_have_text("ReplayMismatch", timeout=30_000)
        beside = sight.page.locator(".lg-facts")
        expect(beside.get_by_role("link", name="node-b")).to_be_visible(timeout=30_000)
        beside.get_by_role("link", name="node-b").click()
        expect(sight.page.locator(".lg-page")).to_contain_text("node-b has lied", timeout=30_000)
        assert "node=node-b" in sight.page.url


def test_on_a_narrow_screen_no_link_of_a_device_is_cut_and_what_scrolls_says_so(
    browser: Browser, console: Console
) -> None:
    with Sight(browser, console, "/nodes?node=node-b", 800) as sight:
        link = sight.page.get_by_role("link", name=f"{RUN} › {incident_of(console)}")
        expect(link).to_be_visible(timeout=30_000)
        box = link.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 784
        rows = sight.page.locator(".st-key-lg-devices")
        assert rows.evaluate("e => e.scrollWidth <= e.clientWidth")
        shade = "e => getComputedStyle(e).backgroundAttachment"
        assert "scroll" in sight.page.locator(".lg-scroll").first.evaluate(shade)
        name = sight.page.locator(".lg-table td", has_text="node-b").first
        assert name.evaluate("e => e.getClientRects().length") == 1
