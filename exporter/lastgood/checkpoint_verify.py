"""Compare a checkpoint's bytes with the record beside it: ``python -m lastgood.checkpoint_verify PATH``.

The record was computed from the live tensors at the save, so a match proves that what is on disk now is what training
held then. A checkpoint comes from outside: it is loaded with ``weights_only=True``, which runs nothing that it holds.

Tensors are found in nested dictionaries by the longest canonical-name suffix, so ``{"model": ...}`` and
``{"state": {"module": ...}}`` both work. An optimizer's state has numbers instead of names in ``state_dict()``: the
record lists its names in the same order, and this order is believed only if the fingerprints confirm it. A name that
is not found is listed and never passed. Not covered: directories of ``torch.distributed.checkpoint`` (load them and
call ``monitor.resume``).

Exit codes: 0 every tensor of the record matches; 1 one differs or is missing; 2 it cannot be said.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.checkpoints import read_record, record_path
from lastgood.errors import RunDirError
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
    stored = _stored(record)
    found, unrecorded = match(named_tensors(loaded), [*stored])
    unnumbered = _add_numbered(loaded, found, {name: stored[name] for name in record.get("optimizer", {})})
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
    """Yield the optimizer states with numbers in nested dictionaries and lists, in the order they are stored."""
    if isinstance(value, Mapping) and _is_numbered(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _optimizers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _optimizers(item)


def _add_numbered(loaded: Any, found: dict[str, list[Tensor]], stored: Mapping[str, Hexes]) -> list[str]:
    """Add the tensors of numbered optimizer states under their names; return those that stay without one."""
    unnamed: list[str] = []
    for place, optimizer in enumerate(_optimizers(loaded)):
        names = _names_of(optimizer, _parameters(stored, place))
        items = [(f"{names.get(i)}/{key}", f"optimizer state {i}/{key}", t) for i, key, t in _state_tensors(optimizer)]
        known = {name: tensor for name, _, tensor in items if name in stored}
        confirmed = sum(_fingerprint(tensor, name) == stored[name] for name, tensor in known.items())
        if 2 * confirmed > len(known):
            for name, tensor in known.items():
                found.setdefault(name, []).append(tensor)
            unnamed += [number for name, number, _ in items if name not in known]
        else:
            unnamed += [number for _, number, _ in items]
    return unnamed


def _state_tensors(optimizer: Mapping[str, Any]) -> Iterator[tuple[int, str, Tensor]]:
    """Yield (number of the parameter, state key, tensor) in the optimizer's own order of parameters."""
    for group in optimizer["param_groups"]:
        for number in group["params"]:
            for key, value in optimizer["state"].get(number, {}).items():
                if isinstance(value, Tensor):
                    yield number, key, value


def _parameters(stored: Mapping[str, Hexes], place: int) -> list[str]:
    """Return the parameters of the optimizer at ``place`` (names begin with ``opt<place>:`` if there are several)."""
    every = list(dict.fromkeys(name.rpartition("/")[0] for name in stored))
    own = [name for name in every if name.startswith(f"opt{place}:")]
    return own or every


def _names_of(optimizer: Mapping[str, Any], parameters: Sequence[str]) -> dict[int, str]:
    """Return number -> parameter name; empty when the record knows another number of them."""
    numbers = list(dict.fromkeys(number for number, _, _ in _state_tensors(optimizer)))
    return dict(zip(numbers, parameters, strict=True)) if len(numbers) == len(parameters) else {}


def _fingerprint(tensor: Tensor, name: str) -> Hexes:
    lanes = [hex64(int(fingerprint(tensor, name, lane=lane))) for lane in LANES]
    return (lanes[0], lanes[1])


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
        record = load_record(path)
        outcome = compare(read_tensors(path), record)
    except UnreadableError as problem:
        print(f"lastgood checkpoint verify: {problem}", file=sys.stderr)
        return 2
    for line in report(path, record, outcome):
        print(line)
    return outcome.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
