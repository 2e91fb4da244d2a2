"""Fixtures for all tests: a clean environment, a fresh registry, a stepping clock, the programs that must be there."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import settings
from prometheus_client import CollectorRegistry

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                  "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip

# A shared or small machine stalls for longer than any example takes: time is measured by benchmarks, not here.
settings.register_profile("lastgood", deadline=None)
settings.load_profile("lastgood")

# A shell that runs the tests in the background ignores Ctrl-C for all they start, and some of them press it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a test printed in a form that a worker can send: some of them print what is no UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@dataclass
class Clock:
    """A clock that moves only when told. Unix seconds."""

    now: float = 1_795_921_082.0  # 2026-11-29T02:58:02Z

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the developer's own settings away; endpoints of tests stay on this machine."""
    for name in [name for name in os.environ if name.startswith("LASTGOOD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LASTGOOD_METRICS_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=False)


def _program(*names: str) -> str | None:
    return next((found for name in names if (found := shutil.which(name))), None)


def _missing(what: str) -> NoReturn:
    pytest.fail(f"{what} is missing, and a test that needs it must not be skipped: run `make programs`")


@pytest.fixture(scope="session")
def prometheus_program() -> str:
    return _program("prometheus") or _missing("prometheus")


@pytest.fixture(scope="session")
def alertmanager_program() -> str:
    """Return Alertmanager; Debian calls it otherwise."""
    return _program("alertmanager", "prometheus-alertmanager") or _missing("prometheus-alertmanager")


@pytest.fixture(scope="session")
def victoria_program() -> str:
    return _program("victoria-metrics") or _missing("victoria-metrics")


@pytest.fixture(scope="session")
def nginx_program() -> str:
    """Return nginx, which Debian puts where only root's PATH looks."""
    return _program("nginx", "/usr/sbin/nginx") or _missing("nginx")


@pytest.fixture(scope="session")
def compiler_program() -> str:
    """Return the compiler that torch.compile uses on a CPU."""
    return _program("g++", "c++", "clang++") or _missing("g++")


@pytest.fixture(scope="session")
def chromium_program() -> str:
    """Return Debian's Chromium, else the one that Playwright has installed."""
    return _program("chromium", "chromium-browser", "google-chrome") or _playwright_chromium() or _missing("chromium")


@pytest.fixture(scope="module")
def browser(chromium_program: str) -> Iterator[Browser]:
    """Start a Chromium that asks nobody but the pages under test."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium_program, args=CHROMIUM_FLAGS)
        yield started
        started.close()


def _playwright_chromium() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None
