"""Guard saves and loads: what is saved was checked, and what is loaded is what was saved.

Beside every checkpoint lies a record with the fingerprints (two lanes, whole and per tensor) of the live model and
optimizer at the save: ``<path>.lastgood.json`` beside a file, ``lastgood.json`` inside a directory. It is written
after the checkpoint and atomically, so a checkpoint without a record was not finished, or is not ours.

Not covered: what the saving code writes. The fingerprints are of the live tensors; ``lastgood checkpoint verify``
compares the file with them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from lastgood.errors import IntegrityError, RunDirError
from lastgood.fingerprint import TensorDigests, canonical_name

RECORD_VERSION: Final = 1
NAMES_SHOWN: Final = 5
_FIELDS: Final[dict[str, type]] = {
    "version": int,
    "run": str,
    "attempt": int,
    "step": int,
    "path": str,
    "fingerprint": str,
    "model": dict,
    "optimizer": dict,
}


def record_path(path: Path) -> Path:
    """Return where the record of a checkpoint lies."""
    return path / "lastgood.json" if path.is_dir() else path.with_name(f"{path.name}.lastgood.json")


def make_record(
    facts: Mapping[str, Any], state: TensorDigests, buffers: TensorDigests, parameters: int
) -> dict[str, Any]:
    """Return the record: ``state`` holds weights first (``parameters`` of them), then the optimizer's tensors."""
    texts = list(state.by_name().items())
    return {
        "version": RECORD_VERSION,
        **facts,
        "fingerprint": state.hex(),
        "model": {name: _lanes(text) for name, text in texts[:parameters]},
        "optimizer": {name: _lanes(text) for name, text in texts[parameters:]},
        "buffers": {name: _lanes(text) for name, text in buffers.by_name().items()},
    }


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record beside the checkpoint, atomically."""
    target = record_path(path)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    with open(scratch, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(target)


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the record of a checkpoint, or None when it has none. Raises :class:`RunDirError` for a broken one."""
    source = record_path(path)
    if not source.exists():
        return None
    try:
        record: Any = json.loads(source.read_text(encoding="utf-8"))
        if isinstance(record, dict) and isinstance(version := record.get("version"), int) and version > RECORD_VERSION:
            raise ValueError(f"it needs a lastgood that reads version {version}, this one reads {RECORD_VERSION}")
        return _whole_record(record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunDirError(
            f"{source} cannot be read ({error}): resume from another checkpoint, or without it by "
            "monitor.resume(None, step=...)"
        ) from None


def _whole_record(record: Any) -> dict[str, Any]:
    """Return a whole record. Raises ValueError for anything else."""
    if not isinstance(record, dict):
        raise ValueError("it is not a record")
    for key, kind in _FIELDS.items():
        value = record.get(key)
        if (
            not isinstance(value, kind)
            or isinstance(value, bool)
            or (isinstance(value, int) and not 0 <= value < 1 << 53)
        ):
            raise ValueError(f"its field {key!r} is {value!r}: expected {kind.__name__}")
    for part in ("model", "optimizer"):
        for lanes in record[part].values():
            if not (isinstance(lanes, list) and all(isinstance(lane, str) for lane in lanes)):
                raise ValueError(f"a fingerprint in {part!r} is {lanes!r}: expected two texts of 16 digits")
    return record


def differences(record: Mapping[str, Any], state: TensorDigests) -> list[str]:
    """Return the names of the live tensors that do not match the record, and of those that only one side has."""
    stored = {name: "".join(lanes) for part in ("model", "optimizer") for name, lanes in record[part].items()}
    live = state.by_name()
    return [name for name in {**stored, **live} if stored.get(name) != live.get(name)]


def refuse_mismatch(path: Path, record: Mapping[str, Any], loaded: str, names: list[str], where: str) -> None:
    """Raise the :class:`IntegrityError` for a load that does not match, with both fingerprints."""
    more = len(names) - NAMES_SHOWN
    shown = ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    raise IntegrityError(
        f"{path} does not hold what was saved at step {record['step']}: stored fingerprint {record['fingerprint']}, "
        f"loaded {loaded}{where}; it differs in {shown}. Resume from an earlier checkpoint."
    )


def named_buffers(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Yield canonical name and tensor of every buffer."""
    return ((canonical_name(name), buffer) for name, buffer in module.named_buffers())


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a directory; 0 when there is nothing."""
    if path.is_dir():
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    return path.stat().st_size if path.exists() else 0


class Stopwatch:
    """Measure seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds so far, to the millisecond."""
        return round(time.monotonic() - self._start, 3)


def _lanes(text: str) -> list[str]:
    return [text[:16], text[16:]]
