"""Pass the loss of every step to whoever watches the demo: one JSON line a step, beside the journal, never in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType


class StatusFile:
    """The line writer of one attempt. ``path`` None writes nothing (every rank but the first)."""

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._file = None if path is None else path.open("a", encoding="utf-8", buffering=1)

    def write(self, step: int, loss: float, passed: Mapping[str, int]) -> None:
        """Append a step: its loss on the first rank in nats (NaN as null), and check -> last step passed."""
        if self._file is None:
            return
        shown = None if loss != loss else round(loss, 4)
        self._file.write(json.dumps({"step": step, "loss": shown, "passed": dict(passed)}) + "\n")

    def __enter__(self) -> StatusFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def status_path(run_dir: Path, attempt: int) -> Path:
    """Return where an attempt's status lines are."""
    return run_dir / "demo" / f"a{attempt}-status.jsonl"


def write_pushed(run_dir: Path, attempt: int, rank: int, sent: int, lost: int) -> None:
    """Say how many samples a rank has pushed and lost, when it pushed any."""
    if sent or lost:
        path = run_dir / "demo" / f"a{attempt}-pushed-{rank:05}.json"
        path.write_text(json.dumps({"sent": sent, "lost": lost}) + "\n", encoding="utf-8")
