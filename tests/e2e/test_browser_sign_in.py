"""Sign in, act, download and sign out in a real Chromium, at a provider of tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from tests.app.console_server import RUN, Console, run_directory
from tests.app.oidc_provider import Provider
from tests.app.test_sign_in import SHOWN, signing_in
from tests.e2e.test_browser import INCIDENT, Scheme, Visit
from tests.e2e.test_browser_accessibility import severe
from tests.e2e.test_nginx import PREFIX, nginx

from lastgood_console.export.formats import FORMATS
from lastgood_console.server import free_port

pytestmark = pytest.mark.browser

HEADLINE = "computed wrong gradients"
SECRETS = (RUN, "node-b", HEADLINE, "step 50")
WHO = "Ada Lovelace (ada@example.org)"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider() as started:
        yield started


@pytest.fixture(scope="module")
def console(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    place = tmp_path_factory.mktemp("runs")
    run_directory(place)
    with signing_in(provider, place) as started:
        yield started


def sign_in(page: Page, who: str = "Continue as Ada Lovelace") -> None:
    """Press the console's button, and the provider's."""
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name=who).click()


def expect_nothing(page: Page) -> None:
    """Hold that the page asks for a sign-in, and that nothing of any run is in it."""
    expect(page.get_by_role("heading", name="Sign in to see the runs.")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert [word for word in SECRETS if word in page.content()] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 800])
def test_a_link_to_an_incident_leads_past_the_sign_in_to_it_and_the_sign_out_away(
    browser: Browser, provider: Provider, console: Console, width: int, scheme: Scheme
) -> None:
    with Visit(browser, console, "/nodes", width, scheme) as visit:
        page, heard = visit.page, bytearray()
        page.on("websocket", lambda opened: opened.on("framereceived", lambda frame: heard.extend(as_bytes(frame))))
        page.goto(console.address + INCIDENT)
        expect_nothing(page)
        visit.finished()
        assert len(heard) > 1000
        assert [word for word in SECRETS if word.encode() in heard] == []
        assert severe(Axe().run(page).response) == []

        sign_in(page)
        expect(page.locator(".lg-headline")).to_contain_text(HEADLINE, timeout=60_000)
        assert page.url == console.address + INCIDENT
        expect(page.locator(".lg-person")).to_have_text("Ada Lovelace")
        expect(page.locator(".lg-person")).to_have_attribute("title", WHO)
        assert visit.context.request.get(f"{console.address}/api/runs").json()["runs"][0]["run"] == RUN
        fits(page, width)

        page.get_by_role("button", name="Sign out").focus()
        page.keyboard.press("Enter")
        expect_nothing(page)
        assert provider.seen[-1] == "/end"
        assert visit.context.request.get(f"{console.address}/api/runs").status == 401
        page.go_back()
        page.wait_for_timeout(1_000)
        assert [word for word in SECRETS if word in page.content()] == []


def as_bytes(frame: str | bytes) -> bytes:
    return frame if isinstance(frame, bytes) else frame.encode()


def fits(page: Page, width: int) -> None:
    """Hold that who is signed in, the way out and the switch stand beside the pages' names, also while it is paused."""
    page.get_by_role("button", name="Pause refresh").click()
    expect(page.get_by_role("button", name="Continue refresh")).to_be_visible()
    last = page.get_by_role("link", name="Alerts").first.bounding_box()
    tools = page.locator(".st-key-lg-tools").bounding_box()
    menu = page.get_by_test_id("stMainMenu").bounding_box()
    assert last is not None
    assert tools is not None
    assert menu is not None
    assert last["x"] + last["width"] <= tools["x"]
    assert tools["x"] + tools["width"] <= menu["x"]
    for name in ("Sign out", "Continue refresh"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert last["x"] + last["width"] <= box["x"]
        assert box["height"] < 45  # in one line
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name="Continue refresh").click()


def test_a_long_name_leaves_room_for_the_rest(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT, 800) as visit:
        sign_in(visit.page, "Continue as Grace")
        expect(visit.page.locator(".lg-headline")).to_contain_text(HEADLINE, timeout=60_000)
        fits(visit.page, 800)


