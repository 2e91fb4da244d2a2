"""Act on an incident and vouch for a checkpoint in a real Chromium: several people at once, haste, and what is said."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.app.console_server import RUN, Console, run_directory, story
from tests.app.test_checkpoints_page import resumed
from tests.app.test_tokens import contrast
from tests.e2e.test_browser import INCIDENT, RECOVERED, Scheme, Visit

pytestmark = pytest.mark.browser

SAVE, ACCEPT = "Save to timeline", "Accept checkpoint"
FORMS = [
    (INCIDENT, "Acknowledge incident…", SAVE),
    (f"/incident?run={RECOVERED}", "Add note…", SAVE),
    ("/checkpoints?run=long", "Accept a checkpoint…", ACCEPT),
]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run_directory(tmp_path)
    run_directory(tmp_path, story(RECOVERED, recovered=True))
    run_directory(tmp_path, resumed())
    return tmp_path


@pytest.fixture
def console(runs: Path) -> Console:
    return Console(runs)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console in which nobody saves anything."""
    place = tmp_path_factory.mktemp("untouched")
    for made in (story(), story(RECOVERED, recovered=True), resumed()):
        run_directory(place, made)
    with Console(place) as started:
        yield started


def by_command_line(runs: Path, *words: str) -> None:
    """Let somebody else do something to a run, beside the console."""
    command = [sys.executable, "-m", "lastgood_console.cli", *words, "--by", "bob", "--state", str(runs / ".lastgood")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def journaled(runs: Path, run: str) -> int:
    """Return how many events people have added to a run."""
    return sum(len(file.read_text().splitlines()) for file in (runs / run / "journal" / "console").glob("*.jsonl"))


def opened(visit: Visit, menu: str) -> Locator:
    """Open a form."""
    visit.finished()
    visit.page.get_by_role("button", name=menu).click()
    form = visit.page.get_by_test_id("stPopoverBody")
    expect(form.get_by_label("Your name")).to_be_visible()
    return form


def filled(form: Locator, label: str, words: str) -> None:
    form.get_by_label("Your name").fill("ann")
    form.get_by_label(label).fill(words)


def test_who_closes_what_somebody_else_has_closed_is_told_in_the_form_and_keeps_the_words(
    browser: Browser, runs: Path, console: Console
) -> None:
    with console, Visit(browser, console, INCIDENT) as visit:
        form = opened(visit, "Acknowledge incident…")
        form.get_by_text("Close", exact=True).click()
        filled(form, "What to say", "the board was replaced")
        by_command_line(runs, "incident", "close", str(runs / RUN), "r-", "done by bob")
        expect(visit.page.get_by_role("button", name="Add note…")).to_be_visible(timeout=30_000)
        form.get_by_role("button", name=SAVE).click()
        expect(form.get_by_test_id("stAlert")).to_contain_text("is closed by bob already: write a note")
        expect(form.get_by_label("Your name")).to_have_value("ann")
        expect(form.get_by_label("What to say")).to_have_value("the board was replaced")
        expect(visit.page.get_by_test_id("stException")).to_have_count(0)
        form.get_by_text("Add note", exact=True).click()
        form.get_by_role("button", name=SAVE).click()
        expect(visit.page.locator("td bdi.lg-said", has_text="the board was replaced")).to_be_visible()
        assert visit.problems == []
    assert journaled(runs, RUN) == 2


def test_who_accepts_what_somebody_else_has_accepted_is_told_in_the_form_and_keeps_the_words(
    browser: Browser, runs: Path, console: Console
) -> None:
    with console, Visit(browser, console, "/checkpoints?run=long") as visit:
        form = opened(visit, "Accept a checkpoint…")
        form.get_by_role("combobox").click()
        visit.page.get_by_role("option", name="step 100 of attempt 2").click()
        filled(form, "Why it can be trusted", "I compared it")
        path = str(runs / "long" / "checkpoints" / "a2-step-000100")
        by_command_line(runs, "checkpoint", "accept", path, "--reason", "checked by bob")
        visit.page.wait_for_timeout(6_000)  # the page draws itself anew, with one choice less
        form.get_by_role("button", name=ACCEPT).click()
        expect(form.get_by_test_id("stAlert")).to_contain_text(
            "step-000100, is accepted by bob already", ignore_case=True
        )
        expect(form.get_by_label("Your name")).to_have_value("ann")
        expect(form.get_by_label("Why it can be trusted")).to_have_value("I compared it")
        expect(visit.page.get_by_test_id("stException")).to_have_count(0)
        assert visit.problems == []
    assert journaled(runs, "long") == 1


@pytest.mark.parametrize("at", range(len(FORMS)))
def test_a_double_click_saves_once(browser: Browser, runs: Path, console: Console, at: int) -> None:
    path, menu, button = FORMS[at]
    run = path.partition("=")[2]
    with console, Visit(browser, console, path) as visit:
        form = opened(visit, menu)
        filled(form, "Why it can be trusted" if button == ACCEPT else "What to say", "once")
        form.get_by_role("button", name=button).dblclick()
        expect(visit.page.get_by_test_id("stToast")).to_be_visible()
        visit.page.wait_for_timeout(3_000)
        assert journaled(runs, run) == 1
        expect(visit.page.get_by_test_id("stException")).to_have_count(0)
        if button == SAVE:  # the next form is another one
            form = opened(visit, "Add note…")
            filled(form, "What to say", "twice")
            form.get_by_role("button", name=button).click()
            expect(visit.page.locator("td bdi.lg-said", has_text="twice")).to_be_visible()
            assert journaled(runs, run) == 2


@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize(("path", "menu", "button"), FORMS)
def test_why_it_cannot_be_saved_is_in_sight(
    browser: Browser, untouched: Console, path: str, menu: str, button: str, width: int
) -> None:
    with Visit(browser, untouched, path, width) as visit:
        form = opened(visit, menu)
        form.get_by_role("button", name=button).click()
        said = form.get_by_test_id("stAlert")
        expect(said).to_contain_text(re.compile("Who says so|needs words"))
        visit.page.wait_for_timeout(500)
        assert seen_share(said) == 1, "it is cut by the menu or by the window"
        assert seen_share(form.get_by_role("button", name=button)) == 1


def seen_share(element: Locator) -> float:
    """Return how much of an element's height is in sight, within what scrolls and the window."""
    share: float = element.evaluate(
        """e => new Promise(done => new IntersectionObserver(seen => done(seen[0].intersectionRatio)).observe(e))"""
    )
    return round(share, 2)


SEEN = """e => {
  const context = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const paint = colour => { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); };
  const seen = () => '#' + [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
    .map(part => part.toString(16).padStart(2, '0')).join('');
  const above = [];
  for (let at = e; at; at = at.parentElement) above.unshift(getComputedStyle(at).backgroundColor);
  paint('white');
  above.forEach(paint);
  const ground = seen();
  return [e, e.querySelector('p') || e].map(at => {
    above.forEach(paint);
    paint(getComputedStyle(at).color);
    return [seen(), ground];
  });
}"""
"""The colours of an element's words and of what they stand on, as the browser blends them."""


def readable(button: Locator) -> float:
    """Return the contrast of a button's words, once its colours have come to rest."""
    button.page.wait_for_timeout(400)
    return round(min(contrast(words, ground) for words, ground in button.evaluate(SEEN)), 2)


def measured(page: Page, button: Locator) -> dict[str, float]:
    """Return the contrast of a button in each state: at rest, under the mouse, with the focus, and pressed."""
    page.mouse.move(0, 0)
    found = {"rest": readable(button)}
    button.hover()
    found["hover"] = readable(button)
    page.mouse.down()
    found["active"] = readable(button)
    page.mouse.move(0, 0)
    page.mouse.up()  # elsewhere: nothing is saved
    button.focus()
    found["focus"] = readable(button)
    button.hover()
    found["hover and focus"] = readable(button)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("path", "menu", "button"), FORMS)
def test_the_words_on_a_button_can_be_read_whatever_one_does_to_it(
    browser: Browser, untouched: Console, path: str, menu: str, button: str, scheme: Scheme
) -> None:
    with Visit(browser, untouched, path, scheme=scheme) as visit:
        visit.finished()
        page, pale = visit.page, {}
        for name in (menu, "Pause refresh"):
            pale[name] = measured(page, page.get_by_role("button", name=name))
        send = opened(visit, menu).get_by_role("button", name=button)
        pale[button] = measured(page, send)
        send.click()
        expect(page.get_by_test_id("stAlert")).to_be_visible()
        pale["after the click"] = measured(page, send)
    assert {name: said for name, said in pale.items() if min(said.values()) < 4.5} == {}
