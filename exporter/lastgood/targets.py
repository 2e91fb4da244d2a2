"""Tell Prometheus where the ranks are: ``<run>/targets.json`` for file-based service discovery.

The entries carry no ``run``, ``rank`` or ``node`` label: the series have their own, and a target label of the same
name would rename them. Prometheus re-reads the file when it changes, so it is only ever replaced as a whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

NAME: Final = "targets.json"


def write_targets(run_dir: Path | str, endpoints: Iterable[tuple[str, int | None]]) -> Path:
    """Replace ``<run_dir>/targets.json`` by the given (host, port) of every rank and return its path.

    A rank without an endpoint (port None) is left out. Raises OSError when the file cannot be written.
    """
    targets = [_address(host, port) for host, port in endpoints if port is not None]
    path = Path(run_dir) / NAME
    # Not a NamedTemporaryFile: its mode 0600 would lock Prometheus, which is another user, out.
    part = path.with_name(f".{NAME}.{os.getpid()}.part")
    part.write_text(json.dumps([{"targets": targets}] if targets else [], indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
