"""Give the tensors of a checkpoint the names of its record, and compare them.

Tensors are found in nested dictionaries by the longest canonical-name suffix, so ``{"model": ...}`` and
``{"state": {"module": ...}}`` both work. Copies at one place of files whose names differ only in their numbers (one
file per rank) must all be what was saved; or each holds a piece, at its own place (``DTensor``) or one behind the other
in the order of the files, which is believed only if the fingerprints confirm it. Other copies (an average beside the
weights) need not match.

An optimizer's state has numbers instead of names in ``state_dict()``: the record lists its names in the same order,
and this order, too, is believed only if the fingerprints confirm it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lastgood.checkpoint_tensors import LANES, Contents, Hexes, Leaf, Stored, UnreadableError, digest, numel, place
from lastgood.fingerprint import canonical_name, hex64


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor whose bytes are not those that were saved. ``file`` is "" when the checkpoint is one file."""

    name: str
    stored: Hexes
    read: Hexes
    file: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome: how many tensors match; which differ, cannot be read (with why), are missing, have no record.

    ``damaged`` and ``skipped``: file -> why, as in :class:`lastgood.checkpoint_tensors.Contents`.
    """

    matching: int
    differing: tuple[Difference, ...]
    missing: tuple[str, ...]
    unrecorded: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    damaged: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Return 0 when every tensor of the record was found and matches, and no file is damaged."""
        return 1 if self.differing or self.missing or self.unreadable or self.damaged else 0


@dataclass(frozen=True, slots=True)
class _Copy:
    """A tensor of one file."""

    file: str
    leaf: Leaf


_Group = tuple[str, str]
"""File name without its numbers, and place inside it: copies of one group come from one line of the saving code."""
_Found = dict[str, dict[_Group, list[_Copy]]]
"""Name -> group -> copies, in the order of the files."""


def compare(
    contents: Contents, stored: Mapping[str, Hexes], optimizer: Collection[str], own: Collection[str]
) -> Comparison:
    """Compare what a checkpoint holds with a record.

    ``stored``: name -> fingerprint. ``optimizer``: the names among them of optimizer state, in the record's order.
    ``own``: those that each rank may have of its own (buffers).
    """
    found: _Found = {}
    unrecorded: list[str] = []
    numbered: dict[_Group, _Found] = {}
    for file, tree in contents.trees.items():
        unrecorded += _match(file, tree, stored, found)
        unrecorded += _number(file, tree, optimizer, numbered)
    judge = _Judge(stored, frozenset(own))
    unrecorded += judge.confirm(numbered, found)
    outcomes = {name: judge.judge(name, groups) for name, groups in found.items()}
    differing = tuple(o for o in outcomes.values() if isinstance(o, Difference))
    return Comparison(
        matching=sum(o is None for o in outcomes.values()),
        differing=differing,
        missing=tuple(name for name in stored if name not in found),
        unrecorded=tuple(dict.fromkeys(unrecorded)),
        unreadable=tuple((name, str(o)) for name, o in outcomes.items() if isinstance(o, UnreadableError)),
        damaged=contents.damaged,
        skipped=contents.skipped,
    )


