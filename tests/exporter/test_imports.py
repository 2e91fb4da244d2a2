"""Packages import in one direction, and what needs no torch imports none."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXPORTER, CONSOLE = ROOT / "exporter" / "lastgood", ROOT / "app" / "lastgood_console"
ALERTS, DASHBOARDS = ROOT / "alerts" / "lastgood_alerts", ROOT / "dashboards" / "lastgood_dashboards"

PURE_CORE = (
    "lastgood", "lastgood.catalogue", "lastgood.config", "lastgood.endpoint", "lastgood.errors", "lastgood.events",
    "lastgood.fold", "lastgood.incidents", "lastgood.journal", "lastgood.ledger", "lastgood.rank_metrics",
    "lastgood.run_metrics", "lastgood.schema", "lastgood.serve", "lastgood.state", "lastgood.targets",
    "lastgood.timeline", "lastgood.trust", "lastgood.verdict", "lastgood.wording",
)  # fmt: skip

BLOCKER = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Blocked())
"""

OF_EXTRAS = {"amdsmi", "cramjam", "lightning", "pynvml", "transformers"}
"""Imported when they are used, never at the top of a module."""

THIRD_PARTY = {"torch", "numpy", "pandas", "altair", "streamlit", "rich", "starlette", "uvicorn", "httpx"}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (top-level package, whether it is imported when the module is) for every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], id(node) not in lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0], id(node) not in lazy


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def files(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found, f"no code in {folder}"
    return found


def run_blocked(blocked: set[str], code: str) -> subprocess.CompletedProcess[str]:
    source = BLOCKER.format(blocked=blocked) + code
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60)


def test_the_training_side_never_imports_the_console() -> None:
    wrong = [path.name for path in files(EXPORTER) if any(name == "lastgood_console" for name, _ in imports(path))]
    assert wrong == []


def test_the_training_side_imports_nothing_beside_prometheus_client_and_torch() -> None:
    allowed = set(sys.stdlib_module_names) | {"lastgood", "prometheus_client", "torch"} | OF_EXTRAS
    wrong = {(path.name, name) for path in files(EXPORTER) for name, _ in imports(path) if name not in allowed}
    assert wrong == set()


def test_the_training_side_imports_what_extras_bring_only_when_it_is_used() -> None:
    wrong = [path.name for path in files(EXPORTER) for name, at_once in imports(path) if name in OF_EXTRAS and at_once]
    assert wrong == []


def test_the_console_never_imports_torch() -> None:
    wrong = [path.name for path in files(CONSOLE) if any(name == "torch" for name, _ in imports(path))]
    assert wrong == []


@pytest.mark.parametrize("folder", [ALERTS, DASHBOARDS])
def test_alerts_and_dashboards_import_nothing_of_ours_but_the_catalogue_side(folder: Path) -> None:
    ours = {"lastgood", folder.name}
    wrong = {
        (path.name, name)
        for path in files(folder)
        for name, _ in imports(path)
        if name == "torch" or (name.startswith("lastgood") and name not in ours)
    }
    assert wrong == set()


def test_no_file_edits_the_import_path() -> None:
    wrong = [
        path.name
        for folder in (EXPORTER, CONSOLE, ALERTS, DASHBOARDS)
        for path in files(folder)
        if "sys.path" in path.read_text()
    ]
    assert wrong == []


def test_the_blocker_blocks() -> None:
    assert "torch is blocked" in run_blocked({"torch"}, "import torch").stderr


@pytest.mark.parametrize("module", PURE_CORE)
def test_the_pure_core_needs_only_prometheus_client(module: str) -> None:
    done = run_blocked(THIRD_PARTY, f"import {module}")
    assert done.returncode == 0, done.stderr


def test_the_command_line_starts_on_the_lean_install() -> None:
    done = run_blocked(THIRD_PARTY, "from lastgood_console.cli import main\nmain(['--help'])")
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


def test_the_console_starts_where_torch_is_missing() -> None:
    # app.py is the script that Streamlit runs with a store open: what it imports is here too
    modules = [f"lastgood_console.{path.stem}" for path in sorted(CONSOLE.glob("*.py")) if path.stem != "app"]
    done = run_blocked({"torch"}, "".join(f"import {module}\n" for module in modules))
    assert done.returncode == 0, done.stderr
