"""Compare a checkpoint's bytes with the record beside it: ``python -m lastgood.checkpoint_verify PATH``.

The record was computed from the live tensors at the save, so a match proves that what is on disk now is what training
held then. A checkpoint comes from outside: nothing that it holds is run, whatever its format (see
:mod:`lastgood.checkpoint_files`). A name that is not found is listed and never passed.

Exit codes: 0 every tensor of the record matches; 1 one differs, is missing or cannot be read, or a file is damaged;
2 it cannot be said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lastgood.checkpoint_files import read_checkpoint
from lastgood.checkpoint_match import Comparison, compare
from lastgood.checkpoint_tensors import LANES, Hexes, UnreadableError
from lastgood.checkpoints import read_record, record_path
from lastgood.errors import RunDirError
from lastgood.fingerprint import hex64
from lastgood.wording import hex_text, step_text

_SHOWN: Final = 10


def load_record(path: Path) -> dict[str, Any]:
    """Return the record of a checkpoint. Raises :class:`UnreadableError` when it has none that can be used."""
    try:
        record = read_record(path)
    except RunDirError as problem:
        raise UnreadableError(str(problem)) from None
    if record is None:
        raise UnreadableError(f"{record_path(path)} is missing: only a save inside monitor.checkpoint has a record")
    names = _stored(record)
    whole = _whole([names[name] for part in ("model", "optimizer") for name in record.get(part, {})])
    if whole != record.get("fingerprint"):
        raise UnreadableError(
            f"{record_path(path)} contradicts itself: its tensors make {hex_text(whole)}, it says "
            f"{hex_text(str(record.get('fingerprint')))}; it was changed after the save, so nothing can be said"
        )
    return record


def _whole(hexes: Sequence[Hexes]) -> str:
    """Return the fingerprint of a set of tensors: the sum of each lane modulo 2^64."""
    return "".join(hex64(sum(int(pair[lane], 16) for pair in hexes)) for lane in LANES)


def _stored(record: Mapping[str, Any]) -> dict[str, Hexes]:
    """Return name -> fingerprint of every tensor in the record."""
    parts = [record.get(part, {}) for part in ("model", "optimizer", "buffers")]
    return {name: _hexes(pair) for part in parts for name, pair in part.items()}


def verify(path: Path, record: Mapping[str, Any]) -> Comparison:
    """Read a checkpoint and compare it with its record. Raises :class:`UnreadableError`."""
    stored = _stored(record)
    contents = read_checkpoint(path, _files(record))
    optimizer = {name: stored[name] for name in record.get("optimizer", {})}
    return compare(contents, stored, optimizer, frozenset(record.get("buffers", {})))


def _files(record: Mapping[str, Any]) -> dict[str, int]:
    """Return file -> bytes at the save; empty for a record that does not say. A name is never outside the folder."""
    files = record.get("files")
    if not isinstance(files, dict):
        return {}
    inside = (name for name in files if not Path(name).is_absolute() and ".." not in Path(name).parts)
    return {name: files[name] for name in inside if isinstance(files[name], int)}


def _hexes(pair: Any) -> Hexes:
    if isinstance(pair, list) and len(pair) == len(LANES) and all(_is_lane(lane) for lane in pair):
        return (pair[0], pair[1])
    raise UnreadableError(f"the record holds {pair!r}: every tensor needs two lanes of 16 hexadecimal digits")


def _is_lane(lane: Any) -> bool:
    return isinstance(lane, str) and len(lane) == 16 and not set(lane) - set("0123456789abcdef")


# what a person reads


def report(path: Path, record: Mapping[str, Any], outcome: Comparison) -> Iterator[str]:
    """Yield the outcome in plain words, both fingerprints of every difference with it."""
    saved = f"saved by attempt {record.get('attempt')} at step {step_text(int(record.get('step', 0)))}"
    total = outcome.matching + len(outcome.differing) + len(outcome.missing) + len(outcome.unreadable)
    if outcome.exit_code == 0:
        yield f"✓ {path}: all {total} tensors have the bytes that were {saved}."
    else:
        same = f"{outcome.matching} of {total} tensors have the bytes that were {saved}"
        yield f"✗ {path}: {same}. Do not resume from it."
    yield from (f"  {reason}" for reason in [*outcome.damaged.values()][:_SHOWN])
    yield from _more(len(outcome.damaged), "files are damaged")
    for difference in outcome.differing[:_SHOWN]:
        yield f"  {difference.name} differs" + (f" in {difference.file}" if difference.file else "")
        yield f"    stored {hex_text(''.join(difference.stored))}"
        yield f"    read   {hex_text(''.join(difference.read))}"
    yield from _more(len(outcome.differing), "differ")
    yield from (f"  {name} cannot be read: {why}" for name, why in outcome.unreadable[:_SHOWN])
    yield from _more(len(outcome.unreadable), "cannot be read")
    yield from _listed("in the record, not found in the checkpoint", outcome.missing)
    yield from _listed("in the checkpoint, without a record, not checked", outcome.unrecorded)
    yield from (f"  not checked: {reason}" for reason in outcome.skipped.values())


def _listed(title: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"  {title}: {', '.join(names[:_SHOWN])}{more}"


def _more(count: int, what: str) -> Iterator[str]:
    if count > _SHOWN:
        yield f"  {count - _SHOWN} more {what}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare one checkpoint with its record and say so."""
    parser = argparse.ArgumentParser(prog="lastgood checkpoint verify", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path, metavar="PATH")
    path = parser.parse_args(arguments).path
    try:
        record = load_record(path)
        outcome = verify(path, record)
    except UnreadableError as problem:
        print(f"lastgood checkpoint verify: {problem}", file=sys.stderr)
        return 2
    for line in report(path, record, outcome):
        print(line)
    return outcome.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
