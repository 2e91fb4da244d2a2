"""Name things by very long words, and count very far: nothing leaves its place, and no number is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.app.console_server import Console, run_directory
from tests.app.webhooks import alert, alertmanager, body
from tests.e2e.test_browser import Visit
from tests.exporter.histories import History

pytestmark = pytest.mark.browser

NODE = "gpu-" + "n" * 116
TENSOR = "module" + ".block" * 60
LONG_RUN = "r" * 150
URL = "https://very.long.example.org/" + "a" * 290
AUTHOR = "m" * 80


def named_long() -> History:
    """Return a story whose node, tensor and notes are single words of hundreds of letters."""
    made = History(run="long-words").start(nodes=["node-a", NODE, "node-c"]).save(0).audit(1, phase="first")
    made.wait(20).save(50).audit(50).save(75).audit(100, failed=[3]).find("replay", 100, [3], tensor=TENSOR)
    made.rule("attributed", ("replay", 100, "audit"), accused=[3], nature="persistent", resume=(1, 50, made.path(50)))
    made.write("note", text=URL, author=AUTHOR, incident=made.incident().id)
    made.act("acknowledge", incident=made.incident().id, author=AUTHOR, reason=URL)
    return made.end(100)


def far(run: str, step: int) -> History:
    """Return a run that was heard of last, long ago, at a step of many digits."""
    made = History(run=run).start(step - 3_555).save(step - 3_255)
    return made.save(step - 855).save(step - 255).audit(step)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs: Path = tmp_path_factory.mktemp("runs")
    for made in (named_long(), far("far", 648_255), far("farther", 123_648_255)):
        run_directory(runs, made)
    run_directory(runs, History(run=LONG_RUN).start().save(0).audit(1, phase="first").save(50).audit(50))
    with Console(runs) as started:
        told = alert("A" * 300, severity="s" * 60, annotations={"summary": URL}, run="long-words", node=NODE)
        stray = alert("B" * 300, fingerprint="b", run=LONG_RUN, node=NODE)
        over = alert("C" * 300, fingerprint="c", status="resolved", ends="2026-11-29T03:03:20Z", run="long-words")
        sent = body(alertmanager(told, stray, over))
        answer = started.request("POST", "/api/alerts", content=sent, headers={"content-type": "application/json"})
        assert answer.json()["accepted"] == 3
        yield started


PAGES = [
    "/", "/alerts", "/incident?run=long-words", f"/incident?run={LONG_RUN}", "/checkpoints?run=long-words",
    f"/checkpoints?run={LONG_RUN}", "/nodes", f"/nodes?node={NODE}", f"/nodes?node={'x' * 150}",
    f"/runbook?name={'A' * 150}", f"/runbook?name={'A' * 300}", f"/checkpoints?run={'x' * 150}",
    f"/incident?run={'x' * 200}", f"/alerts?rule={'A' * 300}", f"/alerts?run={'x' * 150}",
]  # fmt: skip
OUTSIDE = """() => {
  const found = [], say = (e, why) => found.push(`${why}: ${e.tagName}.${e.className} ${e.innerText.slice(0, 60)}`);
  const main = document.querySelector('[data-testid=stMain]');
  for (const page of [document.documentElement, main])
    if (page.scrollWidth > innerWidth) say(page, `the page is ${page.scrollWidth} wide`);
  const right = main.getBoundingClientRect().right;
  for (const e of document.querySelectorAll('[class*=lg-]:not(style)')) {
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    const scrolls = e.closest('.lg-scroll, .st-key-lg-incidents, .st-key-lg-devices'), strip = e.closest('.lg-strip');
    if (!scrolls && box.right > right + 1) say(e, 'beyond the page');
    const holder = e.closest('td, .lg-run > div, .lg-do, dd, [class*=st-key-lg-panel-]');
    if (holder && !strip && box.right > holder.getBoundingClientRect().right + 1) say(e, 'beyond its place');
    const clipped = style.overflowX !== 'visible' || style.display === 'inline';
    if (!clipped && !strip && e.clientWidth && e.scrollWidth > e.clientWidth + 1) say(e, 'filled beyond its edge');
  }
  for (const frame of document.querySelectorAll('.lg-scroll'))
    if (innerWidth >= 1440 && frame.scrollWidth > frame.clientWidth) say(frame, `a table of ${frame.scrollWidth}`);
    else if (frame.scrollWidth > 1600) say(frame, `a table of ${frame.scrollWidth}`);
  return found;
}"""
"""Tell what is wider than its place. Narrow windows let a table scroll in its frame, by a little."""


@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("path", PAGES, ids=[path[:24] for path in PAGES])
def test_long_words_leave_every_page_in_its_width(browser: Browser, console: Console, path: str, width: int) -> None:
    with Visit(browser, console, path, width) as visit:
        visit.finished()
        visit.page.wait_for_timeout(1_000)
        assert visit.page.evaluate(OUTSIDE) == []


CUT = """() => [...document.querySelectorAll('.lg-strip :is(.lg-name, .lg-tick)')].filter(e => {
  const words = e.getBoundingClientRect();
  let left = 0, right = innerWidth;
  for (let at = e.parentElement; at; at = at.parentElement)
    if (getComputedStyle(at).overflowX !== 'visible') {
      left = Math.max(left, at.getBoundingClientRect().left);
      right = Math.min(right, at.getBoundingClientRect().right);
    }
  return words.left < left || words.right > right || e.scrollWidth > e.clientWidth;
}).map(e => e.innerText)"""


MEETING = """() => [...document.querySelectorAll('.lg-strip')].flatMap(strip => {
  const ticks = [...strip.querySelectorAll('.lg-tick')].map(e => [e.getBoundingClientRect(), e.innerText]);
  ticks.sort(([one], [other]) => one.left - other.left);
  return ticks.slice(1).filter(([box], i) => box.left < ticks[i][0].right + 3).map(([, words]) => words);
})"""


@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("path", ["/", "/incident?run=far", "/checkpoints?run=farther"])
def test_no_number_at_a_strip_is_cut(browser: Browser, console: Console, path: str, width: int) -> None:
    with Visit(browser, console, path, width) as visit:
        visit.finished()
        if path != "/":
            (name,) = visit.page.locator(".lg-name").all_inner_texts()
            assert name.startswith("attempt 1 last heard of at ")
        assert visit.page.evaluate(CUT) == []
        assert visit.page.evaluate(MEETING) == []