class _Judge:
    """Compare the copies of a name. Every tensor is read once for one name and offset."""

    def __init__(self, stored: Mapping[str, Hexes], own: frozenset[str]) -> None:
        self.stored, self.own = stored, own
        self._read: dict[tuple[int, str, int], Hexes | UnreadableError] = {}

    def judge(self, name: str, groups: Mapping[_Group, Sequence[_Copy]]) -> Difference | UnreadableError | None:
        """Return None when one group holds what was saved, else what is wrong with the one that is nearest to it."""
        best: tuple[float, Difference | UnreadableError] | None = None
        for copies in groups.values():
            reads = [self._digest(copy.leaf, name, 0) for copy in copies]
            wrong = [i for i, read in enumerate(reads) if read != self.stored[name]]
            right = len(copies) - len(wrong)
            if not wrong or (right and name in self.own):
                return None
            together = self._together(name, copies) if not right and len(copies) > 1 else None
            if together == self.stored[name]:
                return None
            problem = self._problem(name, together or reads[wrong[0]], "" if together else copies[wrong[0]].file)
            if best is None or right / len(copies) > best[0]:
                best = right / len(copies), problem
        assert best is not None
        return best[1]

    def _problem(self, name: str, read: Hexes | UnreadableError, file: str) -> Difference | UnreadableError:
        return read if isinstance(read, UnreadableError) else Difference(name, self.stored[name], read, file)

    def confirm(self, numbered: Mapping[_Group, _Found], found: _Found) -> list[str]:
        """Add the optimizers whose order the fingerprints confirm; return the places of the others."""
        unnamed: list[str] = []
        for names in numbered.values():
            right = sum(self.judge(name, groups) is None for name, groups in names.items())
            if 2 * right > len(names):
                for name, groups in names.items():
                    found.setdefault(name, {}).update(groups)
            else:
                unnamed += [place for groups in names.values() for _, place in groups]
        return unnamed

    def _together(self, name: str, copies: Sequence[_Copy]) -> Hexes | None:
        """Return the fingerprint of pieces, at their own places or consecutive; None when they cannot be pieces."""
        reads: dict[tuple[int, ...], Hexes] = {}
        offset = 0
        for copy in copies:
            read = self._digest(copy.leaf, name, offset)
            if isinstance(read, UnreadableError):
                return None
            own = place(copy.leaf)
            if reads.setdefault(own or (offset,), read) != read:
                return None
            offset += numel(copy.leaf) if own is None else 0
        first, second = (hex64(sum(int(read[lane], 16) for read in reads.values())) for lane in LANES)
        return first, second

    def _digest(self, leaf: Leaf, name: str, offset: int) -> Hexes | UnreadableError:
        key = (id(leaf), name, offset)
        if key not in self._read:
            try:
                self._read[key] = digest(leaf, name, offset)
            except UnreadableError as problem:
                self._read[key] = problem
        return self._read[key]


# names


def named_tensors(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    """Yield (path of keys, tensor) of everything in nested dictionaries and lists, but a numbered optimizer state."""
    if isinstance(value, Tensor | Stored):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not (key == "state" and _is_numbered(value)):
                yield from named_tensors(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from named_tensors(item, (*path, str(i)))


def _match(file: str, tree: Any, names: Mapping[str, Hexes], found: _Found) -> list[str]:
    """Give each tensor of a file the longest name of the record that ends its path; return the places without one."""
    by_suffix = {tuple(canonical_name(name.replace("/", ".")).split(".")): name for name in names}
    rest = []
    for path, leaf in named_tensors(tree):
        parts = canonical_name(".".join(p for p in path if p)).split(".")
        name = next((by_suffix[s] for s in (tuple(parts[i:]) for i in range(len(parts))) if s in by_suffix), None)
        if name is None:
            rest.append(".".join(parts))
        else:
            group = (_without_numbers(file), ".".join(path))
            found.setdefault(name, {}).setdefault(group, []).append(_Copy(file, leaf))
    return rest


def _without_numbers(file: str) -> str:
    return re.sub(r"\d+", "#", file)


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


def _number(file: str, tree: Any, stored: Collection[str], numbered: dict[_Group, _Found]) -> list[str]:
    """Note the tensors of numbered optimizer states under the names that their order gives; return those without."""
    unnamed: list[str] = []
    for number_of, optimizer in enumerate(_optimizers(tree)):
        names = _names_of(optimizer, _parameters(stored, number_of))
        own = numbered.setdefault((_without_numbers(file), str(number_of)), {})
        for number, key, leaf in _state_tensors(optimizer):
            where = f"optimizer state {number}/{key}"
            if (name := f"{names.get(number)}/{key}") in stored:
                own.setdefault(name, {}).setdefault((_without_numbers(file), where), []).append(_Copy(file, leaf))
            else:
                unnamed.append(where)
    return unnamed


def _state_tensors(optimizer: Mapping[str, Any]) -> Iterator[tuple[int, str, Leaf]]:
    """Yield (number of the parameter, state key, tensor) in the optimizer's own order of parameters."""
    for group in optimizer["param_groups"]:
        for number in group["params"]:
            for key, value in optimizer["state"].get(number, {}).items():
                if isinstance(value, Tensor | Stored):
                    yield number, key, value


def _parameters(stored: Collection[str], place: int) -> list[str]:
    """Return the parameters of the optimizer at ``place`` (names begin with ``opt<place>:`` if there are several)."""
    every = list(dict.fromkeys(name.rpartition("/")[0] for name in stored))
    own = [name for name in every if name.startswith(f"opt{place}:")]
    return own or every


def _names_of(optimizer: Mapping[str, Any], parameters: Sequence[str]) -> dict[int, str]:
    """Return number -> parameter name; empty when the record knows another number of them."""
    numbers = list(dict.fromkeys(number for number, _, _ in _state_tensors(optimizer)))
    return dict(zip(numbers, parameters, strict=True)) if len(numbers) == len(parameters) else {}
