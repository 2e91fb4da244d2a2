"""Hold every page to axe-core, the rules that accessibility audits use, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from tests.app.console_server import RUN, Console, run_directory, story
from tests.e2e.test_browser import RECOVERED, Scheme, Visit

pytestmark = pytest.mark.browser

PAGES = [
    "/", f"/incident?run={RUN}", f"/incident?run={RECOVERED}", "/nodes", f"/checkpoints?run={RUN}", "/alerts",
    "/runbook", "/runbook?name=ReplayMismatch",
]  # fmt: skip
SEVERE = {"serious", "critical"}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    run_directory(runs, story(RECOVERED, recovered=True))
    with Console(runs) as started:
        yield started


DRAWN = """() => [...document.querySelectorAll('[data-testid=stVegaLiteChart]')]
    .every(chart => chart.querySelector('svg, canvas'))"""


def severe(found: dict[str, Any]) -> list[str]:
    """Return the serious and critical findings: rule, element, what is wrong."""
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']} {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for rule in found["violations"]
        if rule["impact"] in SEVERE
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious(browser: Browser, console: Console, path: str, scheme: Scheme) -> None:
    with Visit(browser, console, path, scheme=scheme) as visit:
        visit.finished()
        visit.page.wait_for_function(DRAWN)  # a picture that is not drawn yet has no fault
        visit.page.wait_for_timeout(500)
        assert severe(Axe().run(visit.page).response) == []


def test_axe_is_heard_when_something_is_wrong(browser: Browser, console: Console) -> None:
    with Visit(browser, console, "/") as visit:
        visit.finished()
        visit.page.add_style_tag(content=".lg-head, .lg-head * { color: #f8f8f8 !important }")
        assert any(found.startswith("color-contrast (serious)") for found in severe(Axe().run(visit.page).response))
