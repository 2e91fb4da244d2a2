"""Hold a console to its OpenAPI document: Schemathesis makes requests up from it, valid and not, and reads the answers.

Every answer has to be one that the document describes, errors too; what fits the document is taken, what does not is
refused, and what asks for a token gives nothing without one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.console_server import Console, run_directory

from lastgood_console.http.operations import OPERATIONS

TOKEN = "a-token-of-tests"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}
TOKEN_HEADER = f"Authorization: Bearer {TOKEN}"

# JSON Schema takes 1.0 for an integer. The intake does not, on purpose: a step of a journal is a whole number. The
# schema language cannot say so, so numbers are sent as they must be, and everything else as it was made up.
# And what was refused of a list is said in a 200 where the rest of it was taken: here that is as good as a refusal.
HOOKS = """
import json

import schemathesis

def whole(value):
    if isinstance(value, dict):
        return {key: whole(part) for key, part in value.items()}
    if isinstance(value, list):
        return [whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

@schemathesis.hook
def map_body(context, body):
    return whole(body)

@schemathesis.hook
def after_call(context, case, response):
    said = json.loads(response.content) if case.method == "POST" and response.status_code == 200 else {}
    if said.get("rejected"):
        response.status_code = 400
        response.content = json.dumps({**said, "error": said["rejected"][0]["reason"]}).encode()
"""
# 413 is no wrong answer: nothing in the document says how large a body may be, and 10,000 events can be too large.
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 404, 405, 413, 415]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 404, 413]
"""
SIGN_IN = """
[auth]
redirect_uri = "http://127.0.0.1:8490/oauth2callback"
cookie_secret = "a-secret-of-tests-that-is-long-enough"
client_id = "lastgood"
client_secret = "another-secret-of-tests"
server_metadata_url = "http://127.0.0.1:9/.well-known/openid-configuration"
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Start a console that anybody reads, and who shows the token writes to."""
    runs = tmp_path_factory.mktemp("runs")
    run_directory(runs)
    with Console(runs, token=TOKEN) as started:
        yield started


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Start a console that asks for the token, or for somebody who is signed in, wherever it can."""
    runs, secrets = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("secrets") / "secrets.toml"
    run_directory(runs)
    secrets.write_text(SIGN_IN, encoding="utf-8")
    secrets.chmod(0o600)
    with Console(runs, token=TOKEN, options=("--sign-in", str(secrets))) as started:
        yield started


def ask(console: Console, place: Path, *options: str, phases: str = "coverage,fuzzing,stateful") -> str:
    """Let Schemathesis ask a console; return what it says. Fail unless all answers are as the document says."""
    document = place / "openapi.json"
    document.write_bytes(console.request("GET", "/api/openapi.json", headers=SHOWN).content)
    (place / "schemathesis.toml").write_text(CONFIG, encoding="utf-8")
    (place / "made_whole.py").write_text(HOOKS, encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", "schemathesis.toml", "run", document.name,
        "--url", console.address, "--checks", "all", "--phases", phases, "--no-shrink",
        "--max-examples", "20", "--seed", "1", "--output-truncate", "true", *options,
    ]  # fmt: skip
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "made_whole", "PYTHONPATH": str(place)}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-2000:]}"
    assert "Traceback" not in console.said()
    return done.stdout


def generated(said: str) -> int:
    """Return how many requests were made up."""
    found = re.search(r"(\d+) generated", said)
    assert found, said
    return int(found[1])


@pytest.mark.slow
def test_an_open_console_does_what_its_document_says(console: Console, tmp_path: Path) -> None:
    said = ask(console, tmp_path, "--header", TOKEN_HEADER)
    assert f"Tested: {len(OPERATIONS)}" in said
    assert generated(said) > 1000


@pytest.mark.slow
def test_an_open_console_takes_nothing_in_without_the_token(console: Console, tmp_path: Path) -> None:
    said = ask(console, tmp_path, "--include-method", "POST", phases="fuzzing")
    assert "2 operations returned only 401/403 responses" in said


@pytest.mark.slow
def test_a_closed_console_does_what_its_document_says(closed: Console, tmp_path: Path) -> None:
    said = ask(closed, tmp_path, "--header", TOKEN_HEADER, "--include-method", "GET")
    assert "returned only 401/403" not in said


@pytest.mark.slow
def test_a_closed_console_tells_nothing_without_the_token(closed: Console, tmp_path: Path) -> None:
    said = ask(closed, tmp_path, "--include-method", "GET")
    kept = sum(operation.access == "read" for operation in OPERATIONS)
    assert f"{kept} operations returned only 401/403 responses" in said
