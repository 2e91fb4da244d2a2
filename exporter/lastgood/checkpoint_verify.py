"""Compare a checkpoint's bytes with the record beside it: ``python -m lastgood.checkpoint_verify PATH``.

The record was computed from the live tensors at the save, so a match proves that what is on disk now is what training
held then. A checkpoint comes from outside: it is loaded with ``weights_only=True``, which runs nothing that it holds.

Tensors are found in nested dictionaries by the longest canonical-name suffix, so ``{"model": ...}`` and
``{"state": {"module": ...}}`` both work. An optimizer's state has numbers instead of names in ``state_dict()``: those
are named by ``param_names`` where torch stored them, else by the order of the model's tensors, and believed only if
their fingerprints confirm it. A name that is not found is listed and never passed. Not covered: directories of
``torch.distributed.checkpoint`` (load them and call ``monitor.resume``).

Exit codes: 0 every tensor of the record matches; 1 one differs or is missing; 2 it cannot be said.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.fingerprint import canonical_name, fingerprint, hex64
from lastgood.wording import hex_text, step_text

LANES: Final = (0, 1)
_SHOWN: Final = 10

Hexes = tuple[str, str]


class UnreadableError(Exception):
    """The checkpoint or its record cannot be read: says the value, the rule and the way out."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor whose bytes are not those that were saved."""

    name: str
    stored: Hexes
    read: Hexes


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome: how many tensors match, which differ, which of the record are missing, which have no record."""

    matching: int
    differing: tuple[Difference, ...]
    missing: tuple[str, ...]
    unrecorded: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """Return 0 when every tensor of the record was found and matches."""
        return 1 if self.differing or self.missing else 0


def record_path(path: Path) -> Path:
    """Return where the record of a checkpoint lies: inside a directory, beside a file."""
    return path / "lastgood.json" if path.is_dir() else path.with_name(f"{path.name}.lastgood.json")


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a checkpoint. Raises :class:`UnreadableError`."""
    where = record_path(path)
    try:
        record = json.loads(where.read_text("utf-8"))
    except FileNotFoundError:
        raise UnreadableError(f"{where} is missing: only a save inside monitor.checkpoint has a record") from None
    except (OSError, ValueError) as problem:
        raise UnreadableError(f"{where} cannot be read ({problem}): without its record nothing can be said") from None
    if not isinstance(record, dict) or record.get("version") != 1:
        version = record.get("version") if isinstance(record, dict) else None
        raise UnreadableError(f"{where} has version {version!r}: this lastgood reads version 1")
    return record


def read_tensors(path: Path) -> dict[str, Any]:
    """Load a checkpoint without running anything it holds. Raises :class:`UnreadableError`."""
    if not path.is_dir():
        return {"": _load(path)}
    files = sorted(f for f in path.iterdir() if f.is_file() and f.name != "lastgood.json")
    if any(f.suffix == ".distcp" for f in files):
        raise UnreadableError(f"{path} is a distributed checkpoint: load it and call monitor.resume, which verifies it")
    return {f.name: _load(f) for f in files if f.suffix in {"", ".pt", ".pth", ".bin", ".ckpt"}}


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        first = str(problem).partition("\n")[0]
        raise UnreadableError(f"{path} holds more than tensors and plain values and is not loaded: {first}") from None
    except Exception as problem:  # a damaged file makes torch raise nearly anything; nothing of it is trusted
        first = str(problem).partition("\n")[0]
        raise UnreadableError(f"{path} cannot be read as a torch checkpoint: {first}") from None


def compare(loaded: Any, record: Mapping[str, Any]) -> Comparison:
    """Compare loaded data with a record, name by name."""
    stored = {name: _hexes(pair) for part in ("model", "optimizer") for name, pair in record.get(part, {}).items()}
    found, unrecorded = match(named_tensors(loaded), [*stored])
    found, unnumbered = _numbered(loaded, found, stored)
    matching, differing = 0, []
    for name, tensors in found.items():
        read = [_fingerprint(tensor, name) for tensor in tensors]
        if stored[name] in read:
            matching += 1
        else:
            differing.append(Difference(name, stored[name], read[0]))
    missing = tuple(name for name in stored if name not in found)
    return Comparison(matching, tuple(differing), missing, (*unrecorded, *unnumbered))


