from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.app import hostile_words
from tests.app.fixtures import states

from lastgood.state import RunState, Unreadable
from lastgood_console.export import document, html
from lastgood_console.export.tokens import THEMES, ThemeName, theme


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


def test_nothing_that_others_wrote_becomes_markup() -> None:
    names = {tag for tag, _ in structure(report(hostile_words.everywhere(HOSTILE))).tags}
    assert not names & {"script", "img"}


def test_what_turns_the_writing_direction_shows_as_a_mark() -> None:
    text = report(hostile_words.everywhere(hostile_words.OVERRIDE))
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067") & set(text)
    assert "step-\ufffd05\ufffd-dab" in text


def noted(words: str, seconds: float = 1_900, who: str = "mira") -> RunState:
    state = states.gradient(annotations=())
    note = states.event("note", seconds, 1, {"text": words, "author": who, "incident": "r-3f2a91c0"})
    return replace(state, incidents=(replace(state.incidents[0], actions=(note,)),))


def test_what_somebody_said_has_a_direction_apart_from_our_words() -> None:
    text = report(noted("\u05e9\u05dc\u05d5\u05dd node-b"))
    assert '<bdi dir="auto">Note: </bdi><bdi dir="auto">\u05e9\u05dc\u05d5\u05dd node-b</bdi>' in text


def test_each_clock_has_its_date() -> None:
    text = report(noted("cable replaced", 200_000))
    assert '<td class="keep">2026-12-01 10:05:20</td><td class="keep">2026-12-01 10:05:20</td>' in text
    assert '<td class="keep">2026-11-29 02:57:06</td>' in text
    assert "known since 2026-11-29 02:" in text
    assert re.search(r", known 2026-11-29 \d\d:\d\d:\d\d<", text)


def test_a_note_of_another_day_does_not_squeeze_the_picture() -> None:
    late, soon = (
        report(noted("x", seconds)).split("<figure>")[1].split("</figure>")[0] for seconds in (900_000, 3_300)
    )
    assert re.sub(r"<text[^>]*>[^<]*</text>", "", late) == re.sub(r"<text[^>]*>[^<]*</text>", "", soon)


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
    assert shown(page, hostile_words.everywhere(words), tmp_path) == []
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_a_right_to_left_path_does_not_turn_the_command_round(page: Page, tmp_path: Path) -> None:
    state = hostile_words.everywhere("\u05e0\u05ea\u05d9\u05d1")
    shown(page, state, tmp_path)
    box = page.locator(".command bdi").first
    assert box.evaluate("n => getComputedStyle(n).direction") == "ltr"
    assert page.locator(".story bdi", has_text="\u05e0\u05ea\u05d9\u05d1").last.evaluate("n => n.dir") == "auto"


INK = "n => getComputedStyle(n).color"


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.mark.browser
@pytest.mark.parametrize("name", THEMES)
def test_it_is_light_or_dark_as_the_readers_screen_is(page: Page, tmp_path: Path, name: ThemeName) -> None:
    page.emulate_media(color_scheme=name)
    shown(page, states.gradient(), tmp_path)
    assert page.locator("body").evaluate(INK) == rgb(theme(name)["ink"])
    assert page.locator("html").evaluate("n => getComputedStyle(n).backgroundColor") == rgb(theme(name)["bg"])
    fills = page.locator("svg.timeline circle").evaluate_all("all => all.map(n => getComputedStyle(n).fill)")
    assert rgb(theme(name)["trusted"]) in fills


@pytest.mark.browser
def test_it_prints_on_a4_with_whole_figures(page: Page, tmp_path: Path) -> None:
    shown(page, states.gradient(), tmp_path)
    pdf = page.pdf(prefer_css_page_size=True, print_background=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= 4
    assert {tuple(float(n) for n in box.split()) for box in re.findall(rb"/MediaBox\s*\[([^\]]+)\]", pdf)} == {
        (0.0, 0.0, 594.95996, 841.91998)
    }
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("body").evaluate(INK) == rgb(theme("light")["ink"])
    assert page.locator("figure").first.evaluate("n => getComputedStyle(n).breakInside") == "avoid"
