"""Give the pages what they should not get: one clear message in its place, and the rest of the page works."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.app.console_server import RUN, Console, run_directory, story
from tests.app.metrics_server import Metrics
from tests.e2e.test_browser import INCIDENT, RECOVERED, Visit
from tests.exporter.histories import History

pytestmark = pytest.mark.browser

HOSTILE = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>[x](javascript:alert(1)) `|` $a$ :red[x]'
)


def hostile() -> History:
    """Return a story whose nodes, tensors and notes try to be more than words."""
    history = History(run="hostile")
    history.start(nodes=[f"{HOSTILE}{n}" for n in range(3)]).save(0).audit(1, phase="first").save(50).audit(50)
    history.audit(100, failed=[3]).find("replay", 100, [3], tensor=HOSTILE)
    history.rule("attributed", ("replay", 100, "audit"), accused=[3], nature="persistent")
    return history


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    made = hostile()
    place = run_directory(runs, made)
    (runs / f"%2F..%2F{HOSTILE[:30].replace('/', '')}").mkdir()
    place.rename(runs / "a <b>run<b> %2F .. 'x'")
    with Console(runs) as started:
        yield started


@pytest.mark.parametrize("path", ["/", "/incident", "/nodes", "/checkpoints", "/alerts", f"/nodes?node={HOSTILE}1"])
def test_words_of_others_stay_words_on_every_page(browser: Browser, poisoned: Console, path: str) -> None:
    with Visit(browser, poisoned, path) as visit:
        visit.page.on("dialog", lambda dialog: visit.problems.append(dialog.message))
        visit.finished()
        visit.page.wait_for_timeout(1_500)
        assert visit.page.evaluate("window.hacked") is None
        assert visit.page.locator("img[src=x], a[href^=javascript]").count() == 0
        assert visit.hosts == {f"127.0.0.1:{poisoned.port}"}
        assert visit.problems == []
        expect(visit.page.locator("[data-testid=stException]")).to_have_count(0)


def test_a_run_directory_that_goes_while_its_page_is_open_is_said_and_the_others_stay(
    browser: Browser, tmp_path: Path
) -> None:
    place = run_directory(tmp_path)
    run_directory(tmp_path, story(RECOVERED, recovered=True))
    with Console(tmp_path) as console, Visit(browser, console, INCIDENT) as visit:
        visit.charts()
        shutil.rmtree(place)
        until = r"It was there until [\d:]{8} UTC: its directory is gone\."
        said = rf"No run is called '{RUN}'\. {until} Runs: {RECOVERED}\."
        expect(visit.page.get_by_text(re.compile(said))).to_be_visible(timeout=30_000)
        visit.page.get_by_role("link", name="Open overview").click()
        expect(visit.page.get_by_text(RECOVERED).first).to_be_visible(timeout=30_000)
        run_directory(tmp_path)
        expect(visit.page.get_by_text(RUN, exact=True).first).to_be_visible(timeout=30_000)
        assert visit.problems == []


@pytest.mark.parametrize("path", ["/", INCIDENT, "/nodes", "/checkpoints", "/alerts"])
def test_a_folder_that_goes_is_said_on_every_page_which_keeps_its_runs(
    browser: Browser, tmp_path: Path, path: str
) -> None:
    folder = tmp_path / "runs"
    run_directory(folder)
    with Console(folder) as console, Visit(browser, console, path) as visit:
        visit.page.locator(".lg-head, .lg-right").first.wait_for(timeout=30_000)
        folder.rename(tmp_path / "away")
        gone = visit.page.get_by_text(f"{folder} has not been there since")
        expect(gone).to_be_visible(timeout=30_000)
        expect(gone).to_contain_text("The run in it is shown as last read, at")
        if path == "/":
            expect(visit.page.get_by_text("not read any more: its folder is gone").first).to_be_visible()
        assert console.get("/healthz").json()["folders_gone"] == 1
        assert [run["run"] for run in console.get("/api/runs").json()["runs"]] == [RUN]
        (tmp_path / "away").rename(folder)
        expect(gone).to_have_count(0, timeout=30_000)
        assert visit.problems == []


def test_torn_and_foreign_files_cost_themselves_alone(browser: Browser, tmp_path: Path) -> None:
    place = run_directory(tmp_path)
    journal = next((place / "journal").glob("*/rank-0.jsonl"))
    with journal.open("ab") as file:
        file.write(b'{"torn": \n\xff\xfe\x00 not text\n[1, 2]\n')
    (journal.parent / "rank-9.jsonl").write_bytes(b"\x80\x04\x95 a pickle, not a journal\n")
    (journal.parent / "a-folder.jsonl").mkdir()
    with Console(tmp_path) as console, Visit(browser, console, INCIDENT) as visit:
        visit.charts()
        expect(visit.page.locator(".lg-headline")).to_contain_text("Rank 3")
        expect(visit.page.get_by_text("could not be read")).to_be_visible()
        assert visit.problems == []


def write_note(page: Page, name: str, words: str) -> None:
    page.get_by_role("button", name="Add note…").or_(page.get_by_role("button", name="Acknowledge incident…")).click()
    page.get_by_label("Your name").fill(name)
    page.get_by_label("What to say").fill(words)
    page.get_by_role("button", name="Save to timeline").click()


def test_two_consoles_on_one_run_directory_tell_the_same(browser: Browser, tmp_path: Path) -> None:
    place = run_directory(tmp_path)
    with Console(tmp_path) as one, Console(tmp_path) as two:
        with Visit(browser, one, INCIDENT) as left, Visit(browser, two, INCIDENT) as right:
            left.charts(), right.charts()
            write_note(left.page, "mira", "from the left")
            write_note(right.page, "tom", "from the right")
            for page in (left.page, right.page):
                for words in ("from the left", "from the right"):
                    expect(page.locator("td bdi.lg-said", has_text=words)).to_be_visible(timeout=30_000)
            assert left.problems == right.problems == []
        exports = [
            console.get("/api/runs").json()["runs"][0]["incidents"][0]["exports"]["csv"] for console in (one, two)
        ]
        assert one.get(exports[0]).content == two.get(exports[1]).content
    assert len(list((place / "journal" / "console").iterdir())) == 2


def half(asked: object) -> tuple[int, bytes]:
    return 200, b'{"status": "success", "data": {"resultType": "vec'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda asked: (401, b"<script>window.hacked=1</script>"), "401"),
        (half, "answer"),
        (lambda asked: (404, b"<html>not here</html>"), "404"),
        (lambda asked: (503, b""), "does not answer yet"),
    ],
    ids=["refused", "half an answer", "wrong address", "not up yet"],
)
@pytest.mark.parametrize("path", ["/", INCIDENT])
def test_a_metrics_server_in_trouble_is_one_sentence_and_the_journal_is_shown(
    browser: Browser, tmp_path: Path, answer: Callable[[object], tuple[int, bytes]], said: str, path: str
) -> None:
    run_directory(tmp_path)
    server = Metrics()
    server.answer = answer
    try:
        with Console(tmp_path, options=["--prometheus", server.url]) as console, Visit(browser, console, path) as visit:
            warning = visit.page.get_by_text(server.url.removeprefix("http://"))
            expect(warning).to_contain_text(said, timeout=30_000)
            expect(visit.page.get_by_text("Rank 3").first).to_be_visible()
            assert visit.page.evaluate("window.hacked") is None
            assert visit.problems == []
    finally:
        server.close()
