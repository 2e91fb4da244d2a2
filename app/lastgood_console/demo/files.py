"""Write the demo's incidents as files that another team can use, and list what the run left on disk."""

from __future__ import annotations

import shlex
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
    return [*rows, ("look at it", f"lastgood console {shlex.quote(str(run_dir))}")]
