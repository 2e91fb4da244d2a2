"""Write the demo's incidents as files that another team can use, and list what the run left on disk."""

from __future__ import annotations

import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from lastgood.state import RunState
from lastgood_console.export.document import dumps, to_document
from lastgood_console.export.html import render


def write_exports(state: RunState, run_dir: Path) -> list[Path]:
    """Write every incident as JSON and as one HTML file below ``run_dir/exports``; return the paths."""
    folder = run_dir / "exports"
    written = []
    for incident in reversed(state.incidents):
        folder.mkdir(exist_ok=True)
        document = to_document(state, incident)
        for suffix, text in (("json", dumps(document)), ("html", render(document))):
            path = folder / f"{incident.id}.{suffix}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def inventory(run_dir: Path, exports: Sequence[Path]) -> list[tuple[str, str]]:
    """Return what the run left behind: (kind, where), and the command that shows it."""
    rows = [("journal", str(run_dir / "journal")), ("checkpoints", str(run_dir / "checkpoints"))]
    rows += [(f"export {path.suffix[1:].upper()}", str(path)) for path in exports]
    return [*rows, ("look at it", f"{program()} console {shlex.quote(str(run_dir))}")]


def program() -> str:
    """Return how to type ``lastgood`` here so that this installation answers, whatever is on PATH."""
    scripts = [Path(sys.argv[0]), Path(sysconfig.get_path("scripts")) / "lastgood"]
    own = next((path for path in scripts if path.name == "lastgood" and path.is_file()), None)
    if own is None:
        return f"{shlex.quote(sys.executable)} -m lastgood_console.cli"
    found = shutil.which("lastgood")
    if found is not None and own.samefile(found):
        return "lastgood"
    here = Path.cwd()
    return shlex.quote(str(own.relative_to(here) if own.is_relative_to(here) else own))
