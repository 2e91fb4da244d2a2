"""Find the files of a checkpoint that hold tensors, and read each by its format, without running anything in them.

``torch.save`` files (``weights_only=True``, mapped and not copied), one or one per rank; folders of
``torch.distributed.checkpoint``; safetensors, single and sharded; and folders that mix them, as frameworks write.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from lastgood import checkpoint_dcp, checkpoint_safetensors
from lastgood.checkpoint_tensors import Contents, Part, UnreadableError

_TORCH_SUFFIXES: Final = frozenset({".pt", ".pth", ".bin", ".ckpt"})
_DCP_SUFFIX: Final = ".distcp"
_ZIP: Final = b"PK\x03\x04"


class HoldsMoreError(UnreadableError):
    """The file holds more than tensors and plain values, so it is not loaded."""


def tensor_files(path: Path) -> dict[str, int]:
    """Return file -> bytes of all files of a checkpoint that hold tensors; the name of a single file is ""."""
    if not path.is_dir():
        return {"": path.stat().st_size}
    return {name: found.stat().st_size for name, found in _walk(path) if _holds_tensors(found)}


def read_checkpoint(path: Path, files: Mapping[str, int] | None = None) -> Contents:
    """Return what a checkpoint holds. ``files``: what lay there at the save, as :func:`tensor_files` gave it.

    Raises :class:`UnreadableError` when nothing of it can be read.
    """
    contents = Contents(damaged=_cut_short(path, files or {}))
    if path.is_dir():
        _read_folders(path, contents)
    else:
        contents.trees[""] = _read_file(path, contents)
    if not contents.trees:
        reasons = [*contents.damaged.items(), *contents.skipped.items()]
        why = "; ".join(f"{file}: {reason}" for file, reason in reasons[:3]) or "it holds no tensors"
        raise UnreadableError(f"{path} cannot be read: {why}")
    return contents


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of every file, in the order of the numbers in their names."""
    found = [Path(root) / name for root, _, names in os.walk(folder) for name in names if name != "lastgood.json"]
    yield from sorted(((str(f.relative_to(folder)), f) for f in found), key=lambda item: natural(item[0]))


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts rank 10 behind rank 9."""
    out, digits, text = [], "", ""
    for character in [*name, ""]:
        if character.isdecimal():
            digits += character
            continue
        if digits:
            out.append((int(digits), text))
            digits = text = ""
        text += character
    return [*out, (-1, text)]


def _holds_tensors(path: Path) -> bool:
    return path.suffix in {*_TORCH_SUFFIXES, _DCP_SUFFIX, checkpoint_safetensors.SUFFIX} or (
        not path.suffix and (path.name == checkpoint_dcp.METADATA or _starts_with(path, _ZIP))
    )


def _read_folders(folder: Path, contents: Contents) -> None:
    files = dict(_walk(folder))
    parts: list[tuple[str, Part]] = []
    for name, path in files.items():
        try:
            if path.suffix == checkpoint_safetensors.SUFFIX:
                parts += checkpoint_safetensors.read_parts(path, name).items()
            elif path.name.endswith(checkpoint_safetensors.INDEX_SUFFIX):
                _look_for_shards(path, name, contents)
            elif path.suffix in _TORCH_SUFFIXES or _holds_tensors(path) and path.suffix == "" and not _dcp(path):
                contents.trees[name] = _load(path, name)
        except HoldsMoreError as problem:
            contents.skipped[name] = str(problem)
        except UnreadableError as problem:
            contents.damaged.setdefault(name, str(problem))
    if parts:
        contents.trees["safetensors"] = checkpoint_safetensors.whole(parts)
    for place in sorted({path.parent for path in files.values() if path.suffix == _DCP_SUFFIX or _dcp(path)}):
        _read_dcp(folder, place, contents)


def _dcp(path: Path) -> bool:
    return path.name == checkpoint_dcp.METADATA


def _read_dcp(folder: Path, place: Path, contents: Contents) -> None:
    prefix = "" if place == folder else f"{place.relative_to(folder)}/"
    try:
        contents.trees[f"{prefix}{checkpoint_dcp.METADATA}"] = checkpoint_dcp.read_folder(place, prefix)
    except UnreadableError as problem:
        contents.damaged[f"{prefix}{checkpoint_dcp.METADATA}"] = str(problem)


def _look_for_shards(index: Path, name: str, contents: Contents) -> None:
    for file in sorted(checkpoint_safetensors.files_of(index)):
        if not (index.parent / Path(file).name).exists():
            contents.damaged[file] = f"{file} is missing: {name} says that it holds tensors"


def _cut_short(path: Path, files: Mapping[str, int]) -> dict[str, str]:
    """Return the files that are gone or shorter than they were at the save, with how much of them is left."""
    out: dict[str, str] = {}
    for name, size in files.items():
        found, shown = (path / name, name) if name else (path, path.name)
        if not found.exists():
            out[shown] = f"{shown} is missing"
        elif (now := found.stat().st_size) < size:
            out[shown] = f"{shown} has {now} of {size} bytes"
    return out


def _read_file(path: Path, contents: Contents) -> Any:
    """Return what a checkpoint of one file holds."""
    try:
        if _is_safetensors(path):
            return checkpoint_safetensors.whole(checkpoint_safetensors.read_parts(path, path.name).items())
        return _load(path, str(path))
    except UnreadableError as problem:
        cut = "".join(f"{why}; " for why in contents.damaged.values())
        raise UnreadableError(f"{cut}{problem}") from None


def _load(path: Path, name: str) -> Any:
    try:
        return _load_plain(path)
    except pickle.UnpicklingError as problem:
        first = str(problem).partition("\n")[0]
        raise HoldsMoreError(f"{name} holds more than tensors and plain values and is not loaded: {first}") from None
    except Exception as problem:  # a damaged file makes torch raise nearly anything; nothing of it is trusted
        first = str(problem).partition("\n")[0]
        raise UnreadableError(f"{name} cannot be read as a torch checkpoint: {first}") from None


def _load_plain(path: Path) -> Any:
    mapped = _starts_with(path, _ZIP)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as problem:
        if "``torch.distributed.tensor`` must be imported" not in str(problem):
            raise
    importlib.import_module("torch.distributed.tensor")  # for pieces that know their places; it takes a second

    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)  # there is no job here, and need not be
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


def _is_safetensors(path: Path) -> bool:
    if path.suffix == checkpoint_safetensors.SUFFIX:
        return True
    with open(path, "rb") as stream:
        head = stream.read(9)
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read(len(magic)) == magic
    except OSError:
        return False