def named_tensors(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """Yield (path of keys, tensor) of everything in nested dictionaries and lists, but a numbered optimizer state."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not (key == "state" and _is_numbered(value)):
                yield from named_tensors(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from named_tensors(item, (*path, str(i)))


def match(
    tensors: Iterator[tuple[tuple[str, ...], Tensor]], names: Sequence[str]
) -> tuple[dict[str, list[Tensor]], list[str]]:
    """Give each tensor the longest name of the record that ends its path; return them, and paths without one."""
    by_suffix = {tuple(canonical_name(name.replace("/", ".")).split(".")): name for name in names}
    found: dict[str, list[Tensor]] = {}
    rest = []
    for path, tensor in tensors:
        parts = canonical_name(".".join(p for p in path if p)).split(".")
        suffixes = (tuple(parts[i:]) for i in range(len(parts)))
        name = next((by_suffix[s] for s in suffixes if s in by_suffix), None)
        if name is None:
            rest.append(".".join(parts))
        else:
            found.setdefault(name, []).append(tensor)
    return found, rest


# an optimizer's state_dict: numbers instead of names


def _is_numbered(value: Mapping[Any, Any]) -> bool:
    state = value.get("state")
    return "param_groups" in value and isinstance(state, Mapping) and any(isinstance(key, int) for key in state)


def _optimizers(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if _is_numbered(value):
            yield value
        else:
            for item in value.values():
                yield from _optimizers(item)


def _numbered(
    loaded: Any, found: dict[str, list[Tensor]], stored: Mapping[str, Hexes]
) -> tuple[dict[str, list[Tensor]], list[str]]:
    """Add the tensors of numbered optimizer states under their names; return also those that stay without one."""
    order = [name for name in found if any(key.startswith(f"{name}/") for key in stored)]
    unnamed: list[str] = []
    for optimizer in _optimizers(loaded):
        names = _names_of(optimizer, order)
        items = [(i, key, t) for i, s in optimizer["state"].items() for key, t in s.items() if isinstance(t, Tensor)]
        named = {f"{names[i]}/{key}": t for i, key, t in items if i in names and f"{names[i]}/{key}" in stored}
        confirmed = sum(_fingerprint(t, name) == stored[name] for name, t in named.items())
        believed = bool(named) and 2 * confirmed > len(named)
        for i, key, tensor in items:
            name = f"{names.get(i)}/{key}"
            if believed and name in named:
                found.setdefault(name, []).append(tensor)
            else:
                unnamed.append(f"optimizer state {i}/{key}")
    return found, unnamed


def _names_of(optimizer: Mapping[str, Any], order: Sequence[str]) -> dict[int, str]:
    """Return number -> parameter name: as torch stored them, else in the order of the model's tensors."""
    named: dict[int, str] = {}
    numbers: list[int] = []
    for group in optimizer["param_groups"]:
        numbers += [i for i in group["params"] if i in optimizer["state"]]
        pairs = zip(group["params"], group.get("param_names", ()), strict=False)
        named |= {i: canonical_name(name) for i, name in pairs}
    return named or (dict(zip(numbers, order, strict=True)) if len(numbers) == len(order) else {})


def _fingerprint(tensor: Tensor, name: str) -> Hexes:
    lanes = [hex64(int(fingerprint(tensor, name, lane=lane))) for lane in LANES]
    return (lanes[0], lanes[1])


def _hexes(pair: Any) -> Hexes:
    if not (isinstance(pair, list) and len(pair) == len(LANES) and all(isinstance(lane, str) for lane in pair)):
        raise UnreadableError(f"the record holds {pair!r}: every tensor needs two lanes of hexadecimal digits")
    return (pair[0], pair[1])


# what a person reads


def report(path: Path, record: Mapping[str, Any], outcome: Comparison) -> Iterator[str]:
    """Yield the outcome in plain words, both fingerprints of every difference with it."""
    saved = f"saved by attempt {record.get('attempt')} at step {step_text(int(record.get('step', 0)))}"
    total = outcome.matching + len(outcome.differing) + len(outcome.missing)
    if outcome.exit_code == 0:
        yield f"✓ {path}: all {total} tensors have the bytes that were {saved}."
    else:
        same = f"{outcome.matching} of {total} tensors have the bytes that were {saved}"
        yield f"✗ {path}: {same}. Do not resume from it."
    for difference in outcome.differing[:_SHOWN]:
        yield f"  {difference.name} differs"
        yield f"    stored {hex_text(''.join(difference.stored))}"
        yield f"    read   {hex_text(''.join(difference.read))}"
    yield from _more(len(outcome.differing), "differ")
    yield from _listed("in the record, not found in the checkpoint", outcome.missing)
    yield from _listed("in the checkpoint, without a record, not checked", outcome.unrecorded)


def _listed(title: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"  {title}: {', '.join(names[:_SHOWN])}{more}"


def _more(count: int, verb: str) -> Iterator[str]:
    if count > _SHOWN:
        yield f"  {count - _SHOWN} more {verb}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare one checkpoint with its record and say so."""
    parser = argparse.ArgumentParser(prog="lastgood checkpoint verify", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path, metavar="PATH")
    path = parser.parse_args(arguments).path
    try:
        record = read_record(path)
        outcome = compare(read_tensors(path), record)
    except UnreadableError as problem:
        print(f"lastgood checkpoint verify: {problem}", file=sys.stderr)
        return 2
    for line in report(path, record, outcome):
        print(line)
    return outcome.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
