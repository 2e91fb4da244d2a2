"""The built wheel works outside the checkout: lean, and with the console and torch."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)], check=True)
    (built,) = out.glob("*.whl")
    return built


class Environment:
    """A virtual environment of its own, run from a folder that is not the checkout."""

    def __init__(self, folder: Path, with_pip: bool) -> None:
        venv.create(folder / "venv", with_pip=with_pip)
        self.bin = folder / "venv" / "bin"
        self.cwd = folder / "elsewhere"
        self.cwd.mkdir()
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "LASTGOOD_"))}
        self.environ |= {"OMP_NUM_THREADS": "1", "LASTGOOD_METRICS_ADDRESS": "127.0.0.1"}

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / program), *arguments]
        return subprocess.run(command, cwd=self.cwd, env=self.environ, capture_output=True, text=True, check=False)

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([str(self.bin / program), *arguments], cwd=self.cwd, env=self.environ)

    @property
    def site_packages(self) -> Path:
        return next(self.bin.parent.glob("lib/python*/site-packages"))


def answer(port: int, path: str, server: subprocess.Popen[bytes]) -> str:
    """Return what the server on ``port`` answers, waiting until it is up."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as got:
                return str(got.read().decode())
        except OSError:
            assert server.poll() is None, f"it ended with {server.returncode}"
            assert time.monotonic() < deadline, "no answer within a minute"
            time.sleep(0.2)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_wheel_holds_both_packages_with_schemas_and_types_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"lastgood/py.typed", "lastgood_console/py.typed", "lastgood/schemas/finding.json"} <= set(names)
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {
        "lastgood", "lastgood_alerts", "lastgood_console", "lastgood_dashboards",
    }  # fmt: skip


def test_every_runbook_is_in_the_wheel(wheel: Path) -> None:
    pages = {page.name for page in (ROOT / "alerts" / "runbooks").glob("*.md")}
    folder = "lastgood_alerts/runbooks/"
    names = zipfile.ZipFile(wheel).namelist()
    assert pages
    assert {name.removeprefix(folder) for name in names if name.startswith(folder)} == pages


@pytest.fixture(scope="module")
def lean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("lean"), with_pip=True)
    done = environment.run("python", "-m", "pip", "install", "-q", "-c", str(CONSTRAINTS), str(wheel))
    assert done.returncode == 0, done.stderr
    return environment


def test_the_lean_install_adds_only_prometheus_client(lean: Environment) -> None:
    listed = lean.run("python", "-m", "pip", "list", "--format=freeze").stdout
    names = {re.split("[=@ ]", line)[0].lower().replace("_", "-") for line in listed.splitlines()}
    assert names - {"pip", "setuptools", "wheel"} == {"lastgood", "prometheus-client"}


def test_serve_works_from_the_lean_install(lean: Environment) -> None:
    port = free_port()
    server = lean.start("lastgood", "serve", "runs", "--port", str(port))
    try:
        assert "# TYPE lastgood_incident_resume_step gauge" in answer(port, "/metrics", server)
    finally:
        server.terminate()
        assert server.wait(10) == 0


def test_a_command_that_needs_an_extra_says_which(lean: Environment) -> None:
    done = lean.run("lastgood", "console", "runs")
    assert done.returncode == 2
    assert "lastgood[console]" in done.stderr


def closure(*wanted: str) -> dict[str, Distribution]:
    """Return every distribution that these requirements ask for, here, by their own metadata."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    asked: set[str] = set()
    queue = [Requirement(text) for text in wanted]
    while queue:
        requirement = queue.pop()
        if str(requirement) in asked:
            continue
        asked.add(str(requirement))
        found[requirement.name.lower()] = dist = distribution(requirement.name)
        extras = requirement.extras or {""}
        for text in dist.requires or []:
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append(needed)
    return found


def link(dist: Distribution, site_packages: Path) -> None:
    """Make one installed distribution importable from another environment, by links to its files and folders."""
    base = Path(str(dist.locate_file("")))
    for top in {file.parts[0] for file in dist.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        place = site_packages / top
        if not place.exists():
            place.symlink_to(base / top)


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with the console extra and torch.

    What they depend on is linked, not copied, from the environment of the tests: exactly the closure of what the wheel
    declares, so an undeclared dependency is missing here too.
    """
    environment = Environment(tmp_path_factory.mktemp("full"), with_pip=True)
    needed = closure("lastgood[console]", "torch")
    needed.pop("lastgood")
    for dist in needed.values():
        link(dist, environment.site_packages)
    done = environment.run("python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel))
    assert done.returncode == 0, done.stderr
    return environment


def test_what_it_imports_is_the_wheel_and_nothing_undeclared(full: Environment) -> None:
    code = "import lastgood, lastgood_console, torch, streamlit; print(lastgood.__file__, lastgood_console.__file__)"
    done = full.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert all(path.startswith(str(full.site_packages)) for path in done.stdout.split())
    assert full.run("python", "-c", "import pytest").returncode == 1


@pytest.mark.torchrun
def test_the_demo_runs_from_the_wheel(full: Environment) -> None:
    done = full.run("lastgood", "demo", "--no-console", "--run-dir", "demo-run")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = full.run("lastgood", "incidents", "demo-run")
    assert "recovered" in listed.stdout.lower(), listed.stdout + listed.stderr


def test_the_console_runs_from_the_wheel(full: Environment) -> None:
    port = free_port()
    server = full.start("lastgood", "console", "runs", "--port", str(port))
    try:
        assert "lastgood_run_active" in answer(port, "/metrics", server)
        assert "<script" in answer(port, "/", server)
    finally:
        server.terminate()
        server.wait(20)
