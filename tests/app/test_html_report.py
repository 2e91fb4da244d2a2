from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.app.fixtures import states

from lastgood.state import RunState, Unreadable
from lastgood_console.export import document, html


def report(state: RunState) -> str:
    return html.render(document.loads(document.dumps(document.to_document(state, state.incidents[0]))))


class Structure(HTMLParser):
    """Collect tags with their attributes, and check that they close in order."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def structure(text: str) -> Structure:
    found = Structure()
    found.feed(text)
    assert found.open == []
    return found


@pytest.mark.parametrize("row", states.ROWS)
def test_every_row_is_well_formed_and_the_same_bytes_each_time(row: str) -> None:
    text = report(states.ROWS[row]())
    assert structure(text)
    assert report(states.ROWS[row]()) == text


@pytest.mark.parametrize("row", states.ROWS)
def test_it_is_one_file_without_a_script_or_anything_to_load(row: str) -> None:
    text = report(states.ROWS[row]())
    names = {tag for tag, _ in structure(text).tags}
    assert not names & {"script", "link", "img", "iframe", "object", "form", "a", "base"}
    attributes = [(name, value or "") for _, found in structure(text).tags for name, value in found.items()]
    assert not [a for a in attributes if a[0].startswith("on") or a[0] in ("src", "href")]
    assert not re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", text)


def test_it_answers_first() -> None:
    text = report(states.gradient())
    order = ["ATTRIBUTED", "computed wrong gradients", "RESUME FROM", "step 50", "DO NOT USE", "step 75", "COST"]
    order += ["monitor.resume(", "without node-b", "WHY", "AGAINST", "UNKNOWN", "DO</dt>", "Timeline"]
    order += ["What happened, and when we knew", "Evidence", "Checkpoints", "Trusted means audited on both sides"]
    places = [text.index(word, text.index("<main>")) for word in order]
    assert places == sorted(places)


def test_what_is_not_known_is_said() -> None:
    base = states.gradient()
    bare = replace(base.incidents[0], reasons_for=(), reasons_against=(), unknown=())
    assert report(replace(base, incidents=(bare,))).count("Nothing known.") == 3


def test_a_refused_save_explains_why_nothing_is_to_be_avoided() -> None:
    assert "The save of step 75 was refused: nothing damaged was kept." in report(states.weight())


def test_the_injected_fault_stands_apart_as_ground_truth() -> None:
    text = report(states.gradient())
    assert '<p class="injected"><bdi dir="auto">Fault injected on purpose: backward, scale on rank 3' in text
    assert "injected" not in report(states.gradient(injections=())).split("</style>")[1]


def test_unreadable_lines_are_counted_and_named() -> None:
    text = report(states.gradient(unreadable=(Unreadable("journal/000001/rank-0.jsonl", 7, "torn"),)))
    assert "1 could not be read" in text
    assert "journal/000001/rank-0.jsonl:7" in text


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


def hostile(words: str) -> RunState:
    """Return the default story with these words wherever people, paths or nodes are named."""
    state = states.gradient()
    base = state.incidents[0]
    found = tuple(replace(f, tensor=words, observed=words, expected=words, evidence=({"kind": "x", "text": words},))
                  for f in base.findings)  # fmt: skip
    note = states.event("note", 1_900, 1, {"text": words, "author": words, "incident": base.id})
    suspect = replace(base.suspects[0], node=words)
    resume = replace(states.RESUME, path=words, reason=words)
    about = replace(base, findings=found, actions=(note,), suspects=(suspect,), resume=resume, closed_by=words,
                    reasons_for=(words,), reasons_against=(words,), unknown=(words,))  # fmt: skip
    saves = tuple(replace(s, path=words, reason=words) for s in state.checkpoints)
    unreadable = (Unreadable(words, 1, words),)
    return replace(state, run=words, incidents=(about,), checkpoints=saves, unreadable=unreadable, findings=found)


def test_nothing_that_others_wrote_becomes_markup() -> None:
    names = {tag for tag, _ in structure(report(hostile(HOSTILE))).tags}
    assert not names & {"script", "img"}


@pytest.fixture(scope="module")
def browser(chromium_program: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 800, "height": 1000})
    yield opened
    opened.close()


def shown(page: Page, state: RunState, tmp_path: Path) -> list[str]:
    """Open a report from disk; return what the browser complained about or tried to load."""
    file = tmp_path / "report.html"
    file.write_text(report(state), encoding="utf-8")
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("request", lambda request: None if request.url == file.as_uri() else problems.append(request.url))
    page.goto(file.as_uri())
    return problems


@pytest.mark.browser
def test_a_browser_opens_it_offline_without_a_complaint(page: Page, tmp_path: Path) -> None:
    assert shown(page, states.gradient_on_gpus(), tmp_path) == []
    assert page.locator("svg.timeline").bounding_box()
    assert page.evaluate("document.documentElement.scrollWidth") <= 800


FOREIGN = (
    "\u05e9\u05dc\u05d5\u05dd/\u05e2\u05d5\u05dc\u05dd",
    "\u0645\u0633\u0627\u0631",
    "\u8def\u5f84/" * 40,
    "x" * 300,
)
TOO_WIDE = """[...document.querySelectorAll('header, h1, .panels, dl, figure, footer')]
    .filter(n => n.scrollWidth > n.clientWidth + 1).map(n => n.outerHTML.slice(0, 60))"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 690, 1_440])
@pytest.mark.parametrize("words", FOREIGN)
def test_long_and_foreign_words_stay_inside_the_page(page: Page, tmp_path: Path, words: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert shown(page, hostile(words), tmp_path) == []
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_a_right_to_left_path_does_not_turn_the_command_round(page: Page, tmp_path: Path) -> None:
    state = hostile("\u05e0\u05ea\u05d9\u05d1")
    shown(page, state, tmp_path)
    box = page.locator(".command bdi").first
    assert box.evaluate("n => getComputedStyle(n).direction") == "ltr"
    assert page.locator(".story bdi", has_text="\u05e0\u05ea\u05d9\u05d1").last.evaluate("n => n.dir") == "auto"


@pytest.mark.browser
def test_it_prints_on_a4_with_whole_figures(page: Page, tmp_path: Path) -> None:
    shown(page, states.gradient(), tmp_path)
    pdf = page.pdf(prefer_css_page_size=True, print_background=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= 4
    assert {tuple(float(n) for n in box.split()) for box in re.findall(rb"/MediaBox\s*\[([^\]]+)\]", pdf)} == {
        (0.0, 0.0, 594.95996, 841.91998)
    }
    page.emulate_media(media="print")
    assert page.locator("figure").first.evaluate("n => getComputedStyle(n).breakInside") == "avoid"