@pytest.mark.slow
@pytest.mark.parametrize("strip", ["", "/"], ids=["passed", "stripped"])
def test_all_of_it_works_through_a_proxy_below_a_prefix(
    browser: Browser, provider: Provider, nginx_program: str, tmp_path: Path, strip: str
) -> None:
    run_directory(tmp_path)
    proxy = f"http://127.0.0.1:{(port := free_port('127.0.0.1', 18_590))}"
    with signing_in(provider, tmp_path, PREFIX, address=proxy) as own, nginx(nginx_program, tmp_path, own, port, strip):
        page = browser.new_page()
        try:
            page.goto(proxy + PREFIX + INCIDENT)
            expect_nothing(page)
            sign_in(page)
            expect(page.locator(".lg-headline")).to_contain_text(HEADLINE, timeout=60_000)
            assert page.url == proxy + PREFIX + INCIDENT
            assert page.request.get(f"{proxy}{PREFIX}/api/runs").status == 200
            page.get_by_role("button", name="Sign out").click()
            expect_nothing(page)
            assert page.url == f"{proxy}{PREFIX}/"
            page.goto(own.address + PREFIX)
            expect(page.get_by_role("link", name=f"{proxy}{PREFIX}")).to_be_visible(timeout=60_000)
        finally:
            page.close()


def test_who_signed_in_is_who_wrote_and_can_be_nobody_else(
    browser: Browser, provider: Provider, tmp_path: Path
) -> None:
    place = run_directory(tmp_path)
    with signing_in(provider, tmp_path) as own, Visit(browser, own, INCIDENT) as visit:
        page = visit.page
        sign_in(page)
        page.get_by_role("button", name="Acknowledge incident…").click()
        expect(page.get_by_text(f"Written as {WHO}, who is signed in here.")).to_be_visible()
        expect(page.get_by_label("Your name")).to_have_count(0)
        expect(page.get_by_label("Token of this console")).to_have_count(0)
        page.get_by_label("What to say").fill("looking")
        page.get_by_role("button", name="Save to timeline").click()
        expect(page.get_by_text(f"acknowledged by {WHO}")).to_be_visible()
        page.goto(f"{own.address}/checkpoints?run={RUN}")
        page.get_by_role("button", name="Sign out").wait_for()
    (journal,) = (place / "journal" / "console").iterdir()
    (said,) = [json.loads(line)["data"] for line in journal.read_text(encoding="utf-8").splitlines()]
    assert (said["action"], said["author"], said["reason"]) == ("acknowledge", WHO, "looking")


def test_an_export_is_downloaded_by_who_is_signed_in(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        page = visit.page
        sign_in(page)
        page.get_by_role("button", name="Export incident").click()
        with page.expect_download(timeout=30_000) as waiting:
            page.get_by_role("button", name=f"Export {FORMATS['json'].holds} ({FORMATS['json'].name})").click()
        address = console.request("GET", "/api/runs", headers=SHOWN).json()["runs"][0]["incidents"][0]["exports"][
            "json"
        ]
        served = console.request("GET", address, headers=SHOWN)
        assert Path(waiting.value.path()).read_bytes() == served.content
        assert console.get(f"/media/{waiting.value.url.rpartition('/')[2]}").status_code == 401


def test_a_report_is_not_shown_again_after_a_sign_out(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        page = visit.page
        sign_in(page)
        page.get_by_role("button", name="Sign out").wait_for(timeout=60_000)
        run = page.request.get(f"{console.address}/api/runs").json()["runs"][0]
        page.goto(console.address + run["incidents"][0]["exports"]["html"])
        expect(page.locator("body")).to_contain_text(HEADLINE)
        page.goto(f"{console.address}/auth/logout")
        expect_nothing(page)
        page.go_back()
        expect(page.locator("body")).to_contain_text("sign in on the console's pages first")


def test_a_sign_out_clears_the_other_tabs_of_the_browser(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        sign_in(visit.page)
        other = visit.context.new_page()
        other.goto(f"{console.address}/checkpoints?run={RUN}")
        expect(other.locator("[data-testid=stMain]")).to_contain_text(RUN, timeout=60_000)
        visit.page.get_by_role("button", name="Sign out").click()
        expect_nothing(visit.page)
        expect_nothing(other)


def test_who_is_refused_is_told_and_may_try_again(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        sign_in(visit.page, "Refuse")
        expect(visit.page.get_by_role("alert").filter(has_text="You came back without being signed in")).to_be_visible()
        expect_nothing(visit.page)
        sign_in(visit.page)
        expect(visit.page.locator(".lg-headline")).to_contain_text(HEADLINE, timeout=60_000)
