"""Add up what the demo's ranks have pushed, as each of them says at its end."""

from __future__ import annotations

import json
from pathlib import Path


def pushed_line(run_dir: Path, url: str, ranks: int) -> str:
    """Return one sentence about all attempts, in which ``ranks`` ranks ran in total."""
    said = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted((run_dir / "demo").glob("a*-pushed-*.json"))
    ]
    sent, lost = sum(each["sent"] for each in said), sum(each["lost"] for each in said)
    line = f"Pushed {sent:,} samples to {url.partition('?')[0]}; {f'{lost:,} were lost' if lost else 'none was lost'}."
    silent = ranks - len(said)
    return f"{line} {silent} of {ranks} ranks ended without saying what they pushed." if silent > 0 else line
