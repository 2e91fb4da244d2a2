"""Open the pages in a real Chromium: what a person sees, and what AppTest cannot see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Response, expect
from tests.app.console_server import RUN, Console, run_directory, story
from tests.app.test_tokens import contrast

from lastgood_console.components.css import streamlit_selectors
from lastgood_console.export.formats import FORMATS
from lastgood_console.export.tokens import THEMES, ThemeName, theme

pytestmark = pytest.mark.browser

Scheme = Literal["light", "dark"]
RECOVERED = "recovered-run"
INCIDENT = f"/incident?run={RUN}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    run_directory(place)
    run_directory(place, story(RECOVERED, recovered=True))
    return place


@pytest.fixture(scope="module")
def console(runs: Path) -> Iterator[Console]:
    with Console(runs) as started:
        yield started


class Visit:
    """One page of the console in a window of its own, and what went wrong there."""

    def __init__(self, browser: Browser, console: Console, path: str, width: int = 1440, scheme: Scheme = "light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.on("response", self._look)
        self.page.goto(console.address + path)
        self.page.wait_for_selector(".lg-strip, .lg-empty, .lg-head", timeout=60_000)

    def _hear(self, message: object) -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        if kind in {"error", "warning"} and "404" not in text:  # missing files are heard in _look, with their address
            self.problems.append(f"{kind}: {text}")

    def _look(self, response: Response) -> None:
        # on a deep link Streamlit looks for itself below the page's path before it looks at the root
        if response.status >= 400 and not re.search(r"//[^/]+/\w+/_stcore/", response.url):
            self.problems.append(f"{response.status} {response.url}")

    def charts(self) -> None:
        """Wait until both charts are drawn."""
        drawn = self.page.locator("[data-testid=stVegaLiteChart] :is(svg, canvas)")
        expect(drawn).to_have_count(2, timeout=60_000)

    def finished(self) -> None:
        """Wait until the page's script has run to its end."""
        done = '[data-testid="stApp"][data-test-script-state="notRunning"]'
        self.page.locator(done).wait_for(state="attached", timeout=60_000)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("path", ["/", INCIDENT])
