"""Hold how the frontend's files are served: packed, from memory, and nothing else than they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from tests.app.console_server import Console, run_directory

from lastgood_console.http.bundle import Bundle, frontend_files

OTHER = "Streamlit's own answer"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "index.abc.js"
    file.write_text("export const a = 1;\n" * 1000, encoding="utf-8")
    return file


def bundle(script: Path, base: str = "") -> Bundle:
    return Bundle(PlainTextResponse(OTHER), {"/static/js/index.abc.js": script}, base)


def ask(served: Bundle, path: str = "/static/js/index.abc.js", method: str = "GET", **headers: str) -> httpx.Response:
    """Send one request. A browser takes packed bytes; ``headers``: other words than a browser's."""

    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=served), base_url="http://console") as client:
            return await client.request(method, path, headers={"Accept-Encoding": "gzip, br"} | headers)

    return asyncio.run(asked())


@pytest.mark.parametrize("base", ["", "/lastgood"])
def test_a_script_comes_packed_and_may_be_kept_for_ever(script: Path, base: str) -> None:
    answer = ask(bundle(script, base), f"{base}/static/js/index.abc.js")
    assert answer.text == script.read_text(encoding="utf-8")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert int(answer.headers["content-length"]) < script.stat().st_size / 10


def test_it_is_read_and_packed_once(script: Path) -> None:
    served = bundle(script)
    first = ask(served).text
    script.unlink()
    assert ask(served).text == first


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/static/js/%2e%2e/js/index.abc.js", {}),
        ("GET", "/static/js/other.js", {}),
        ("GET", "/", {}),
        ("POST", "/static/js/index.abc.js", {}),
        ("GET", "/static/js/index.abc.js", {"Accept-Encoding": "identity"}),
        ("GET", "/static/js/index.abc.js", {"Range": "bytes=0-9"}),
        ("GET", "/static/js/index.abc.js", {"If-None-Match": '"a"'}),
    ],
)
def test_anything_else_is_streamlits_to_answer(script: Path, method: str, path: str, headers: dict[str, str]) -> None:
    assert ask(bundle(script), path, method, **headers).text == OTHER


def test_a_file_that_is_gone_is_streamlits_to_explain(script: Path) -> None:
    script.unlink()
    assert ask(bundle(script)).text == OTHER


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    with Console(runs) as started:
        yield started


def test_the_console_serves_the_installed_frontend_so(console: Console) -> None:
    found = frontend_files()
    assert len(found) > 50
    page = console.get("/").text
    scripts = [path for path in found if f'"{path.removeprefix("/")}"' in page or f'".{path}"' in page]
    assert scripts, "the page names files that are found"
    for path in scripts[:5]:
        answer = console.get(path)
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.content == found[path].read_bytes()
