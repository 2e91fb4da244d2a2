"""Put a real nginx before a console, below a path prefix that it passes on or strips."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect
from tests.app.console_server import RUN, Console, run_directory

from lastgood_console.server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PREFIX = "/lastgood"
TEMPORARY = "".join(f"{kind}_temp_path {kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
CONFIG = """
daemon off; pid nginx.pid; error_log stderr; worker_processes 1; %(user)s
events {}
http {
  access_log off; %(temporary)s
  server {
    listen 127.0.0.1:%(port)s;
    location %(prefix)s/ {
      proxy_pass http://127.0.0.1:%(console)s%(strip)s;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
    }
  }
}
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    with Console(runs, options=("--base-path", PREFIX)) as started:
        yield started


@pytest.fixture(scope="module", params=["passed", "stripped"])
def proxy(
    request: pytest.FixtureRequest, nginx_program: str, console: Console, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of the prefix at the proxy."""
    port = free_port("127.0.0.1", 18_490)
    strip = "/" if request.param == "stripped" else ""
    with nginx(nginx_program, tmp_path_factory.mktemp("nginx"), console, port, strip) as address:
        yield address


@contextmanager
def nginx(program: str, place: Path, console: Console, port: int, strip: str) -> Iterator[str]:
    """Put an nginx before a console and return the address of the prefix there. ``strip``: "/" takes the prefix off."""
    values = {"temporary": TEMPORARY, "port": port, "prefix": PREFIX, "console": console.port, "strip": strip}
    values["user"] = "user root;" if os.getuid() == 0 else ""
    (place / "nginx.conf").write_text(CONFIG % values, encoding="utf-8")
    with subprocess.Popen([program, "-p", str(place), "-c", "nginx.conf", "-e", "stderr"]) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}{PREFIX}/healthz")
            yield f"http://127.0.0.1:{port}{PREFIX}"
        finally:
            server.terminate()


def wait_for(address: str) -> None:
    """Wait until an address answers."""
    for _ in range(100):
        try:
            assert httpx.get(address).status_code == 200
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")


def test_the_api_and_its_links_work_through_the_proxy(proxy: str) -> None:
    (run,) = httpx.get(f"{proxy}/api/runs").json()["runs"]
    assert run["run"] == RUN
    exported = httpx.get(proxy.removesuffix(PREFIX) + run["incidents"][0]["exports"]["json"])
    assert exported.json()["incident"]["id"] == run["incidents"][0]["id"]
    assert "lastgood_incident_resume_step" in httpx.get(f"{proxy}/metrics").text


@pytest.mark.parametrize("path", ["/", f"/checkpoints?run={RUN}"])
def test_a_page_opens_through_the_proxy_and_its_websocket(browser: Browser, proxy: str, path: str) -> None:
    page = browser.new_page()
    try:
        sockets: list[str] = []
        page.on("websocket", lambda found: sockets.append(found.url))
        page.goto(proxy + path)
        expect(page.locator("[data-testid=stMain]")).to_contain_text(RUN, timeout=20_000)
        assert sockets
        assert all(url.startswith(f"{proxy.replace('http', 'ws', 1)}/_stcore/stream") for url in sockets)
    finally:
        page.close()