def test_a_page_opens_without_an_error_and_asks_no_other_host(
    browser: Browser, console: Console, path: str, width: int, scheme: Scheme
) -> None:
    with Visit(browser, console, path, width, scheme) as visit:
        if path == INCIDENT:
            visit.charts()
        page = visit.page
        expect(page.locator("[data-testid=stException]")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
        background = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
        symbol = page.evaluate("getComputedStyle(document.querySelector('.lg-s-trusted')).backgroundColor")
        assert (background, symbol) == (rgb(theme(scheme)["bg"]), rgb(theme(scheme)["trusted"]))
        assert visit.problems == []
        assert visit.hosts == {f"127.0.0.1:{console.port}"}


def rgb(colour: str) -> str:
    """Return a colour as the browser tells it."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


@pytest.mark.parametrize("run", [RUN, RECOVERED])
def test_the_first_screenful_of_an_incident_fits_1440_by_900(browser: Browser, console: Console, run: str) -> None:
    with Visit(browser, console, f"/incident?run={run}") as visit:
        box = visit.page.locator(".lg-key").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900
        assert visit.page.locator(".st-key-lg-crumb").bounding_box()["y"] < 70, "nothing unseen takes room above"  # type: ignore[index]
        for word in ("RESUME FROM", "DO NOT USE", "WHY", "AGAINST", "UNKNOWN", "DO"):
            expect(visit.page.get_by_text(word, exact=True)).to_be_visible()


def test_below_900_px_resume_from_takes_the_whole_width(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT, 800) as visit:
        boxes = [
            visit.page.locator(f"[class*=st-key-lg-panel-{n}]").bounding_box() for n in ("resume", "avoid", "cost")
        ]
        resume, avoid, cost = (box for box in boxes if box is not None)
        assert resume["width"] > 740
        assert avoid["y"] == cost["y"] > resume["y"]


def test_every_name_of_streamlits_own_in_our_styles_still_matches(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        visit.charts()
        visit.finished()
        here = {name for name in streamlit_selectors() if visit.page.locator(name).count()}
        for menu, button in (
            ("Export incident", "Export report (HTML)"),
            ("Acknowledge incident…", "Save to timeline"),
        ):
            visit.page.get_by_role("button", name=menu).click()
            visit.page.get_by_role("button", name=button).wait_for()
            if button == "Save to timeline":
                visit.page.get_by_role("button", name=button).click()
                visit.page.get_by_text("Who says so?").wait_for()
            here |= {name for name in streamlit_selectors() if visit.page.locator(name).count()}
            visit.page.keyboard.press("Escape")
        visit.page.goto(console.address + "/")
        # the status widget is shown only while a script runs
        for name in set(streamlit_selectors()) - here - {'[data-testid="stStatusWidget"]'}:
            visit.page.locator(name).first.wait_for(state="attached", timeout=60_000)


def test_the_copy_button_is_there_without_hovering_and_copies_exact_digits(browser: Browser, console: Console) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
        button = visit.page.locator(".lg-code").first.get_by_role("button", name="Copy to clipboard")
        shown = button.evaluate(
            "e => { let o = 1; for (; e; e = e.parentElement) o *= getComputedStyle(e).opacity; return o }"
        )
        assert shown == 1
        button.click()
        command = 'monitor.resume("checkpoints/a1-step-000050")'
        expect(button).to_have_attribute("data-said", "copied")
        assert visit.page.evaluate("navigator.clipboard.readText()") == command
        # where a page comes over plain HTTP there is no clipboard interface; the keyboard works too
        visit.page.evaluate("() => { navigator.clipboard.writeText('') }")
        visit.page.wait_for_timeout(2_200)
        visit.page.evaluate("() => { Object.defineProperty(navigator, 'clipboard', {value: undefined}) }")
        button.press("Enter")
        expect(button).to_have_attribute("data-said", "copied")
        assert visit.problems == []


@pytest.mark.parametrize("scheme", THEMES)
def test_the_words_on_the_first_button_can_be_read(browser: Browser, console: Console, scheme: ThemeName) -> None:
    with Visit(browser, console, INCIDENT, scheme=scheme) as visit:
        button = visit.page.get_by_role("button", name="Acknowledge incident…")
        colours = button.evaluate("n => [n, n.querySelector('p')].map(e => getComputedStyle(e).color)")
        ground = button.evaluate("n => getComputedStyle(n).backgroundColor")
        assert min(contrast(hex_of(colour), hex_of(ground)) for colour in colours) >= 4.5


def hex_of(colour: str) -> str:
    """Return ``rgb(1, 2, 3)`` as ``#010203``."""
    return "#" + "".join(f"{int(part):02x}" for part in colour.removeprefix("rgb(").removesuffix(")").split(", "))


def test_a_link_leads_to_the_incident_and_its_address_can_be_shared(browser: Browser, console: Console) -> None:
    with Visit(browser, console, "/") as visit:
        visit.page.get_by_role("link", name="Open incident").first.click()
        expect(visit.page.locator(".lg-headline")).to_have_text(
            "Rank 3 (node-b, GPU-node…, slot 1) computed wrong gradients in steps (50, 100].", timeout=30_000
        )
        visit.page.wait_for_url("**/incident?**")
        shared = visit.page.url.removeprefix(console.address)
    assert f"run={RUN}" in shared
    assert "incident=r-" in shared
    with Visit(browser, console, shared) as again:
        expect(again.page.locator(".lg-headline")).to_contain_text("Rank 3")


def test_an_unknown_address_gets_a_message_and_a_way_out(browser: Browser, console: Console) -> None:
    with Visit(browser, console, "/incident?run=nothing") as visit:
        expect(visit.page.get_by_text("No run is called 'nothing'.")).to_be_visible()
        visit.page.get_by_role("link", name="Open overview").click()
        expect(visit.page.get_by_text("One run needs a decision.")).to_be_visible()


@pytest.mark.parametrize("form", FORMATS)
def test_exports_are_downloaded_as_they_are_served(browser: Browser, console: Console, form: str) -> None:
    label = f"Export {FORMATS[form].holds} ({FORMATS[form].name})"
    with Visit(browser, console, INCIDENT) as visit:
        visit.page.get_by_role("button", name="Export incident").click()
        with visit.page.expect_download(timeout=30_000) as waiting:
            visit.page.get_by_role("button", name=label).click()
        (incident,) = next(run for run in console.get("/api/runs").json()["runs"] if run["run"] == RUN)["incidents"]
        assert waiting.value.suggested_filename == f"{RUN}-{incident['id']}.{form}"
        assert Path(waiting.value.path()).read_bytes() == console.get(incident["exports"][form]).content


@pytest.mark.parametrize("width", [1440, 800])
def test_an_incident_is_acknowledged_closed_and_reopened_on_its_page(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    place = run_directory(tmp_path)
    with Console(tmp_path) as console, Visit(browser, console, INCIDENT) as visit:
        page = visit.page
        page.set_viewport_size({"width": width, "height": 1000})
        page.get_by_role("button", name="Acknowledge incident…").click()
        page.get_by_label("Your name").fill("\u05de\u05d9\u05e8\u05d4")
        page.get_by_label("What to say").fill("looking <b>now</b>")
        page.wait_for_timeout(2_500)  # the page draws itself again under the visitor's hands
        expect(page.get_by_label("What to say")).to_have_value("looking <b>now</b>")
        page.get_by_role("button", name="Save to timeline").click()
        expect(page.get_by_text("acknowledged by \u05de\u05d9\u05e8\u05d4")).to_be_visible()
        expect(page.locator("td bdi.lg-said", has_text="looking <b>now</b>")).to_be_visible()
        for label, action, words, standing in (
            ("Add note…", "Close", "board replaced", "closed by"),
            ("Add note…", "Reopen", "it was not the board", "reopened"),
        ):
            expect(page.get_by_role("button", name="Save to timeline")).to_have_count(0)
            page.get_by_role("button", name=label).click()
            page.get_by_role("radiogroup", name="What to do").get_by_text(action, exact=True).click()
            page.get_by_role("textbox", name="What to say").fill(words)
            page.get_by_role("button", name="Save to timeline").click()
            expect(page.locator(".lg-right").get_by_text(standing)).to_be_visible()
        exported = console.get(console.get("/api/runs").json()["runs"][0]["incidents"][0]["exports"]["csv"]).text
    said = ("looking <b>now</b>", "board replaced", "it was not the board")
    assert [words for words in said if words not in exported] == []
    assert len(list((place / "journal" / "console").iterdir())) == 1


def test_news_appears_without_a_reload_and_the_place_on_the_page_survives(browser: Browser, tmp_path: Path) -> None:
    whole = story("live-run", recovered=True)
    half = [event for event in whole.events if event.attempt == 1]
    later = [event for event in whole.events if event.attempt == 2]
    whole.events = half
    place = run_directory(tmp_path, whole)
    with Console(tmp_path) as console, Visit(browser, console, "/incident?run=live-run") as visit:
        visit.charts()
        expect(visit.page.get_by_text("COST SO FAR")).to_be_visible()
        visit.page.locator("[data-testid=stMain]").evaluate("e => e.scrollTo(0, 700)")
        whole.events = later
        run_directory(tmp_path, whole)
        assert (place / "journal" / "000002").is_dir()
        expect(visit.page.get_by_text("recovered by attempt 2 after")).to_be_attached(timeout=30_000)
        expect(visit.page.get_by_text("COST", exact=True)).to_be_attached()
        # the browser keeps what is in view in view while lines above it come and go
        assert abs(visit.page.locator("[data-testid=stMain]").evaluate("e => e.scrollTop") - 700) < 150
        assert visit.problems == []


def test_what_a_person_opened_survives_the_ticks_and_another_incident_can_be_chosen(
    browser: Browser, console: Console
) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        visit.charts()
        pictures = "[...document.querySelectorAll('[data-testid=stVegaLiteChart] :is(svg, canvas)')]"
        visit.page.evaluate(f"{pictures}.forEach(e => e.dataset.kept = 'yes')")
        visit.page.get_by_text("The same numbers as a table").click()
        visit.page.get_by_role("button", name="1 more incident").click()
        visit.page.wait_for_timeout(5000)  # two ticks
        assert visit.page.evaluate(f"{pictures}.map(e => e.dataset.kept)") == ["yes", "yes"]
        expect(visit.page.locator("[data-testid=stExpander] details[open]")).to_have_count(1)
        visit.page.get_by_role("button", name=RECOVERED).click()
        expect(visit.page.get_by_text("recovered by attempt 2 after")).to_be_attached(timeout=30_000)
        assert f"run={RECOVERED}&incident=r-" in visit.page.url


def test_the_theme_menu_changes_html_at_once_and_the_charts_at_the_next_tick(
    browser: Browser, console: Console
) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        visit.charts()
        visit.page.emulate_media(color_scheme="dark")
        visit.page.wait_for_function(
            "c => getComputedStyle(document.querySelector('.lg-s-trusted')).backgroundColor === c",
            arg=rgb(theme("dark")["trusted"]),
        )
        visit.page.wait_for_function(
            """c => [...document.querySelectorAll('[data-testid=stVegaLiteChart] svg')]
                 .some(s => s.outerHTML.toLowerCase().includes(c))""",
            arg=theme("dark")["tainted"].lower(),
            timeout=30_000,
        )


def test_symbols_are_hidden_from_assistive_technology_and_their_words_are_not(
    browser: Browser, console: Console
) -> None:
    with Visit(browser, console, INCIDENT) as visit:
        symbols = visit.page.locator(".lg-sym")
        assert symbols.count() > 5
        assert visit.page.locator(".lg-sym:not([aria-hidden=true])").count() == 0
        expect(visit.page.get_by_role("img", name="step 50 last good, trusted")).to_be_visible()
        expect(visit.page.get_by_role("heading", level=1)).to_have_count(1)


def test_the_navigation_keeps_to_the_run_that_one_looks_at(browser: Browser, console: Console) -> None:
    with Visit(browser, console, f"/incident?run={RECOVERED}") as visit:
        page = visit.page
        page.get_by_role("link", name="Checkpoints").click()
        expect(page.get_by_text(f"Resume {RECOVERED} from step 150.")).to_be_visible(timeout=30_000)
        page.wait_for_url(f"**/checkpoints?run={RECOVERED}")
        page.get_by_role("link", name="Incident", exact=True).click()
        expect(page.get_by_text("recovered by attempt 2 after")).to_be_visible(timeout=30_000)
