"""Hold what a browser is shown that goes to a page that is none, and that what pages load is not in the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.app.console_server import Console, run_directory

import lastgood_console
from lastgood_console.http.lost import PAGES

pytestmark = pytest.mark.slow

VISIT = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module", params=["", "/last.good/x"])
def console(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    options = ("--base-path", request.param) if request.param else ()
    with Console(runs, options=options) as started:
        started.base = request.param  # type: ignore[attr-defined]
        yield started


def visit(console: Console, path: str, **headers: str) -> httpx.Response:
    return console.request("GET", f"{console.base}{path}", headers={**VISIT, **headers})  # type: ignore[attr-defined]


def test_the_pages_are_those_of_the_application() -> None:
    source = (Path(lastgood_console.__file__).parent / "app.py").read_text()
    assert {"", *re.findall(r'url_path="([^"]+)"', source)} == PAGES


@pytest.mark.parametrize("path", ["/nosuchpage", "/incident/extra/path", "/incident.html", "/<b>", "/nodes/nodes"])
def test_a_page_that_is_none_says_so_and_leads_to_the_overview(console: Console, path: str) -> None:
    answer = visit(console, path)
    assert (answer.status_code, answer.headers["x-content-type-options"]) == (404, "nosniff")
    assert "Nothing at this address." in answer.text
    assert f"href='{console.base}/'" in answer.text  # type: ignore[attr-defined]
    assert "<b>" not in answer.text


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_is_one_and_with_a_slash_at_its_end_it_is_led_there(console: Console, page: str) -> None:
    assert "Nothing at this address." not in visit(console, f"/{page}").text
    if page:
        answer = visit(console, f"/{page}/?run=demo&x=%3Cb%3E")
        place = f"{console.base}/{page}?run=demo&x=%3Cb%3E"  # type: ignore[attr-defined]
        assert (answer.status_code, answer.headers["location"]) == (307, place)


@pytest.mark.parametrize("path", ["/_stcore/health", "/api/nothing", "/nosuchpage"])
def test_what_is_no_visit_of_a_page_goes_where_it_went(console: Console, path: str) -> None:
    assert "Nothing at this address." not in visit(console, path, Accept="*/*").text
