"""Hold the OpenAPI document: it is what a console serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.console_server import Console, run_directory

from lastgood_console.http.openapi import openapi

PUBLISHED = Path(__file__).parents[2] / "docs" / "openapi.json"
TOKEN = "a-token-of-tests"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    with Console(runs, token=TOKEN) as started:
        yield started


def test_the_published_document_is_what_a_console_serves(console: Console) -> None:
    served, published = console.get("/api/openapi.json").json(), json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert served == json.loads(json.dumps(openapi(token=True, sign_in=False)))
    assert published == json.loads(json.dumps(openapi()))
    for document in (served, published):  # what a console asks for is its own
        for operations in document["paths"].values():
            for operation in operations.values():
                operation.pop("security")
                operation["responses"].pop("401", None)
    assert served == published


def test_what_a_console_asks_for_is_said(console: Console) -> None:
    paths = console.get("/api/openapi.json").json()["paths"]
    assert paths["/api/events"]["post"]["security"] == [{"token": []}]
    assert paths["/api/runs"]["get"]["security"] == []
    closed = json.loads(PUBLISHED.read_text(encoding="utf-8"))["paths"]
    assert closed["/api/runs"]["get"]["security"] == [{"token": []}, {"session": []}]
    assert closed["/healthz"]["get"]["security"] == []
