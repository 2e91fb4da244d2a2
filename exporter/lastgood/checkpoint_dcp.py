"""Read a folder of ``torch.distributed.checkpoint``: ``.metadata`` says in which file which part of a tensor lies.

``.metadata`` is a pickle, and a pickle from outside runs whatever it names. So it is read by an unpickler that knows
the dozen names that such a file holds and gives for each a record of plain values made here: nothing of torch and
nothing of the file runs. Every part is a ``torch.save`` of its own inside a ``.distcp`` file and is read by
``torch.load(weights_only=True)``. ``dcp.load`` itself is not used: it unpickles ``.metadata`` as it is.

Not covered: parts that were transformed while they were written (compression), and metadata of each rank's own
(``use_collectives=False``); both are said.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.checkpoint_tensors import Part, Stored, UnreadableError

METADATA: Final = ".metadata"
_META: Final = "torch.distributed.checkpoint.metadata"


def read_folder(folder: Path, prefix: str = "") -> Any:
    """Return nested dictionaries whose leaves are tensors on disk. Raises :class:`UnreadableError`.

    ``prefix`` stands before the files' names.
    """
    metadata = _metadata(folder, prefix)
    try:
        tensors = dict(_tensors(folder, prefix, metadata))
        paths = metadata.planner_data or {}
        leaves = [(paths.get(name, (name,)), leaf) for name, leaf in tensors.items()]
        return _optimizers_numbered(_nested([*leaves, *_numbers(folder, prefix, metadata, paths)]))
    except (AttributeError, TypeError, ValueError, KeyError) as problem:
        raise UnreadableError(f"{prefix}{METADATA} says what no distributed checkpoint says: {problem!r}") from None


# the metadata


class _Record:
    """Any object of ``.metadata``: its arguments and attributes, nothing else."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update({str(key): value for key, value in state.items()})
        else:
            self.values = state

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _sizes(values: Any = ()) -> tuple[Any, ...]:
    return tuple(values)


_KNOWN: Final[Mapping[tuple[str, str], Callable[..., Any]]] = {
    **{(_META, name): _Record for name in (
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
        "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING",
    )},
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _Record,
    ("torch.serialization", "_get_layout"): _Record,
    ("torch", "Size"): _sizes,
    **{("pathlib", name): _Record for name in ("PosixPath", "PurePosixPath", "WindowsPath", "Path")},
    **{("pathlib._local", name): _Record for name in ("PosixPath", "PurePosixPath", "WindowsPath", "Path")},
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    """Give records for the names that a metadata file holds, and refuse every other name."""

    def find_class(self, module: str, name: str) -> Any:
        if known := _KNOWN.get((module, name)):
            return known
        if module == "torch" and isinstance(vars(torch).get(name), torch.dtype):
            return name
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which no distributed checkpoint needs")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to another file")


def _metadata(folder: Path, prefix: str) -> Any:
    try:
        with open(folder / METADATA, "rb") as stream:
            metadata = _Unpickler(stream).load()
    except FileNotFoundError:
        why = f"{prefix}{METADATA} is missing: the save was not finished, or each rank wrote metadata of its own"
        raise UnreadableError(why) from None
    except Exception as problem:  # a damaged pickle raises nearly anything; nothing of it is trusted
        raise UnreadableError(f"{prefix}{METADATA} cannot be read: {problem or type(problem).__name__}") from None
    if not isinstance(getattr(metadata, "state_dict_metadata", None), dict):
        raise UnreadableError(f"{prefix}{METADATA} is not the metadata of a distributed checkpoint")
    return metadata


# tensors


def _tensors(folder: Path, prefix: str, metadata: Any) -> Iterator[tuple[str, Stored]]:
    """Yield name and tensor, with the place of each of its parts."""
    places = {(index.fqn, _offsets(index)): info for index, info in metadata.storage_data.items()}
    for name, found in metadata.state_dict_metadata.items():
        if hasattr(found, "chunks"):
            parts = [_part(folder, prefix, name, chunk, places) for chunk in found.chunks]
            yield name, Stored(_counts(found.size), tuple(parts))


def _offsets(index: Any) -> tuple[int, ...] | None:
    offset = getattr(index, "offset", None)
    return None if offset is None else _counts(offset)


def _counts(values: Any) -> tuple[int, ...]:
    if not all(isinstance(value, int) and 0 <= value < 1 << 63 for value in values):
        raise ValueError(f"sizes {values!r}")
    return tuple(values)


def _part(folder: Path, prefix: str, name: str, chunk: Any, places: Mapping[Any, Any]) -> Part:
    offsets, shape = _counts(chunk.offsets), _counts(chunk.sizes)
    info = places.get((name, offsets))
    if info is None:
        raise ValueError(f"no place for the part of {name!r} at {list(offsets)}")
    place = _place(folder, prefix, info)
    return Part(place.file, offsets, shape, place.tensor)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value lies. ``file`` is the name that people see."""

    path: Path
    file: str
    offset: int
    length: int

    def tensor(self) -> Tensor:
        value = self.value()
        if not isinstance(value, Tensor):
            raise UnreadableError(f"{self.file} holds a {type(value).__name__} where a tensor was announced")
        return value

    def value(self) -> Any:
        """Load it, which runs nothing. Raises :class:`UnreadableError`."""
        try:
            if (lost := self.offset + self.length - self.path.stat().st_size) > 0:
                raise UnreadableError(f"{self.file} ends {lost} bytes too early")
            with open(self.path, "rb") as stream:
                stream.seek(self.offset)
                return torch.load(io.BytesIO(stream.read(self.length)), map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise UnreadableError(f"{self.file} is missing") from None
        except UnreadableError:
            raise
        except Exception as problem:  # a damaged part makes torch raise nearly anything
            first = str(problem).partition("\n")[0]
            raise UnreadableError(f"{self.file} cannot be read at byte {self.offset}: {first}") from None


def _place(folder: Path, prefix: str, info: Any) -> _Place:
    name = info.relative_path
    if not isinstance(name, str) or name in ("", ".", "..") or any(c in name for c in "/\\\0"):
        raise UnreadableError(f"{prefix}{METADATA} names the file {name!r}: it must be one inside the checkpoint")
    if getattr(info, "transform_descriptors", None):
        raise UnreadableError(f"{prefix}{name} was transformed while it was written: only plain parts can be read")
    offset, length = _counts((info.offset, info.length))
    return _Place(folder / name, f"{prefix}{name}", offset, length)


# the nesting that the saving code had


def _numbers(folder: Path, prefix: str, metadata: Any, paths: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield path and value of the lists that say which parameters an optimizer's numbers are."""
    for index, info in metadata.storage_data.items():
        path = paths.get(index.fqn, ())
        if len(path) >= 3 and path[-1] == "params" and path[-3] == "param_groups":
            with suppress(UnreadableError):  # its tensors stay without names, and are listed
                yield path, _place(folder, prefix, info).value()


def _nested(leaves: list[tuple[Any, Any]]) -> dict[Any, Any]:
    tree: dict[Any, Any] = {}
    for path, leaf in leaves:
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                raise ValueError(f"{path!r} lies inside a tensor")
        node[path[-1]] = leaf
    return tree


def _optimizers_numbered(value: Any) -> Any:
    """Turn keys that are numbers as texts, in the state of an optimizer, into numbers; and its groups into a list."""
    if not isinstance(value, dict):
        return value
    out = {key: _optimizers_numbered(item) for key, item in value.items()}
    state, groups = out.get("state"), out.get("param_groups")
    if isinstance(state, dict) and isinstance(groups, dict):
        out["state"] = {int(k) if isinstance(k, str) and k.isdecimal() else k: v for k, v in state.items()}
        out["param_groups"] = [groups[key] for key in sorted(groups, key=str)]
    return out
